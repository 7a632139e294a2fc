"""Where the rejected responses come from: the paper's strategies (section 4.1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from rmutils.core.errors import UserError
from rmutils.core.results import Artifact, Compute
from rmutils.heads.masking import Policy
from rmutils.heads.scores import Head
from rmutils.models.language_model import without_thoughts
from rmutils.preference.instructions import Instruction
from rmutils.preference.judges import Judge, judge_stored
from rmutils.preference.pairs import Pairs, make_pairs
from rmutils.preference.responses import Backend, ResponseConfig, respond_stored


@dataclass(frozen=True)
class Strategy:
    """A way to come by rejected responses.

    Attributes
    ----------
    name : str
        As the paper prints it.
    policy : {"retrieval", "non-retrieval", "random"} or None
        Which heads are masked for the rejected side; None: none.
    objective : {"dpo", "sft"}
        What is trained on the pairs.
    reasoning : {"kept", "removed", "un-generated"}
        What becomes of chains of thought (section 4.5): responses have them where the model
        thinks, lose them, or are generated without.
    """

    name: str
    policy: Policy | None = None
    objective: str = "dpo"
    reasoning: Literal["kept", "removed", "un-generated"] = "kept"


STRATEGIES = {
    "retmask": Strategy("RetMask", "retrieval"),
    "smaller-model": Strategy("Smaller-Model"),
    "win-lose-pair": Strategy("Win-Lose-Pair"),
    "non-retrieval-mask": Strategy("Non-Retrieval-Mask", "non-retrieval"),
    "random-mask": Strategy("Random-Mask", "random"),
    "sft": Strategy("SFT", "retrieval", "sft"),
    "rc-removed": Strategy("RC removed", "retrieval", reasoning="removed"),
    "rc-un-generated": Strategy("RC un-generated", "retrieval", reasoning="un-generated"),
}
"""By name. SFT trains "on (x, y_w) only" of RetMask's "preference tuples" (appendix D). RC are the
reasoning contents of section 4.5."""
RELEASED = "longreward"
"""Section 4.3 trains on "the officially released dataset" of LongReward. Nothing is generated, so
it is none of `STRATEGIES`."""


def strategy_of(name: str) -> Strategy:
    """A strategy by the name of a run, released pairs among them."""
    return Strategy("LongReward") if name == RELEASED else STRATEGIES[name]


@dataclass(frozen=True)
class Contrast:
    """Pairs, and the stored results that they were made from."""

    pairs: Pairs
    artifacts: tuple[Artifact, ...]


def contrast(
    strategy: str, backend: Backend, instructions: Sequence[Instruction], config: ResponseConfig,
    *, heads: Sequence[Head] = (), other: Backend | None = None, judge: Judge | None = None,
    compute: Compute = "auto", command: str | None = None,
) -> Contrast:
    """Preference pairs by one of the strategies.

    All strategies share the chosen responses, those of the whole model; but for Win-Lose-Pair,
    which draws a second one of the same model, and where a judge tells which of both is chosen.

    Parameters
    ----------
    strategy : str
        One of `STRATEGIES`.
    backend : Backend
        The model. Section 3: "the model used for response generation is the same as the target
        model, by default"; appendix E trains on the pairs of another one.
    config : ResponseConfig
        Of the chosen side; its `heads` are to be empty.
    heads : sequence of (layer, head)
        What is masked for the rejected side, for the strategies with a `policy`.
    other : Backend, optional
        The smaller model, for Smaller-Model.
    judge : Judge, optional
        For Win-Lose-Pair.
    compute : {"auto", "always", "never"}
    command : str, optional
        The command line that makes these pairs, for the manifests.

    Raises
    ------
    UserError
        There is no such strategy, it lacks what it needs, or no pair is left.
    """
    if strategy not in STRATEGIES:
        raise UserError(f"no strategy is called {strategy!r}. Strategies: {', '.join(STRATEGIES)}.")
    needs = {"smaller-model": (other, "a smaller model"), "win-lose-pair": (judge, "a judge")}
    given, what = needs.get(strategy, (heads, "heads to mask"))
    if not given:
        raise UserError(f"the strategy {strategy} needs {what}.")
    stored = {"compute": compute, "command": command}
    one, two = sides(strategy, config, heads)
    chosen, first = respond_stored(backend, instructions, one, **stored)
    if strategy == "smaller-model":
        backend.close()  # a GPU has no room for the engines of both
        backend = other
    rejected, second = respond_stored(backend, instructions, two, **stored)
    if strategy == "win-lose-pair":
        backend.close()  # the judge may want the memory
        scores, judged = judge_stored(judge, chosen, rejected, **stored)
        return Contrast(_win_lose(chosen, rejected, scores), (first, second, judged))
    if STRATEGIES[strategy].reasoning == "removed":
        chosen, rejected = (side.assign(text=side["text"].map(without_thoughts))
                            for side in (chosen, rejected))
    return Contrast(make_pairs(chosen, rejected), (first, second))


def sides(
    strategy: str, config: ResponseConfig, heads: Sequence[Head] = ()
) -> tuple[ResponseConfig, ResponseConfig]:
    """How the responses of both sides of a strategy are sampled."""
    found = STRATEGIES[strategy]
    if found.reasoning == "un-generated":
        config = config.changed({"thinking": False})
    if strategy == "win-lose-pair":
        return config, config.changed({"seed": config.seed + 1})
    return config, config.changed({"heads": tuple(sorted(heads))}) if found.policy else config


def _win_lose(first: pd.DataFrame, second: pd.DataFrame, scores: pd.DataFrame) -> Pairs:
    """The better response of each two is chosen. Where there is no telling, there is no pair."""
    gap = (scores["first"] - scores["second"]).to_numpy()
    dropped = {"unscored": int(np.isnan(gap).sum()), "tie": int((gap == 0).sum())}
    better, worse = gap > 0, gap < 0
    pairs = make_pairs(pd.concat([first[better], second[worse]]).sort_index(),
                       pd.concat([second[better], first[worse]]).sort_index())
    return Pairs(pairs.table, pairs.dropped | {why: n for why, n in dropped.items() if n})
