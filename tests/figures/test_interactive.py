"""The data of a figure's view are those of the figure, and no text in them becomes markup."""

import json
import re
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from rmutils.book.chapters import interactive
from rmutils.book.chapters.masking_sweep.experiment import count_at
from rmutils.book.chapters.masking_sweep.plots import masking_sweep
from rmutils.book.chapters.preliminaries.experiment import answer_case, trace
from rmutils.book.figures.report import number
from rmutils.corpora.niah import NiahBuilder, load_haystacks, load_needles
from rmutils.heads.scores import HeadScores

EVIL = "</script><script>alert('x')</script><!-- <img src=x onerror=alert(1)> ]]> & \"q\" \u2028 \\"


class Elements(HTMLParser):
    """The elements of a page, and all text outside of tags."""

    def __init__(self, shown):
        super().__init__()
        self.tags, self.text = [], ""
        self.feed(shown.data)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data


def data_of(shown) -> dict:
    page = Elements(shown)
    assert page.tags == [("script", {"type": "application/json", "class": "rm-figure"})]
    return json.loads(page.text)


def test_no_text_breaks_out():
    data = {"text": EVIL, EVIL: [EVIL, "\ud800"]}
    assert data_of(interactive.embed("heads", data)) == {"view": "heads", **data}
    with pytest.raises(ValueError):
        interactive.embed("heads", {"value": float("nan")})


@pytest.fixture
def scores():
    runs = np.random.default_rng(0).random((12, 3, 5)) ** 6
    runs[:, 2, 3] = 0
    return HeadScores(runs, "some", np.arange(12) // 2)


def test_head_map_has_every_score_and_every_tau(scores):
    data = data_of(interactive.head_map(scores, 0.1))
    low_high = scores.interval()
    for index, head in enumerate(np.ndindex(*scores.shape)):
        assert data["mean"][index] == pytest.approx(scores.mean[head], abs=1e-8)
        assert data["shown"][index] == number(scores.mean[head], *low_high[head])
    assert data["colours"][2 * 5 + 3] == data["ramp"][0]
    assert data["colours"][scores.mean.argmax()] == data["ramp"][-1]
    for step in (1, 10, 25):
        count = len(scores.select(tau=step / data["steps"]))
        said = [float(n) for n in re.findall(r"[\d.]+", data["reach"][step])]
        assert said[0] == count and said[1] <= count <= said[2]
    assert data["reach"][0].startswith("15")


def test_needle_has_the_rows_that_decided(llama):
    """Weights and their arg-max agree with the table of the same head, written another way."""
    case = NiahBuilder(llama, load_haystacks()).build(0, load_needles()[0], 300, 0.5)
    answer = answer_case(llama, case, max_new_tokens=6)
    head = (1, 2)
    data = data_of(interactive.needle(llama, case, answer, {EVIL: head}))
    found, steps = data["heads"][0], trace(llama, case, answer, head)
    assert found["name"] == EVIL
    assert data["prompt"][100] == llama.tokenizer.decode([case.input_ids[100]])
    assert data["written"] == list(steps["written"])
    assert found["looks"] == list(steps["looks at"]) and found["copied"] == list(steps["copied"])
    start, end = case.needle_span
    assert data["needle"] == [start, end]
    for step, weights in enumerate(map(dict, found["weights"])):
        assert max(weights, key=weights.get) == found["looks"][step]
        assert 0.7 < sum(weights.values()) <= 1.01
        inside = sum(w for j, w in weights.items() if start <= j < end)
        assert found["inside"][step] == pytest.approx(inside, abs=0.03)


@pytest.fixture
def curves():
    rows = [(policy, n, 0.9 / (n + 1), 0.8 / (n + 1), 0.95 / (n + 1))
            for policy, most in (("retrieval", 15), ("non-retrieval", 4))
            for n in (0, 2, 4, 15) if n <= most]
    frame = pd.DataFrame(rows, columns=["policy", "count", "value", "low", "high"])
    return {"haystack": frame, EVIL: frame.assign(value=frame["value"] / 2)}


def test_sweep_has_every_point(scores, curves):
    data = data_of(interactive.masking_sweep(masking_sweep(curves, {}), curves, scores))
    assert data["counts"] == [0, 2, 4, 15] and data["of"] == 15
    first, second = data["measures"]
    assert (first["name"], second["name"]) == ("haystack", EVIL)
    assert first["retrieval"][2] == first["non-retrieval"][2] == number(0.18, 0.16, 0.19)
    assert second["retrieval"][1] == number(0.15, 0.8 / 3, 0.95 / 3)
    assert first["non-retrieval"][3] is None
    for count, said in zip(data["counts"][1:3], data["taus"][1:3], strict=True):
        below, above = map(float, said.split(" < τ ≤ "))
        assert count_at(scores, (below + above) / 2) == count
    assert (data["taus"][0], data["taus"][3]) == (f"τ > {scores.mean.max():.3g}", "τ ≤ 0")
