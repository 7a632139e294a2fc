"""Failures, counted: shares with intervals, paired differences, and examples by a rule."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from rmutils.corpora.world.failure_prompts import FailurePrompt
from rmutils.evaluation.failure_checks import OUTCOMES, outcome
from rmutils.stats import RESAMPLES, cluster_bootstrap, percentiles

WHOLE = "nothing"
"""What is masked in the whole model."""


@dataclass(frozen=True)
class FailureModes:
    """Responses to the same prompts, each with what came out.

    Attributes
    ----------
    prompts : tuple of FailurePrompt
    table : DataFrame
        A row per response: `prompt` (index of the prompt), `kind`, `form`, `masked` (`nothing` or a
        key of the masks), `draw`, `text`, `finished` (False if it was cut), `outcome`, `passed`.
    """

    prompts: tuple[FailurePrompt, ...]
    table: pd.DataFrame

    @classmethod
    def of(cls, prompts: Sequence[FailurePrompt], responses: pd.DataFrame) -> FailureModes:
        """Check responses (the columns up to `finished`)."""
        found = [outcome(prompts[i], text)
                 for i, text in zip(responses["prompt"], responses["text"], strict=True)]
        first = responses["kind"].map(lambda kind: OUTCOMES[kind][0])
        return cls(tuple(prompts), responses.assign(outcome=found, passed=found == first))

    def shares(self, result: str | None = None, by: str = "kind") -> pd.DataFrame:
        """How often each masked model's responses pass, or have another outcome.

        Parameters
        ----------
        result : str, optional
            One of `OUTCOMES`. Default: the one that passes.
        by : {"kind", "form"}

        Returns
        -------
        DataFrame
            The column `by`, `masked`, `prompts`, `value`, `low`, `high` (95 % bootstrap over
            prompts and over draws of heads).
        """
        counted = self.table["outcome"] == result if result else self.table["passed"]
        rows = []
        for (group, masked), part in self.table.assign(counted=counted).groupby(
                [by, "masked"], sort=False):
            values = _by_draw(part)
            rows.append({by: group, "masked": masked, "prompts": len(values), **_mean(values)})
        return pd.DataFrame(rows)

    def outcomes(self) -> pd.DataFrame:
        """The share of every outcome: `kind`, `outcome`, and the columns of `shares`."""
        return pd.concat([
            self.shares(result).query("kind == @kind").assign(outcome=result)
            for kind, results in OUTCOMES.items() for result in results], ignore_index=True)

    def losses(self) -> pd.DataFrame:
        """Paired differences in the share that passes: `more` less `less`, the same prompts.

        Returns
        -------
        DataFrame
            `kind`, `more`, `less` (what is masked), `value`, `low`, `high`.
        """
        rows = []
        for kind, part in self.table.assign(counted=self.table["passed"]).groupby(
                "kind", sort=False):
            of = {masked: _by_draw(rows_) for masked, rows_ in part.groupby("masked")}
            for more, less in ((WHOLE, "retrieval"), (WHOLE, "non-retrieval"),
                               ("non-retrieval", "retrieval")):
                rows.append({"kind": kind, "more": more, "less": less,
                             **_mean(of[more] - of[less])})
        return pd.DataFrame(rows)

    def example(self, kind: str, masked: str) -> int | None:
        """The first prompt, in the order of the seed, that the whole model passes and the masked
        one (its first draw) does not; None if there is none."""
        first = self.table.query("kind == @kind and draw == 0")
        passed = first.pivot(index="prompt", columns="masked", values="passed")
        found = passed.index[passed[WHOLE] & ~passed[masked]]
        return int(found[0]) if len(found) else None

    def responses(self, prompt: int) -> pd.DataFrame:
        """The rows of one prompt, one for each kind of mask (its first draw)."""
        return self.table.query("prompt == @prompt and draw == 0")


def _by_draw(rows: pd.DataFrame) -> np.ndarray:
    """Column `counted` as (prompts, draws)."""
    return rows.pivot(index="prompt", columns="draw", values="counted").to_numpy(dtype=float)


def _mean(values: np.ndarray) -> dict[str, float]:
    """Mean of (prompts, draws), with an interval over both drawn anew."""
    of_draw = cluster_bootstrap(values, None)
    draws = np.random.default_rng(0).integers(values.shape[1], size=(RESAMPLES, values.shape[1]))
    low, high = percentiles(np.take_along_axis(of_draw, draws, 1).mean(1))
    return {"value": values.mean(), "low": low, "high": high}
