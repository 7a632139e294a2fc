"""Retrieval scores of all heads: means, intervals, selections, files."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from rmutils.core.errors import UserError
from rmutils.core.validation import Count, Heads, checked
from rmutils.heads.score_files import Format, check_parts, read, write
from rmutils.stats import LEVEL, RESAMPLES, SHARE, Bounds, Interval, draws, interval, interval_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from rmutils.models import LanguageModel

Head = tuple[int, int]  # (layer, head)
Values = NDArray[np.float64]

DECIMALS = 9
"""Means are rounded to these before they meet a threshold or a rank: sums of k/n are inexact."""


@dataclass(frozen=True, eq=False)
class HeadScores:
    """Retrieval scores of every head in every successful run.

    Attributes
    ----------
    runs : ndarray of float64
        (successful runs, layers, heads): of the kind `copy`, the share of the needle that a head
        copied (Equation 1).
    model : str
        The model's name.
    clusters : ndarray of int, optional
        (successful runs,): which runs belong together, here the needle. Runs of one needle are
        alike, so the bootstrap draws whole needles. Without it, it draws runs.
    cases : DataFrame
        One row per case of the grid, failed ones included: `case`, `needle`, `length`, `depth`,
        `success`, `rouge` (recall of the answer, 0 to 1), `recall` (what it counts: ROUGE-1, words
        or character pairs), `response`. Empty if unknown.
    score : str
        The kind of score: `copy`, `locos` and so on (`DetectConfig.score`).
    about : mapping
        What else is known and JSON can hold: `weights` (the model's identity), `grid` (the
        configuration of the detection).

    Layers without attention (of hybrids) have no heads: their scores are NaN, they are never chosen
    and left out of statistics. There may be no successful run: then `cases` says what was answered,
    and everything that needs a score raises `UserError`.

    Examples
    --------
    >>> import numpy as np
    >>> from rmutils import HeadScores
    >>> runs = np.zeros((6, 1, 3))  # six needles, one layer of three heads
    >>> runs[:, 0, 1], runs[:, 0, 2] = [0.5, 0.6, 0.7, 0.6, 0.4, 0.8], 0.125
    >>> scores = HeadScores(runs, "a model", clusters=np.arange(6))
    >>> scores.mean
    array([[0.   , 0.6  , 0.125]])
    >>> scores.interval(0.95)[0, 1].round(1)
    array([0.5, 0.7])
    >>> scores.select(tau=0.1)
    [(0, 1), (0, 2)]
    """

    runs: np.ndarray
    model: str
    clusters: np.ndarray | None = None
    cases: pd.DataFrame = field(default_factory=pd.DataFrame)
    score: str = "copy"
    about: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        try:
            runs = np.asarray(self.runs, dtype=np.float64)
        except (TypeError, ValueError):
            raise UserError(f"{self.model}: runs are no numbers, (runs, layers, heads).") from None
        object.__setattr__(self, "runs", runs)
        if self.clusters is not None:
            object.__setattr__(self, "clusters", np.asarray(self.clusters))
        check_parts(self.model, runs, self.clusters, self.cases)

    def __repr__(self) -> str:
        of = f" of {len(self.cases)} cases" if len(self.cases) else ""
        return (f"HeadScores({self.model}, {self.score}: {self.shape[0]} layers x {self.shape[1]} "
                f"heads, {len(self.runs)} successful runs{of})")

    @property
    def shape(self) -> tuple[int, int]:
        """(layers, heads)."""
        return self.runs.shape[1], self.runs.shape[2]

    @cached_property
    def mean(self) -> np.ndarray:
        """(layers, heads) float64: RetrievalScore(h), the mean over successful runs.

        Raises
        ------
        UserError
            There is no successful run.
        """
        if not len(self.runs):
            raise UserError(f"{self.model}: no successful run, so there is no score. A model that "
                            f"never finds the needle has no retrieval heads to be seen. `.cases` "
                            f"has its answers.")
        return np.asarray(self.runs.mean(0))

    @property
    def success_rate(self) -> Interval:
        """Share of the cases in which the needle was found, 0 to 1, with its 95 % interval over
        needles (NaN from a single needle). Needs `cases`."""
        if "needle" not in self.cases:
            raise UserError(f"{self.model}: the cases of these scores are not known.")
        return interval(self.cases["success"], self.cases["needle"], bounds=SHARE)

    def draws(self, *, resamples: int = RESAMPLES, seed: int = 0,
              level: float = LEVEL) -> np.ndarray:
        """Return the map of means, followed by draws of it: (1 + resamples, layers, heads).

        Whole clusters are drawn, and all heads together, so that statistics over heads are right.
        See `rmutils.stats.draws`; no score is drawn below 0 or above 1, unless a run's is.
        """
        if not len(self.runs):
            return self.mean[None]  # says that there is none
        drawn = draws(self.runs, self.clusters, resamples=resamples, seed=seed, level=level)
        return np.clip(drawn, min(0.0, np.nanmin(self.runs)), max(1.0, np.nanmax(self.runs)))

    @property
    def layers(self) -> list[int]:
        """The layers that have heads; all of them if there is no successful run."""
        return [i for i in range(self.shape[0]) if not np.isnan(self.runs[:, i]).any()]

    @property
    def heads(self) -> list[Head]:
        """All heads, in the order of layer and head."""
        return [(layer, head) for layer in self.layers for head in range(self.shape[1])]

    @checked
    def interval(self, level: float = LEVEL, *, resamples: int = RESAMPLES,
                 seed: int = 0) -> np.ndarray:
        """Return the interval of each mean, (layers, heads, 2); NaN from a single cluster.

        Raises
        ------
        UserError
            The level is not between 0 and 1.
        """
        if not 0 < level < 1:
            raise UserError(f"level={level:g}: a share is expected, such as 0.95.")
        return np.stack(interval_of(self.draws(
            resamples=resamples, seed=seed, level=level), level=level)[1:], axis=-1)

    @checked
    def statistic(self, function: Callable[[np.ndarray], np.ndarray], *, bounds: Bounds = SHARE,
                  resamples: int = RESAMPLES, seed: int = 0) -> Interval:
        """Return a number about the whole map of means, with its 95 % interval.

        Parameters
        ----------
        function : callable
            From maps (..., layers, heads), rounded to `DECIMALS`, to a number for each.
        """
        drawn = self.draws(resamples=resamples, seed=seed).round(DECIMALS)[:, self.layers]
        values = np.asarray(function(drawn), dtype=float)
        values[np.isnan(drawn).any((1, 2))] = np.nan
        return interval_of(values, bounds=bounds, centred=True)

    @checked
    def where(self, chosen: Sequence[bool] | np.ndarray | pd.Series) -> HeadScores:
        """Return the scores of some of the cases only.

        Parameters
        ----------
        chosen : sequence of bool
            One per row of `cases`.

        Raises
        ------
        UserError
            There are more or fewer of them, or other things than bools.
        """
        chosen = np.asarray(chosen)
        if chosen.dtype != bool or chosen.shape != (len(self.cases),):
            raise UserError(f"chosen: expected true or false for each of {len(self.cases)} cases, "
                            f"got {chosen.size} of type {chosen.dtype}.")
        runs = chosen[self.cases["success"].to_numpy()]
        clusters = None if self.clusters is None else self.clusters[runs]
        return replace(self, runs=self.runs[runs], clusters=clusters, cases=self.cases[chosen])

    def ranking(self) -> list[Head]:
        """Return all heads, highest mean first; ties in the order of layer and head.

        Means are rounded as in `select`: else the last bits of a sum would decide a tie.
        """
        order = np.argsort(-self.mean.ravel().round(DECIMALS), kind="stable")  # NaN comes last
        return [divmod(int(i), self.shape[1]) for i in order[: len(self.heads)]]

    @checked
    def select(self, *, tau: float | None = None, top_k: int | None = None) -> list[Head]:
        """Return retrieval heads, highest first: with a mean of at least `tau`, or the `top_k`.

        Raises
        ------
        UserError
            No head reaches `tau`, or there are not `top_k` heads.
        """
        if (tau is None) == (top_k is None):
            raise UserError(f"tau={tau} and top_k={top_k}: give one of the two.")
        ranking = self.ranking()
        if top_k is not None:
            if not 0 < top_k <= len(ranking):
                raise UserError(f"top_k={top_k}: {self.model} has {len(ranking)} heads.")
            return ranking[:top_k]
        chosen = [head for head in ranking if self.mean[head].round(DECIMALS) >= tau]
        if not chosen:
            layer, head = ranking[0]
            raise UserError(f"no head of {self.model} reaches tau={tau:g}: the highest is layer "
                            f"{layer}, head {head} with {self.mean[ranking[0]]:.3f}.")
        return chosen

    @checked
    def select_random(self, count: int, *, exclude: Heads = (), seed: int = 42,
                      published: bool = False) -> list[Head]:
        """Draw `count` random heads; with `exclude` the paper's Non-Retrieval-Mask (section 4.1).

        The seed 42 is that of the authors' `mask_retrieval_head.py`. With `published` the heads are
        drawn as there, too: Python's `random.randrange` for layer and head, until there are enough.
        """
        excluded = set(exclude)
        pool = [head for head in self.heads if head not in excluded]
        if count > len(pool):
            raise UserError(f"{count} random heads asked for, but only {len(pool)} to draw from.")
        if published:
            drawn_from, found = random.Random(seed), set[Head]()
            while len(found) < count:
                layer, head = map(drawn_from.randrange, self.shape)
                found |= {(layer, head)} & {*pool}
            return sorted(found)
        drawn = np.random.default_rng(seed).choice(len(pool), size=count, replace=False)
        return sorted(pool[i] for i in drawn)

    @checked
    def plot(self, *, tau: float | None = None, axes: Axes | None = None) -> Figure:
        """Draw the mean score of every head as a map.

        Parameters
        ----------
        tau : float, optional
            Heads with at least this score are outlined.
        axes : matplotlib.axes.Axes, optional
            Where to draw. Default: a figure of its own.

        Examples
        --------
        >>> import numpy as np
        >>> from rmutils import HeadScores
        >>> figure = HeadScores(np.array([[[0.0, 0.5], [0.1, 0.2]]]), "a model").plot(tau=0.2)
        >>> [axes.get_xlabel() for axes in figure.axes], len(figure.axes[0].patches)
        (['layer', ''], 2)
        """
        from matplotlib.figure import Figure
        from matplotlib.patches import Rectangle
        from matplotlib.ticker import MaxNLocator

        values = self.mean.T  # layers go across the page
        if axes is None:
            axes = Figure(figsize=(7.6, 1.1 + 0.24 * len(values)), layout="constrained").subplots()
        figure = cast(Figure, axes.get_figure(root=True))
        rows, columns = map(np.arange, values.shape)
        axes.invert_yaxis()
        mesh = axes.pcolormesh(  # shapes; without edges, gaps shine through
            columns, rows, values, cmap="cividis", vmin=min(0, np.nanmin(values)),
            vmax=max(0, np.nanmax(values)), edgecolor="face", linewidth=0.3)
        for layer, head in self.select(tau=tau) if tau is not None else ():
            axes.add_patch(Rectangle((layer - 0.5, head - 0.5), 1, 1, fill=False, ec="#e69f00",
                                     lw=1.4))
        axes.set(xlabel="layer", ylabel="head")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(MaxNLocator(integer=True))
        scale = figure.colorbar(mesh, label=f"retrieval score ({self.score})", pad=0.01)
        cast(Any, scale.solids).set(rasterized=False, edgecolor="face")
        return figure

    @checked
    def save(self, path: Path | str, format: Format = "rmutils", *,
             key_heads: Count | None = None) -> Path:
        """Write the scores to a file, for `load` and for others.

        Parameters
        ----------
        format : {"rmutils", "wu", "qrhead", "duo"}
            `rmutils`: a versioned JSON with all runs and cases, model, grid, means and intervals;
            LOCOS reads it, too. The others are those of Wu et al. and RetMask, QRHead, and
            DuoAttention (see `rmutils.heads.score_files`). What they have no place for is lost; a
            warning says so.
        key_heads : int, optional
            For `duo`: key heads per layer. The highest mean of the query heads that share a key
            head becomes its gate.

        Raises
        ------
        UserError
            It cannot be written, or not in this format.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from rmutils import HeadScores
        >>> scores = HeadScores(np.zeros((2, 1, 3)), "a model", clusters=np.array([0, 1]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     HeadScores.load(scores.save(f"{folder}/scores.json"))
        HeadScores(a model, copy: 1 layers x 3 heads, 2 successful runs)
        """
        named = {one.name: getattr(self, one.name) for one in fields(self)}
        intervals = self.interval() if format == "rmutils" and len(self.runs) else None
        write(Path(path), named, intervals, format, key_heads)
        return Path(path)

    @classmethod
    @checked
    def load(cls, path: Path | str, lm: LanguageModel | str | None = None, *,
             shape: tuple[int, int] | None = None, query_heads: Count | None = None,
             score: str | None = None) -> HeadScores:
        """Read scores that `save` wrote, or LOCOS, or a detection that is stored.

        Parameters
        ----------
        path : Path or str
            A file; or the folder or the name of a stored detection (`stored_results`).
        lm : LanguageModel or str, optional
            The model that the scores are meant for, or its name or folder.
        shape : tuple of int, optional
            (layers, heads) of that model, where it is not loaded.
        query_heads : int, optional
            Query heads of a layer, for gates of key heads (`duo`) where neither says it.
        score : str, optional
            Of a stored run that gave several kinds. Default: `copy`.

        Raises
        ------
        UserError
            It is not there, of another kind, version or model, a head is missing or not finite; or
            it is not said how many query heads share a key head.
        """
        weights = ""
        if lm is not None:
            from rmutils.models.loading import ModelRef  # torch: only when it is needed

            shape, weights = (lm := ModelRef(lm).load()).shape, lm.identity
        return cls(**read(path, shape=shape, weights=weights, query_heads=query_heads, kind=score))

    def to_wu_json(self, path: Path | str) -> None:
        """Write the format of Wu et al. and RetMask: {"layer-head": [score of each run]}.

        It has no place for the model's name, the cases, and which runs belong to one needle, which
        intervals need: a warning says so where they are known. `save` keeps them.

        Examples
        --------
        >>> import tempfile
        >>> import numpy as np
        >>> from rmutils import HeadScores
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     HeadScores(np.array([[[0.0, 0.5]]]), "a model").to_wu_json(f"{folder}/scores.json")
        ...     print(open(f"{folder}/scores.json").read())
        ...     HeadScores.from_wu_json(f"{folder}/scores.json", shape=(1, 2)).select(top_k=1)
        {"0-0": [0.0], "0-1": [0.5]}
        [(0, 1)]
        """
        self.save(path, "wu")

    @classmethod
    def from_wu_json(cls, path: Path | str, *, shape: tuple[int, int] | None = None) -> HeadScores:
        """Read scores as `load` does, of Wu et al. and RetMask, say."""
        return cls.load(path, shape=shape)
