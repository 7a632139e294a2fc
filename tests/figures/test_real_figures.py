"""What is drawn of the real models is what was found."""


import numpy as np
import pandas as pd

from rmutils.book.experiments.masked_needles import ANYWHERE, COPY, MATCHED, TOP, WHOLE
from rmutils.book.figures.real_figures import needles_left_figure
from rmutils.book.figures.style import drawn_data


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
