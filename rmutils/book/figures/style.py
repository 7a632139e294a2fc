"""One look for all figures, and the data that each carries."""

from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

import matplotlib as mpl
import numpy as np
import pandas as pd
from IPython import get_ipython
from IPython.core.pylabtools import print_figure
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.category import StrCategoryLocator
from matplotlib.collections import (
    Collection,
    LineCollection,
    PathCollection,
    PolyCollection,
    QuadMesh,
)
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator
from matplotlib_inline.backend_inline import set_matplotlib_formats

from rmutils.core.files import to_csv

INK = "#222832"
"""Colour of text, axes and lines without one of their own: that of the theme's text."""
BLUE, ORANGE, GREEN, RED, PURPLE, GREY = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#6B6B6B")

WIDTH = 7.6
"""Inches of every figure: that of the book's text, where a label of 9 points is as large as one."""
PHONE = 4.3
"""Inches of a figure that is drawn a second time for a phone."""
FOR_A_PHONE: WeakKeyDictionary[Figure, Figure] = WeakKeyDictionary()
"""The second drawing of each figure that has one."""

MODEL_COLOURS = {
    "smollm2-135m": BLUE,
    "Llama-3.1-8B-Instruct": ORANGE,
    "tiny-llama": ORANGE,  # a family has one colour
    "Qwen3-8B": GREEN,
    "tiny-qwen3": GREEN,
    "qwen2.5-coder-0.5b": GREEN,
    "qwen2.5-coder-1.5b": GREEN,
    "gemma3-270m": PURPLE,
    "Olmo-3-7B-Think": PURPLE,
    "Olmo-3-7B-Instruct": RED,
    "tiny-olmo3": RED,
}
CALLED = {"smollm2-135m": "SmolLM2", "gemma3-270m": "Gemma", "qwen2.5-coder-0.5b": "Qwen-0.5B",
          "qwen2.5-coder-1.5b": "Qwen-1.5B"}
"""What prose and figures call a model; others by their names."""
SEQUENTIAL = "cividis"

PALE = "#D3D9E0"
"""For what stands beside the message."""
FAINT = "#F1F3F5"
"""For what says least."""
ON_DARK = {INK: "#CED6DD", GREY: "#9CA4AF", BLUE: "#56B4E9", PALE: "#3C454F", FAINT: "#242A31"}
"""Colours on a dark page: the theme's own text, and Okabe and Ito's sky blue. The
others are bright enough as they are; black and white stay, for they stand on colours."""
ON_DEEP, ON_BRIGHT = "#FDFDFD", "#12171D"
"""Letters on bars: on colours that get brighter on a dark page, and on those that are bright."""
ON_DARK[ON_DEEP] = ON_BRIGHT
DARK_PAPER = "#121212"
"""The theme's own dark ground."""


def use_style() -> None:
    """Set the book's look for all figures of this process; in a notebook they become SVG, which
    carries its data."""
    ipython = get_ipython()
    if ipython is not None:
        set_matplotlib_formats("svg")
        ipython.display_formatter.formatters["image/svg+xml"].for_type(Figure, to_svg)
        ipython.display_formatter.mimebundle_formatter.for_type(Figure, carried)
    mpl.rcParams.update({
        "figure.figsize": (WIDTH, 3.6), "figure.constrained_layout.use": True,
        "figure.facecolor": "white", "savefig.facecolor": "white", "axes.facecolor": "none",
        "font.size": 10, "axes.titlesize": 10, "axes.spines.top": False,
        "axes.spines.right": False, "legend.frameon": False,
        "svg.hashsalt": "rmutils", "svg.fonttype": "path",
        **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "axes.titlecolor",
                         "xtick.color", "ytick.color"), INK),
    })


def to_svg(figure: Figure) -> str:
    """The figure as SVG that looks right on a light page and on a dark one."""
    rules = [f"#patch_1 > path {{ fill: {DARK_PAPER} !important }}",  # the ground of the figure
             *(f'[style*="{what}: {light.lower()}"] {{ {what}: {dark} !important }}'
               for light, dark in ON_DARK.items() for what in ("fill", "stroke"))]
    dark = f"@media (prefers-color-scheme: dark) {{ {' '.join(rules)} }}"
    return print_figure(figure, "svg", bbox_inches=None).replace("</style>", f"{dark}</style>", 1)


def colour_of(model: str) -> str:
    """The colour of a model in the whole book; grey for one without a colour of its own."""
    return MODEL_COLOURS.get(model, GREY)


def on(colour: str) -> str:
    """The colour of letters on a bar, readable on both pages."""
    return {PALE: INK, FAINT: INK, BLUE: ON_DEEP, GREY: ON_DEEP}.get(colour, ON_BRIGHT)


def new_axes(height: float = 3.6, rows: int = 1, columns: int = 1, *, width: float = WIDTH,
             flat: bool = False, squeeze: bool = True, **kwargs: Any) -> tuple[Figure, Any]:
    """A figure and its axes, without pyplot: a notebook then shows it once, where it is named.
    `flat`: All axes in one array, a single one, too."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=squeeze and not flat, **kwargs)
    return figure, axes.ravel() if flat else axes


def legend_above(figure: Figure, axes: Axes, columns: int, **how: Any) -> None:
    """Name the lines of a panel above all panels."""
    figure.legend(*axes.get_legend_handles_labels(), ncols=columns, loc="outside upper center",
                  fontsize=9, **how)


COLUMNS = ["panel", "horizontal", "vertical", "mark", "number", "series", "colour", "x", "x name",
           "y", "y name", "x to", "y to", "value"]
MOST_CELLS = 2_000
"""Cells listed of a larger map, those with the highest values: maps of attention
have hundreds of thousands, nearly all close to 0."""


def with_intervals(axes: Axes, x: pd.Series, table: pd.DataFrame, **how: Any) -> None:
    """Draw the column `value` over x, with bars from `low` to `high`."""
    errors = np.abs(table[["low", "high"]].to_numpy().T - table["value"].to_numpy())
    axes.errorbar(x, table["value"], yerr=errors, **how)


def drawn_data(figure: Figure) -> pd.DataFrame:
    """The data of all that is drawn inside of a figure's panels, whatever it was drawn from."""
    panels = [axes for axes in figure.axes if axes.get_label() != "<colorbar>"]
    rows = [{"panel": axes.get_title() or str(i), "horizontal": axes.get_xlabel(),
             "vertical": axes.get_ylabel(), "number": number, **row}
            for i, axes in enumerate(panels, 1)
            for number, artist in enumerate([  # without its own parts: spines, ticks, legend
                *axes.lines, *axes.collections, *axes.patches, *axes.images, *axes.texts], 1)
            for row in _rows(axes, artist)]
    frame = pd.DataFrame(rows, columns=COLUMNS)
    return frame.dropna(axis="columns", how="all")


def carried(figure: Figure) -> tuple[dict, dict]:
    """The output of a figure in a notebook, besides the picture: its data as CSV, and the picture
    for a phone."""
    data = drawn_data(figure)
    beside = {} if data.empty else {"csv": to_csv(data)}
    if figure in FOR_A_PHONE:
        beside["phone"] = to_svg(FOR_A_PHONE[figure])
    return {}, {"rmutils": beside} if beside else {}


def _rows(axes: Axes, artist: Artist) -> Iterator[dict]:
    common = {"series": _name(axes, artist), "colour": _colour(artist)}
    for row in _points(artist):
        yield common | row | {"x name": _place(axes.xaxis, row["x"]),
                              "y name": _place(axes.yaxis, row["y"])}


def _points(artist: Artist) -> Iterator[dict]:
    match artist:
        case Line2D():
            mark = "line" if artist.get_linestyle() != "None" else "point"
            x, y = artist.get_data(orig=False)
            yield from ({"mark": mark, "x": a, "y": b} for a, b in zip(x, y, strict=True))
        case PathCollection():  # of a scatter plot
            yield from ({"mark": "point", "x": a, "y": b} for a, b in artist.get_offsets())
        case LineCollection():
            for ends in filter(len, artist.get_segments()):  # one with a gap in it has no points
                (x, y), (x_to, y_to) = ends[0], ends[-1]
                yield {"mark": "span", "x": x, "y": y, "x to": x_to, "y to": y_to}
        case PolyCollection():  # of a filled stretch between two lines
            yield from ({"mark": "area", "x": a, "y": b} for path in artist.get_paths()
                        for a, b in path.vertices)
        case Rectangle():
            yield {"mark": "box", "x": artist.get_x(), "y": artist.get_y(),
                   "x to": artist.get_x() + artist.get_width(),
                   "y to": artist.get_y() + artist.get_height()}
        case AxesImage() | QuadMesh() if np.ndim(artist.get_array()) == 2:  # begins at 0, 0
            cells = np.ma.filled(np.ma.asarray(artist.get_array(), dtype=float), np.nan)
            highest = np.sort(np.argsort(-cells, axis=None, kind="stable")[:MOST_CELLS])
            yield from ({"mark": "cell", "x": x, "y": y, "value": cells[y, x]} for y, x in
                        zip(*np.unravel_index(highest, cells.shape), strict=True))
        case Text():
            x, y = getattr(artist, "xy", artist.get_position())
            yield {"mark": "text", "series": artist.get_text(), "x": x, "y": y}


def _name(axes: Axes, artist: Artist) -> str | None:
    """Its own label, or that of the plot that it is a part of, such as a line with error bars."""
    whole = [c for c in axes.containers if artist in _parts(c)]
    label = str((whole[0] if whole else artist).get_label())
    return None if label.startswith("_") else label


def _place(axis: Axis, place: float) -> str | None:
    """The name of the tick beside it, of an axis whose ticks were given names."""
    if not isinstance(axis.get_major_locator(), FixedLocator | StrCategoryLocator):
        return None
    ticks = axis.get_majorticklocs()
    names = list(map(str, axis.get_major_formatter().format_ticks(ticks)))
    if all(name.replace(",", "").replace("\u2212", "-") in (f"{tick:g}", f"{tick:.1f}")
           for tick, name in zip(ticks, names, strict=True)):
        return None  # they are numbers on a scale
    distance, nearest = min(zip(np.abs(np.subtract(ticks, place)), names, strict=True))
    return nearest if distance <= 0.5 else None


def _parts(container: tuple) -> list[Artist]:
    if isinstance(container, Artist):
        return [container]
    return [part for inner in container if inner is not None for part in _parts(inner)]


def _colour(artist: Artist) -> str | None:
    if isinstance(artist, Collection):
        colours = [*artist.get_facecolor(), *artist.get_edgecolor()]
        return to_hex(colours[0]) if colours else None
    if isinstance(artist, Rectangle):
        return to_hex(artist.get_facecolor() if artist.get_fill() else artist.get_edgecolor())
    return to_hex(artist.get_color()) if isinstance(artist, Line2D | Text) else None
