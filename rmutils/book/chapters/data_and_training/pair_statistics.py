"""Properties of preference pairs: their lengths, and how chosen and rejected responses differ."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
from pydantic import Field

from rmutils.core.config import Config, digest
from rmutils.core.results import Artifact, Compute, Stage, Tables
from rmutils.heads.masking import draw_layer_matched
from rmutils.models import LanguageModel
from rmutils.pipeline.retmask import RetMaskConfig, RetMaskRun
from rmutils.preference.instructions import Instruction
from rmutils.preference.pairs import make_pairs
from rmutils.preference.responses import Transformers, respond
from rmutils.stats import ANY, DIFFERENCE, POSITIVE, SHARE, Interval, interval

SIDES = ("chosen", "rejected")

_BOUNDS = {"names_difference": DIFFERENCE, "tokens": POSITIVE, "edit_distance": SHARE,
           "_names": SHARE, "_unfinished": SHARE, "_cut": SHARE, "_alone": SHARE, "long": SHARE}
"""By the end of a measure's name; all others (differences of lengths, of likelihoods) have none."""
_WORD = re.compile(r"\d+(?:[.,]\d+)*|\w+|[^\w\s]")
_FIRST_WORD = re.compile(r"(?:^|[.!?:\n])\W*[^\W\d_]\w*")


def describe(lm: LanguageModel, pairs: pd.DataFrame) -> pd.DataFrame:
    """Measures of each pair that need its texts only."""
    tokens = {side: _count(lm, pairs[side]) for side in SIDES}
    words = {side: pairs[side].map(_WORD.findall) for side in SIDES}
    found = pd.DataFrame({
        "input_tokens": _count(lm, pairs["prompt"]),
        **{f"{side}_tokens": tokens[side] for side in SIDES},
        "length_difference": tokens["chosen"] - tokens["rejected"],
        "edit_distance": [edit_distance(a, b) / max(len(a), len(b))
                          for a, b in zip(*words.values(), strict=True)]}, index=pairs.index)
    for side in SIDES:
        found[f"{side}_names"] = _names_kept(pairs, side)
    found["names_difference"] = found["chosen_names"] - found["rejected_names"]
    for side in SIDES:
        found[f"{side}_unfinished"] = 1 - pairs[f"{side}_finished"].to_numpy(float)
    return found.assign(long=pairs["long"].to_numpy(float))


def summarize(measures: pd.DataFrame) -> pd.DataFrame:
    """Mean of each column over the pairs that have it, with a 95 % bootstrap interval over them."""
    rows = {}
    for name in measures:
        values = measures[name].dropna()
        bounds = next((b for ending, b in _BOUNDS.items() if name.endswith(ending)), ANY)
        found = interval(values, bounds=bounds) if len(values) else Interval(*[np.nan] * 3)
        rows[name] = {"pairs": len(values), **found._asdict()}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("measure")


def difference_on_same(own: pd.Series,
                       others: Sequence[pd.Series]) -> tuple[Interval, Interval, Interval] | None:
    """Compare a measure of some pairs with that of others on the same instructions."""
    table = pd.concat([own, *others], axis=1, join="inner").dropna().to_numpy(float)
    if len(table) < 2:
        return None
    bounds = next((b for ending, b in _BOUNDS.items() if str(own.name).endswith(ending)), ANY)
    return (interval(table[:, 0], bounds=bounds), interval(table[:, 1:], seeds=True, bounds=bounds),
            interval(table[:, :1] - table[:, 1:], seeds=True,
                     bounds=DIFFERENCE if bounds == SHARE else ANY))


def edit_distance(first: Sequence[str], second: Sequence[str]) -> int:
    """Fewest words inserted, removed or replaced to turn one list into the other (Levenshtein)."""
    ids = {word: number for number, word in enumerate({*first, *second})}
    across = np.array([ids[word] for word in second], dtype=int)
    columns = np.arange(len(second) + 1)
    row = columns
    for number, word in enumerate(first, 1):
        replaced = row[:-1] + (across != ids[word])
        best = np.concatenate([[number], np.minimum(row[1:] + 1, replaced)])
        row = np.minimum.accumulate(best - columns) + columns  # insertions, from left to right
    return int(row[-1])


def names(text: str) -> set[str]:
    """Words with a capital and numbers, which an answer can only copy."""
    words = _WORD.findall(_FIRST_WORD.sub(" ", text))
    return {word for word in words if word[0].isdigit() or (word[0].isupper() and len(word) > 1)}


def names_difference(pairs: pd.DataFrame) -> pd.Series:
    """Share of the prompt's names that the chosen answer keeps, minus the rejected one's; by id."""
    chosen, rejected = (_names_kept(pairs, side) for side in SIDES)
    return pd.Series(np.subtract(chosen, rejected), pairs["id"], name="names_difference")


def _names_kept(pairs: pd.DataFrame, side: str) -> list[float]:
    return [_share_kept(prompt, _WORD.findall(answer))
            for prompt, answer in zip(pairs["prompt"], pairs[side], strict=True)]


def _share_kept(prompt: str, answer: Sequence[str]) -> float:
    wanted = names(prompt)
    return len(wanted & {*answer}) / len(wanted) if wanted else np.nan


def _count(lm: LanguageModel, texts: pd.Series) -> np.ndarray:
    return np.array([len(lm.encode(text)) for text in texts])


def cut(encoded: Mapping[str, list], max_length: int) -> pd.DataFrame:
    """Which sequences DPO cuts to their last `max_length` tokens, as 0 or 1."""
    prompt = np.array([len(ids) for ids in encoded["prompt_ids"]])
    answer = {side: np.array([len(ids) for ids in encoded[f"{side}_ids"]]) for side in SIDES}
    return pd.DataFrame({f"{side}_cut": prompt + answer[side] > max_length for side in SIDES}
                        | {f"{side}_alone": answer[side] >= max_length for side in SIDES}
                        ).astype(float)


def share_above(mean: float, limit: float, longest: float) -> tuple[float, float]:
    """Least and largest share of lengths above `limit` that a mean leaves possible (Markov)."""
    return max((mean - limit) / (longest - limit), 0.0), min(mean / limit, 1.0)


MATCHED_PAIRS = Stage[Tables]("matched-pairs", version=1)


class MatchedConfig(Config):
    """Which instructions of a stored run are answered without layer-matched others."""

    pairs: Annotated[int, Field(ge=1)] = 128
    """How many, the first of the run."""
    seed: int = 42
    """Draws the heads (see `rmutils.heads.masking.draw_layer_matched`)."""


def matched_pairs_stored(lm: LanguageModel, run: RetMaskRun,
                         config: MatchedConfig = MatchedConfig(), *, compute: Compute = "auto",
                         command: str) -> tuple[pd.DataFrame, Artifact]:
    """Pairs of a run of RetMask, but rejected without as many other heads of the same layers."""
    table = run.pairs.head(config.pairs)
    settings = RetMaskConfig.from_identity(run.artifact.manifest["config"]).responses
    heads = tuple(draw_layer_matched(lm.shape, run.heads, exclude=run.heads, seed=config.seed))
    chosen = pd.DataFrame({
        "id": table["id"], "instruction": table["prompt"], "text": table["chosen"],
        "tokens": table["chosen_tokens"], "finished": table["chosen_finished"]})

    def make(journal: Path) -> Tables:
        asked = [Instruction.of(text) for text in table["prompt"]]
        said = respond(Transformers(lm), asked, settings.changed({"heads": heads}), journal)
        return {"pairs": make_pairs(chosen, said).table}

    inputs = {"model": lm.state, "run": run.artifact.key, "heads": digest(heads)}
    tables, artifact = MATCHED_PAIRS.obtain(config, inputs, make, compute=compute, command=command,
                                            model=lm.name, label=f"draw{config.seed}")
    return tables["pairs"], artifact
