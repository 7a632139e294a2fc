"""The Olmo 3 recipe without one of its parts: what is read in each step of a fine-tune.

Each arm changes the documents of the whole recipe in one way and nothing else; the plan is
`data/plans/olmo3_ablations.yml`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from rmutils.longcontext.extension import Document, ExtensionConfig, instances
from rmutils.longcontext.packing import Packing, best_fit, concatenate_and_split
from rmutils.models import LanguageModel
from rmutils.models.teaching import TeachingRecipe


@dataclass(frozen=True)
class Arm:
    """The recipe, or the recipe without a part.

    Attributes
    ----------
    label : str
        For figures.
    part : str
        What it leaves out, for sentences: without ...
    without : tuple of str
        Kinds of documents (`cwe`, `rex`) that lose their questions. What these leave is padding:
        no document moves to another instance.
    pack : callable
    isolated : bool
        Whether documents of an instance are masked from each other.
    """

    label: str
    part: str = ""
    without: tuple[str, ...] = ()
    pack: Callable[[Sequence[int], int], Packing] = best_fit
    isolated: bool = True


RECIPE = "recipe"
ARMS = {
    RECIPE: Arm("the whole recipe"),
    "no-rex": Arm("CWE alone", "REX", without=("rex",)),
    "natural": Arm("no questions", "CWE and REX", without=("cwe", "rex")),
    "split": Arm("concatenated and cut", "best fit", pack=concatenate_and_split),
    "unmasked": Arm("no masks", "masks between documents", isolated=False),
}
"""By their names in the plan."""


def arm_instances(
    lm: LanguageModel, recipe: TeachingRecipe, config: ExtensionConfig, arm: str
) -> list[list[Document]]:
    """Return the documents of each step of an arm, a key of `ARMS`.

    Unlike those of `instances`, long documents have no look-up questions behind them.
    """
    part = ARMS[arm]
    packed = [[one.without_questions() if one.kind in part.without else one for one in documents]
              for documents in instances(lm, recipe, config, look_ups=False, pack=part.pack)]
    return packed if part.isolated else [[_as_one(documents)] for documents in packed]


def _as_one(documents: Sequence[Document]) -> Document:
    """One document, in which each token sees all before it. The first of each has no loss, as in
    documents that are masked from each other."""
    return Document("several", [i for one in documents for i in one.ids],
                    [w for one in documents for w in (0.0, *one.weights[1:])])
