"""One look for all figures. Colours are Okabe and Ito's, which the colour-blind can tell apart."""

from __future__ import annotations

import matplotlib as mpl
from IPython import get_ipython
from IPython.core.pylabtools import print_figure
from matplotlib.figure import Figure
from matplotlib_inline.backend_inline import set_matplotlib_formats

from rmutils.figures.drawn import carried

INK = "#222832"
"""Colour of text, axes and lines without one of their own: that of the theme's text."""
BLUE, ORANGE, GREEN, RED, PURPLE, GREY = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#6B6B6B")

WIDTH = 7.6
"""Inches of every figure: that of the book's text, where a label of 9 points is as large as one."""

MODEL_COLOURS = {
    "smollm2-135m": BLUE,
    "Llama-3.1-8B-Instruct": ORANGE,
    "tiny-llama": ORANGE,  # a family has one colour
    "Qwen3-8B": GREEN,
    "tiny-qwen3": GREEN,
    "Olmo-3-7B-Think": PURPLE,
    "Olmo-3-7B-Instruct": RED,
    "tiny-olmo3": RED,
}
SEQUENTIAL = "cividis"

ON_DARK = {INK: "#CED6DD", GREY: "#9CA4AF", BLUE: "#56B4E9"}
"""Colours on a dark page: the theme's own text, and Okabe and Ito's sky blue. The
others are bright enough as they are; black and white stay, for they stand on colours."""
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
    """The figure as SVG that looks right on a light page and on a dark one.

    Within an SVG picture, `prefers-color-scheme` is the `color-scheme` of the page around it, which
    the theme's switch sets. Where a browser asks the reader's system instead, the figure may differ
    from the page, but is readable: its ground changes with its ink.
    """
    rules = [f"#patch_1 > path {{ fill: {DARK_PAPER} !important }}",  # the ground of the figure
             *(f'[style*="{what}: {light.lower()}"] {{ {what}: {dark} !important }}'
               for light, dark in ON_DARK.items() for what in ("fill", "stroke"))]
    dark = f"@media (prefers-color-scheme: dark) {{ {' '.join(rules)} }}"
    return print_figure(figure, "svg", bbox_inches=None).replace("</style>", f"{dark}</style>", 1)


def colour_of(model: str) -> str:
    """The colour of a model in the whole book; grey for one without a colour of its own."""
    return MODEL_COLOURS.get(model, GREY)


def new_axes(*, columns: int = 1, size: tuple[float, float] | None = None, **kwargs):
    """A figure and its axes, without pyplot: a notebook then shows it once, where it is named."""
    figure = Figure(figsize=size)
    return figure, figure.subplots(1, columns, **kwargs)
