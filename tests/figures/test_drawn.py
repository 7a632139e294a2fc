"""The data beside a figure are what was drawn, as the numbers that went in."""

import io

import numpy as np
import pandas as pd
from IPython.core.formatters import DisplayFormatter
from matplotlib.figure import Figure

from rmutils.book.figures.head_figures import success_map
from rmutils.book.figures.style import MOST_CELLS, carried, drawn_data


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
    assert cells.to_dict() == {("0 %", "256"): 0, ("0 %", "512"): 1,
                               ("100 %", "256"): 0.5, ("100 %", "512"): 0}


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
