"""Comparisons: each interval on its side of the reference, in shape, colour and words."""

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from rmutils.book.experiments.masked_needles import ANYWHERE, COPY, MATCHED, TOP, WHOLE
from rmutils.book.figures.forest import SIGNS, by_group, forest
from rmutils.book.figures.real_figures import needles_left_figure
from rmutils.book.figures.style import (
    FOR_A_PHONE,
    PHONE,
    WIDTH,
    carried,
    drawn_data,
    to_svg,
    use_style,
)

NAN = float("nan")
ROWS = [("m", "a", 2.0, 1.0, 3.0), ("m", "b", -2.0, -3.0, -1.0), ("n", "a", 0.5, -1.0, 2.0),
        ("n", "c", 4.0, NAN, NAN)]
TABLE = pd.DataFrame(ROWS, columns=["model", "strategy", "effect", "low", "high"])
COLUMNS = {"label": "strategy", "value": "effect", "group": "model"}


def marks(axes) -> list[tuple]:
    """Where each dot is, its shape and colour."""
    return [(line.get_xdata()[0], line.get_marker(), line.get_color()) for line in axes.lines
            if line.get_marker() != "None"]


def test_shape_and_colour_say_where_the_interval_lies():
    figure = forest(TABLE, "points", **COLUMNS)
    axes, = figure.axes
    signs = ["above", "below", "open", "none"]
    assert marks(axes) == [
        (row[2], *SIGNS[sign][:2]) for row, sign in zip(ROWS, signs, strict=True)]
    assert len({SIGNS[sign][0] for sign in signs}) == len({SIGNS[sign][1] for sign in signs}) == 4
    assert [t.get_text() for t in axes.get_yticklabels()] == ["m", "a", "b", "n", "a", "c"]
    assert [t.get_fontweight() for t in axes.get_yticklabels()] == [
        "bold", "normal", "normal"] * 2
    words = [text.get_text() for text in figure.legends[0].texts]
    assert words == ["interval above zero", "interval below zero", "interval includes zero",
                     "no interval"]


def test_numbers_stand_beside_one_panel_and_a_reference_moves_the_signs():
    figure = forest(TABLE[:3], "points", **COLUMNS, reference=2.5)
    assert [sign for _, sign, _ in marks(figure.axes[0])] == ["o", "<", "<"]
    numbers = figure.axes[0].child_axes[0].get_yticklabels()
    assert [t.get_text() for t in numbers] == [
        "2 [1,\u00a03]", "-2 [-3,\u00a0-1]", "0.5 [-1.0,\u00a02.0]"]
    both = pd.concat([TABLE.assign(where=name) for name in ("here", "there")])
    figure = forest(both, "points", **COLUMNS, panel="where")
    assert [axes.get_title() for axes in figure.axes] == ["here", "there"]
    assert not figure.axes[0].child_axes
    with pytest.raises(ValueError, match="5 panels"):
        forest(pd.concat([TABLE.assign(where=n) for n in range(5)]), "p", **COLUMNS, panel="where")


def test_the_picture_has_the_width_of_the_text_and_its_data_their_names():
    use_style()
    figure = forest(TABLE, "points", **COLUMNS)
    assert f'width="{72 * WIDTH:g}pt"' in to_svg(figure)
    data = drawn_data(figure)
    points = data[data["mark"] == "point"].dropna(subset="series")
    assert points[["series", "y name", "x"]].to_numpy().tolist() == [[*row[:3]] for row in ROWS]


def test_a_corrected_p_decides_where_it_is_given():
    figure = forest(TABLE.assign(p=[0.04, 0.05, NAN, NAN]), "points", **COLUMNS, p="p")
    assert [sign for _, sign, _ in marks(figure.axes[0])] == [">", "o", "o", "D"]
    words = [text.get_text() for text in figure.legends[0].texts]
    assert words == ["shown: above zero", "undecided", "no interval"]


def shares(model, score=COPY, needle_set="facts-literal"):
    found = [(WHOLE, 0, 0.9), (TOP, 1, 0.8), (TOP, 4, 0.2), (MATCHED, 4, 0.7), (ANYWHERE, 4, 0.75)]
    return pd.DataFrame([
        {"model": model, "set": needle_set, "score": "" if policy == WHOLE else score,
         "policy": policy, "count": count, "value": value, "low": value - 0.1,
         "high": value + 0.1} for policy, count, value in found])


def test_needles_left_against_the_share_of_heads():
    figure = needles_left_figure(pd.concat([shares("small"), shares("large")]),
                                 {"small": 40, "large": 400})
    data = drawn_data(figure)
    top = data[(data["series"] == "heads that copy most") & (data["mark"] == "line")]
    assert top.groupby("panel", sort=False)["x"].apply(list).to_dict() == {
        "small (40 heads)": [2.5, 10], "large (400 heads)": [0.25, 1]}
    assert [*top["y"]] == [80, 20] * 2
    ends = data[(data["mark"] == "span") & (data["series"] == "others of the same layers")]
    np.testing.assert_allclose(ends[["y", "y to"]], [[60, 80]] * 2)


def test_levels_have_the_colour_of_their_label():
    table = TABLE.rename(columns={"model": "group", "strategy": "label", "effect": "value"})
    axes, = by_group(table, "%", {"a": "#111111", "b": "#222222", "c": "#333333"}).axes
    assert [colour for *_, colour in marks(axes)] == ["#111111", "#222222", "#111111", "#333333"]
    assert [t.get_text() for t in axes.get_yticklabels()] == ["m", "a", "b", "n", "a", "c"]


def test_a_second_picture_for_a_phone_holds_the_same_with_names_above_the_rows():
    use_style()
    both = pd.concat([TABLE.assign(where=name) for name in ("here", "there")])
    figure = forest(both, "points", **COLUMNS, panel="where")
    small = FOR_A_PHONE[figure]
    for wide, axes in zip(figure.axes, small.axes, strict=True):
        assert marks(axes) == marks(wide)
        names = {text.get_text(): text.xy[1] for text in axes.texts}
        assert [*names] == ["m", "a", "b", "n", "c"] and names["c"] == 5
    here, there = (axes.get_position() for axes in small.axes)
    assert there.y1 < here.y0  # below each other
    _, metadata = carried(figure)
    assert f'width="{72 * PHONE:g}pt"' in metadata["rmutils"]["phone"]


def test_on_a_phone_no_name_stands_on_the_line_of_zero():
    use_style()
    small = FOR_A_PHONE[forest(TABLE, "points", **COLUMNS)]
    renderer = FigureCanvasAgg(small).get_renderer()
    small.draw(renderer)
    axes, = small.axes
    names = [text.get_window_extent(renderer) for text in axes.texts]
    lines = [axes.transData.transform(ends) for drawn in axes.collections
             for ends in drawn.get_segments() if not np.ptp(ends[:, 0])]
    assert len(lines) == len(ROWS)
    for name in names:
        assert all(name.y1 < ends[:, 1].min() or name.y0 > ends[:, 1].max() for ends in lines)


def test_models_are_called_as_in_prose():
    axes, = forest(TABLE.replace("m", "smollm2-135m"), "points", **COLUMNS).axes
    assert [t.get_text() for t in axes.get_yticklabels()][0] == "SmolLM2"
