"""One look for all figures. Colours are Okabe and Ito's, which the colour-blind can tell apart."""

from __future__ import annotations

import matplotlib as mpl
from IPython import get_ipython
from matplotlib.figure import Figure
from matplotlib_inline.backend_inline import set_matplotlib_formats

BLUE, ORANGE, GREEN, RED, PURPLE, GREY = (
    "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#6B6B6B")

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


def use_style() -> None:
    """Set the book's look for all figures of this process; in a notebook they become SVG."""
    if get_ipython() is not None:
        set_matplotlib_formats("svg")
    mpl.rcParams.update({
        "figure.figsize": (5.8, 3.6), "figure.constrained_layout.use": True,
        "figure.facecolor": "white", "savefig.facecolor": "white",
        "font.size": 10, "axes.titlesize": 10, "axes.spines.top": False,
        "axes.spines.right": False, "legend.frameon": False,
        "svg.hashsalt": "rmutils", "svg.fonttype": "path",
    })


def colour_of(model: str) -> str:
    """The colour of a model in the whole book; grey for one without a colour of its own."""
    return MODEL_COLOURS.get(model, GREY)


def new_axes(*, columns: int = 1, size: tuple[float, float] | None = None, **kwargs):
    """A figure and its axes, without pyplot: a notebook then shows it once, where it is named."""
    figure = Figure(figsize=size)
    return figure, figure.subplots(1, columns, **kwargs)
