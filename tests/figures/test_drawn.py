"""Figures: the data beside them, one style for light and dark pages, and CSV that runs nothing."""

import csv
import io
import re

import numpy as np
import pandas as pd
import pytest
from IPython.core.formatters import DisplayFormatter
from matplotlib.figure import Figure

from rmutils.book.chapters.masking_sweep.plots import by_length
from rmutils.book.figures import use_style
from rmutils.book.figures.head_figures import success_map
from rmutils.book.figures.report import number
from rmutils.book.figures.style import (
    DARK_PAPER,
    MODEL_COLOURS,
    MOST_CELLS,
    carried,
    drawn_data,
    new_axes,
    to_svg,
)
from rmutils.core.files import to_csv


def panel(figure: Figure):
    return figure.subplots(1, 1)


def test_lines_and_intervals():
    rng = np.random.default_rng(0)
    x, y, below, above = rng.random((4, 6))
    figure = Figure()
    axes = panel(figure)
    axes.errorbar(x, y, yerr=[below, above], label="ours", color="#D55E00", marker="o")
    axes.set(xscale="log", xlabel="length", title="A")
    data = drawn_data(figure)
    line, spans = data[data["mark"] == "line"], data[data["mark"] == "span"]
    np.testing.assert_array_equal(line[["x", "y"]], np.c_[x, y])
    np.testing.assert_allclose(spans[["x", "y", "x to", "y to"]],
                               np.c_[x, y - below, x, y + above], rtol=1e-15)
    assert set(data["series"]) == {"ours"} and set(data["colour"]) == {"#d55e00"}
    assert set(data["panel"]) == {"A"} and set(data["horizontal"]) == {"length"}


def test_bars_points_and_bands():
    figure = Figure()
    axes = panel(figure)
    axes.barh([0, 1], [0.3, 0.7], left=[0.1, 0.2], height=0.5, label="share")
    axes.set_yticks([0, 1], ["Qwen3", "=Llama"])
    axes.scatter([0.25], [0.9], label="dot")
    axes.fill_between([0, 1], [2, 3], [4, 5], label="band")
    axes.hlines([7, np.nan], [0, 0], [1, 1])
    data = drawn_data(figure).set_index("mark")
    np.testing.assert_allclose(data.loc["box", ["x", "x to"]], [[0.1, 0.4], [0.2, 0.9]])
    assert data.loc["box", "y name"].tolist() == ["Qwen3", "=Llama"]
    assert data.loc["point", ["series", "x", "y"]].tolist() == ["dot", 0.25, 0.9]
    assert {(0, 2), (0, 4), (1, 3), (1, 5)} == {
        *map(tuple, data.loc["area", ["x", "y"]].to_numpy())}
    assert len(data.loc[["span"]].dropna(subset="y")) == 1
    named = Figure()
    panel(named).barh(["Qwen3", "Llama"], [0.3, 0.7])
    assert drawn_data(named)["y name"].tolist() == ["Qwen3", "Llama"]


def test_map_has_each_cell_by_the_names_of_its_axes():
    cases = pd.DataFrame({"depth": [0, 0, 1, 1], "length": [256, 512, 256, 512],
                          "success": [0, 1, 0.5, 0]})
    data = drawn_data(success_map(cases))
    cells = data[data["mark"] == "cell"].set_index(["y name", "x name"])["value"]
    assert cells.to_dict() == {("0 %", "256"): 0, ("0 %", "512"): 100,
                               ("100 %", "256"): 50, ("100 %", "512"): 0}


def test_large_map_has_its_highest_cells():
    values = np.random.default_rng(0).permutation(90 * 70).reshape(90, 70).astype(float)
    figure = Figure()
    panel(figure).imshow(values)
    data = drawn_data(figure)
    assert set(data["value"]) == set(np.sort(values, axis=None)[-MOST_CELLS:])
    assert (values[data["y"], data["x"]] == data["value"]).all()


def test_output_carries_the_data_beside_the_picture():
    formatter = DisplayFormatter()
    formatter.mimebundle_formatter.for_type(Figure, carried)
    figure = Figure()
    panel(figure).plot([1 / 3], [2 / 3], "o", label="=1+1")
    _, metadata = formatter.format(figure)
    read = pd.read_csv(io.StringIO(metadata["rmutils"]["csv"]))
    assert read[["x", "y", "series"]].to_numpy().tolist() == [[1 / 3, 2 / 3, "'=1+1"]]


COLOUR = re.compile(r"(?:fill|stroke): (#[0-9a-f]{6})")


def contrast(a: str, b: str) -> float:
    """Contrast of two colours, as the Web Content Accessibility Guidelines define it."""
    def luminance(colour):
        parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return sum(w * p for w, p in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def in_the_dark(picture: str) -> dict[str, str]:
    """Each colour that is drawn with -> what the picture's own rules make of it."""
    rules, drawn = picture.split("</style>", 1)
    assert "@media (prefers-color-scheme: dark)" in rules
    changed = dict(re.findall(r'\[style\*="stroke: (#\w+)"\] { stroke: (#\w+)', rules))
    assert changed == dict(re.findall(r'\[style\*="fill: (#\w+)"\] { fill: (#\w+)', rules))
    return {colour: changed.get(colour, colour) for colour in COLOUR.findall(drawn)}


def test_lines_can_be_seen_and_text_can_be_read_in_both_modes():
    use_style()
    table = pd.DataFrame({"length": [256, 512], "value": 0.5, "low": 0.4, "high": 0.6})
    seen = in_the_dark(to_svg(by_length(dict.fromkeys([*MODEL_COLOURS, "other"], table), "y")))
    assert len(seen) >= 7 and "#000000" not in seen
    ground = seen.pop("#ffffff")  # the figure's own, for which there is a rule of its own
    assert ground == "#ffffff" and all(contrast(c, DARK_PAPER) >= 3 for c in seen.values())
    figure, axes = new_axes()
    axes.text(0.5, 0.5, "Some text")
    ink = in_the_dark(to_svg(figure))
    ink.pop("#ffffff")
    assert all(contrast(light, "#ffffff") >= 7 and contrast(dark, DARK_PAPER) >= 7
               for light, dark in ink.items())


def test_the_ground_is_the_first_shape():
    """The rule for it names that shape; no other shape may be white and as large."""
    figure, axes = new_axes()
    axes.plot([0, 1])
    picture = to_svg(figure)
    assert re.search(rf"#patch_1 > path {{ fill: {DARK_PAPER} !important }}", picture)
    ground = re.search(r'<g id="patch_1">\s*<path d="([^"]*)" style="fill: #ffffff"', picture)
    width, height = re.search(r'viewBox="0 0 (\S+) (\S+)"', picture).groups()
    assert re.findall(r"[\d.]+", ground[1])[:3:2] == ["0", width]
    assert COLOUR.findall(picture.split("</style>", 1)[1]).count("#ffffff") == 1


def rows(frame: pd.DataFrame) -> list[list[str]]:
    return list(csv.reader(io.StringIO(to_csv(frame))))


def test_numbers_keep_all_their_digits():
    values = np.random.default_rng(0).normal(size=50) * 10.0 ** np.arange(-25, 25)
    frame = pd.DataFrame({"x": values, "n": range(50)})
    read = pd.read_csv(io.StringIO(to_csv(frame)))
    pd.testing.assert_frame_equal(read, frame, check_exact=True)


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "＝", "＋", "－", "＠", "\t", "\r", "\n"])
def test_no_cell_and_no_name_is_a_formula(start):
    text = f'{start}HYPERLINK("x","y"),\n2'
    assert rows(pd.DataFrame({text: [text]})) == [[f"'{text}"], [f"'{text}"]]


def test_harmless_text_stays_as_it_is():
    frame = pd.DataFrame({"a-b": ["'tis", "1-2", "–", "a,\"b\"\nc", None], "x": [-1.5, 2, 3, 4, 5]})
    assert rows(frame) == [["a-b", "x"], ["'tis", "-1.5"], ["1-2", "2.0"], ["–", "3.0"],
                           ['a,"b"\nc', "4.0"], ["", "5.0"]]


def test_a_number_with_its_interval_becomes_three_columns():
    cells = [number(-0.6123, -0.75, -0.5), number(12, 10, 15), "–", number(1.5), "near 1 [0, 2]"]
    assert rows(pd.DataFrame({"score": cells})) == [
        ["score", "score, low", "score, high"], ["-0.61", "-0.75", "-0.50"], ["12", "10", "15"],
        ["–", "", ""], ["1.5", "", ""], ["near 1 [0, 2]", "", ""]]


def test_columns_of_one_name_stay_apart():
    frame = pd.DataFrame([[1, 2, 3]], columns=["a", "b", "a"])
    assert rows(frame) == [["a", "b", "a (2)"], ["1", "2", "3"]]
