"""Where the rejected responses come from: the paper's strategies (section 4.1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, TypeVar

import numpy as np
import pandas as pd

from rmutils.core.errors import UserError
from rmutils.core.registry import Registry
from rmutils.core.results import Artifact, Compute
from rmutils.core.validation import checked
from rmutils.heads.masking import choose
from rmutils.heads.scores import Head, HeadScores
from rmutils.models import LanguageModel
from rmutils.models.language_model import without_thoughts
from rmutils.preference.instructions import Instruction
from rmutils.preference.judges import Judge, judge_stored
from rmutils.preference.pairs import Pairs, longreward_pairs, make_pairs
from rmutils.preference.responses import Backend, ResponseConfig, respond_stored


@dataclass(frozen=True)
class Strategy:
    """A way to come by rejected responses; what it does is said here and nowhere else."""

    name: str  # as the paper prints it
    # Which heads are masked for the rejected side; None: none. A subclass with a `choose_heads` of
    # its own may name another one.
    policy: str | None = None
    objective: Literal["dpo", "sft"] = "dpo"  # what is trained on the pairs
    # What becomes of chains of thought (section 4.5): responses have them where the model thinks,
    # lose them, or are generated without.
    reasoning: Literal["kept", "removed", "un-generated"] = "kept"
    smaller: bool = False  # a smaller model gives the rejected responses
    judged: bool = False  # a judge rates the responses of both sides before they become pairs
    # Reads pairs that others have published, from a model, a count and a seed; nothing is generated
    # then.
    released: Callable[[LanguageModel, int, int], Pairs] | None = None

    def choose_heads(self, scores: HeadScores, *, tau: float | None = None,
                     top_k: int | None = None, seed: int = 42) -> list[Head]:
        """The heads to mask for the rejected side; none where there is no `policy`."""
        if self.policy is None:
            return []
        return choose(scores, self.policy, tau=tau, top_k=top_k, seed=seed)

    def sides(self, config: ResponseConfig, heads: Sequence[Head] = ()) -> tuple[
            ResponseConfig, ...]:
        """How the responses of the chosen and the rejected side are sampled."""
        if self.released:
            return ()
        if self.reasoning == "un-generated":
            config = config.changed({"thinking": False})
        masked = config.changed({"heads": tuple(sorted(heads))}) if self.policy else config
        return config, masked

    def pairs(self, chosen: pd.DataFrame, rejected: pd.DataFrame,
              ratings: pd.DataFrame | None = None) -> Pairs:
        """Make pairs of the responses of both sides, and of a judge's ratings, if it is asked."""
        if self.reasoning == "removed":
            chosen, rejected = (side.assign(text=side["text"].map(without_thoughts))
                                for side in (chosen, rejected))
        return make_pairs(chosen, rejected)


@dataclass(frozen=True)
class WinLosePair(Strategy):
    """Two responses of the same model: the better one is chosen. Ties make no pair."""

    judged: bool = True

    def sides(self, config: ResponseConfig, heads: Sequence[Head] = ()) -> tuple[
            ResponseConfig, ...]:
        """The second response has another seed."""
        return config, config.changed({"seed": config.seed + 1})

    def pairs(self, chosen: pd.DataFrame, rejected: pd.DataFrame,
              ratings: pd.DataFrame | None = None) -> Pairs:
        """The response with the higher rating is chosen."""
        gap = (ratings["first"] - ratings["second"]).to_numpy()
        dropped = {"unscored": int(np.isnan(gap).sum()), "tie": int((gap == 0).sum())}
        better, worse = gap > 0, gap < 0
        pairs = make_pairs(pd.concat([chosen[better], rejected[worse]]).sort_index(),
                           pd.concat([rejected[better], chosen[worse]]).sort_index())
        return Pairs(pairs.table, pairs.dropped | {why: n for why, n in dropped.items() if n})


STRATEGIES: Registry[Strategy] = Registry("strategy", "rmutils.strategies")
"""By name. The layer-matched masks are ours. SFT trains "on (x, y_w) only" of RetMask's "preference
tuples" (appendix D). RC are the reasoning contents of section 4.5. Section 4.3 trains on "the
officially released dataset" of LongReward."""
for _name, _strategy in {
    "retmask": Strategy("RetMask", "retrieval"),
    "smaller-model": Strategy("Smaller-Model", smaller=True),
    "win-lose-pair": WinLosePair("Win-Lose-Pair"),
    "non-retrieval-mask": Strategy("Non-Retrieval-Mask", "non-retrieval"),
    "random-mask": Strategy("Random-Mask", "random"),
    "layer-matched-non-retrieval-mask": Strategy(
        "Non-Retrieval-Mask, layer-matched", "layer-matched-non-retrieval"),
    "layer-matched-random-mask": Strategy("Random-Mask, layer-matched", "layer-matched-random"),
    "sft": Strategy("SFT", "retrieval", "sft"),
    "rc-removed": Strategy("RC removed", "retrieval", reasoning="removed"),
    "rc-un-generated": Strategy("RC un-generated", "retrieval", reasoning="un-generated"),
    "longreward": Strategy("LongReward", released=longreward_pairs),
}.items():
    STRATEGIES.add(_name, _strategy)


T = TypeVar("T", bound=Callable[..., list[Head]])


@dataclass(frozen=True)
class ChosenHeads(Strategy):
    """Heads chosen by a function are masked for the rejected side."""

    policy: str | None = "own"
    _: KW_ONLY
    function: Callable[..., list[Head]]

    def choose_heads(self, scores: HeadScores, *, tau: float | None = None,
                     top_k: int | None = None, seed: int = 42) -> list[Head]:
        return self.function(scores, tau=tau, top_k=top_k, seed=seed)


@checked
def register_strategy(name: str, title: str = "", **fields: Any) -> Callable[[T], T]:
    """Return a decorator that makes a choice of heads a strategy for rejected responses.

    `rmutils retmask MODEL --strategy name` then masks the heads that the function chooses. Other
    kinds of strategies subclass `rmutils.preference.strategies.Strategy`.

    The decorated function is called with the scores and, by name, with `tau` or `top_k`, whichever
    is asked for (the other is None), and `seed`. It returns a list of (layer, head).

    Parameters
    ----------
    name, title : str
        For commands, and for readers.
    **fields
        Further fields of `Strategy`: `objective="sft"`, `reasoning="removed"`, ...

    Examples
    --------
    >>> import numpy as np
    >>> from rmutils import HeadScores, register_strategy
    >>> @register_strategy("weakest-heads")
    ... def weakest(scores, *, tau, top_k, seed):
    ...     count = len(scores.select(tau=tau, top_k=top_k))
    ...     return scores.ranking()[-count:]
    >>> scores = HeadScores(np.array([[[0.0, 0.5, 0.2]]]), "a model")
    >>> STRATEGIES["weakest-heads"].choose_heads(scores, tau=0.2)
    [(0, 2), (0, 0)]
    """
    def add(function: T) -> T:
        STRATEGIES.add(name, ChosenHeads(title or name, function=function, **fields))
        return function

    return add


@dataclass(frozen=True)
class Contrast:
    """Pairs, and the stored results that they were made from."""

    pairs: Pairs
    artifacts: tuple[Artifact, ...]


def contrast(strategy: str, backend: Backend, instructions: Sequence[Instruction],
             config: ResponseConfig, *, heads: Sequence[Head] = (), other: Backend | None = None,
             judge: Judge | None = None, compute: Compute = "auto",
             command: str | None = None) -> Contrast:
    """Preference pairs by one of the strategies that read no released pairs. `config` is of the
    chosen side; `heads`, `other` and `judge` are for strategies with `policy`, `smaller`, `judged`.
    Section 3: "the model used for response generation is the same as the target model, by default".
    """
    found = STRATEGIES[strategy]
    if found.released:
        raise UserError(f"the strategy {strategy} reads released pairs; nothing is generated.")
    for needed, given, what in ((found.policy, heads, "heads to mask"),
                                (found.smaller, other, "a smaller model"),
                                (found.judged, judge, "a judge")):
        if needed and not given:
            raise UserError(f"the strategy {strategy} needs {what}.")
    stored = {"compute": compute, "command": command}
    one, two = found.sides(config, heads)
    chosen, *made = respond_stored(backend, instructions, one, **stored)
    if found.smaller:
        backend.close()  # a GPU has no room for the engines of both
        backend = other
    rejected, artifact = respond_stored(backend, instructions, two, **stored)
    made.append(artifact)
    ratings = None
    if found.judged:
        backend.close()  # the judge may want the memory
        ratings, artifact = judge_stored(judge, chosen, rejected, **stored)
        made.append(artifact)
    return Contrast(found.pairs(chosen, rejected, ratings), tuple(made))
