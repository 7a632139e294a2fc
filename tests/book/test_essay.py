"""The front page: its numbers as a count by hand has them, its words, and those of the README."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from rmutils.book.chapters.essay import findings as essay
from rmutils.book.chapters.essay import findings as experiment
from rmutils.book.chapters.main_tables import findings as pooled_leads
from rmutils.book.chapters.masking_sweep import findings as masking_sweep
from rmutils.book.experiments import needles_left
from rmutils.book.experiments.real_models import masking_stored
from rmutils.book.findings import finding
from rmutils.core import paths

DECLARED = essay, masking_sweep
"""Importing them declares their findings."""
ESSAY = json.loads((paths.NOTEBOOKS / "essay.ipynb").read_text(encoding="utf-8"))
MOST_WORDS, LONGEST = 2_000, 35


def found_by_hand(model: str) -> pd.DataFrame:
    """Share of needles by policy and count, from the stored answers themselves."""
    answers = masking_stored(model, compute="never")[0].answers
    rows = answers[(answers["position"] == "newest") & (answers["length"] == 1024)
                   & answers["score"].isin(["", "copy"])]
    return rows.groupby(["policy", "count"])["success"].mean()


def test_a_few_heads_as_counted_by_hand():
    by_hand = found_by_hand("smollm2-135m")
    shape, heads, shares = experiment.few_heads(4)
    told = shares.set_index("policy")["value"]
    assert {name: told[name] for name in ("whole", "top heads", "same layers")} == pytest.approx({
        "whole": by_hand["whole", 0], "top heads": by_hand["top heads", 4],
        "same layers": by_hand["same layers", 4]})
    scores = needles_left.stored("detection").results["smollm2-135m"].mean
    assert sorted(scores[layer, head] for layer, head in heads) == sorted(scores.ravel())[-4:]
    assert shape == scores.shape


@pytest.mark.parametrize("model", ["smollm2-135m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"])
def test_heads_that_halve_as_counted_by_hand(model):
    by_hand = found_by_hand(model)
    top = by_hand["top heads"]
    enough = min(count for count in top.index if top[count] <= by_hand["whole", 0] / 2)
    assert finding("heads-that-halve", model).value == enough


def test_the_papers_lead_is_that_of_its_table():
    table = pd.read_csv(paths.DATA / "paper" / "tables.csv")
    rows = table[(table["source"] == "en") & (table["table"].astype(str) == "1")
                 & (table["group"] == "Llama-3.1-8B-Instruct")]
    means = rows.assign(value=rows["value"].astype(float)).groupby("row")["value"].mean()
    assert finding("paper-lead").value == pytest.approx(
        means["RetMask"] - means["Non-Retrieval-Mask"])


def test_pooled_lead_lies_among_those_of_the_models():
    single = pooled_leads.leads("non-retrieval-mask")
    assert len(single) == 5 and "qwen2.5-coder-0.5b" in single
    lead = finding("pooled-lead")
    values = [one.value for one in single.values()]
    assert min(values) < lead.value < max(values) and lead.clusters == 5
    assert lead.low < np.mean(values) < lead.high


def test_published_runs_as_counted_by_hand():
    maps = pd.read_csv(paths.DATA / "paper" / "published_maps.csv")
    assert finding("published-runs", "runs").value == len(maps)
    assert finding("published-runs", "different runs").value == len(
        {*zip(maps["model"], maps["map"], strict=True)})


def test_the_readme_says_what_the_essay_finds():
    text = (paths.ROOT / "README.md").read_text(encoding="utf-8")
    small = "smollm2-135m"
    lead, paper = finding("pooled-lead"), finding("paper-lead")
    value, low, high = lead.shown
    for said in (
            f"four of its {finding('heads-in-all', small):plain} attention heads",
            f"finds {finding('needles-found', small, 'top heads', 4):plain} % of",
            f"same layers, {finding('needles-found', small, 'same layers', 4):plain} %",
            f"up to {finding('heads-that-halve', 'qwen2.5-coder-1.5b'):plain} for half",
            f"is {value} points of 100 (95 % interval {low} to {high})",
            f"the {paper:plain} points that the paper"):
        assert said in text, said
    lede = re.search(r"rm-lede\n(.+)\n", "".join(ESSAY["cells"][0]["source"]))[1]
    assert re.sub(r" \{cite:p\}`\w+`", "", lede) in text


def prose() -> str:
    """What the essay says, numbers as their names."""
    parts = []
    for cell in ESSAY["cells"]:
        source = "".join(cell["source"])
        said = re.findall(r'say\("""(.*?)"""', source, re.DOTALL)
        parts += said if cell["cell_type"] == "code" else [source]
    text = re.sub(r"```.*?```", "", "\n\n".join(parts), flags=re.DOTALL)
    text = re.sub(r"^:.*$|^\(.*\)$|^#+ |^\|.*\|$", "", text, flags=re.MULTILINE)
    return re.sub(r"\{\w+:ci\}|\{[\w:]+\}`[^`]*`", "", text)


def test_the_essay_is_short_and_so_are_its_sentences():
    text = prose()
    assert len(text.split()) <= MOST_WORDS
    sentences = re.split(r"(?<=[.?!:])\s+|\n\n", text)
    assert not [one for one in sentences if len(one.split()) > LONGEST]


def test_no_number_of_the_essay_is_typed_by_hand():
    """But sizes of models, parts of names, and what is no result."""
    allowed = {"2026", "3.1", "0.5", "1.5", "135", "800", "95", "2", "0", "100", "1", "3"}
    numbers = re.findall(r"(?<![\w.\-{])\d+(?:\.\d+)?(?![\w}])", prose())
    assert {*numbers} <= allowed
