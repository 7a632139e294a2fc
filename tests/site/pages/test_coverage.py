"""The page on coverage: no item without a state, and nothing that leads nowhere."""

import re

import numpy as np
import pandas as pd
import pytest
import yaml

from rmutils.book.chapters.share_attention.findings import group_distances, key_groups
from rmutils.book.claims.small_checks import flattery
from rmutils.book.site.pages import COVERAGE, inputs
from rmutils.book.site.pages.coverage import CLAIMS, SIGNS, coverage, japanese_tables, read_coverage
from rmutils.core import paths

ITEMS = [(paper["paper"], item) for paper in read_coverage() for item in paper["items"]]
SHIPPED = {"/".join(p.parent.parts[-3:-1])
           for p in (paths.DATA / "artifacts").glob("*/*/*/manifest.json")}
CLAIMED = {claim["id"]: claim for claim in yaml.safe_load(
    (paths.DATA / "paper/claims.yml").read_text(encoding="utf-8"))}
PRINTED = {kind: {f"{row.source}/{row.table}" for row in pd.read_csv(
    paths.DATA / f"paper/{name}.csv", dtype=str).itertuples()}
    for kind, name in {"table": "tables", "companion": "companions"}.items()}


def labels(*files):
    return {label for file in files
            for label in re.findall(r"\(([\w-]+)\)=", file.read_text(encoding="utf-8"))}


NOTEBOOKS = labels(*paths.NOTEBOOKS.glob("*.ipynb"))
PAGES = NOTEBOOKS | labels(*paths.BOOK.glob("*.md"))


def leads(place: str) -> bool:
    """Whether what a place names is there."""
    kind, _, name = place.partition(":")
    if kind in PRINTED:
        return name in PRINTED[kind]
    if kind in ("claim", "stored"):
        return name in {"claim": CLAIMED, "stored": SHIPPED}[kind]
    return (paths.ROOT / place).is_file() if "/" in place else place in PAGES


def test_each_item_is_what_its_state_says():
    shown = NOTEBOOKS | labels(paths.BOOK / "coverage.md")
    for _, item in ITEMS:
        where = item.get("where", [])
        assert {*item} <= {"item", "what", "state", "where", "why"} and item["state"] in SIGNS, item
        assert [place for place in where if not leads(place)] == [], item
        measured = [place for place in where if place.startswith("stored:") or (
            place.startswith("claim:") and "measures" in CLAIMED[place.removeprefix("claim:")])]
        assert {"live": where and where[0] in shown, "stored": measured,
                "transcribed": where and not measured}.get(item["state"], True), item
        assert ("why" in item) == (item["state"] == "left out"), item


def test_every_claim_and_every_printed_table_is_an_item():
    places = {place for _, item in ITEMS for place in item.get("where", ())}
    assert {f"claim:{name}" for name in CLAIMED} <= places
    assert {f"table:{name}" for name in PRINTED["table"]} <= places
    papers = [paper["paper"] for paper in read_coverage()]
    assert len(papers) == 6 and CLAIMS in papers


def test_a_reason_is_no_excuse_for_what_is_stored():
    """A claim that is left out here has no measure, whatever a table that it belongs to says."""
    for _, item in ITEMS:
        if item["state"] == "left out" and item.get("where", [""])[0].startswith("claim:"):
            assert "untestable" in CLAIMED[item["where"][0].removeprefix("claim:")] or (
                "not computed yet" in item["why"]), item


def test_the_page_shows_every_item_and_the_japanese_tables():
    text, tables = coverage(paths.BOOK), japanese_tables(paths.BOOK)
    assert sum(text.count(f"| **{sign}**") for sign in SIGNS.values()) == len(ITEMS)
    printed = pd.read_csv(paths.DATA / "paper/tables.csv", dtype=str).query("source == 'ja'")
    for value in printed["value"]:
        assert f"{float(value):.2f}" in tables
    assert COVERAGE in inputs()


def test_flattery_by_hand():
    """Settings of pure noise: the chosen one leads where it was chosen, and nowhere else."""
    rng = np.random.default_rng(0)
    samples = pd.DataFrame([
        {"stratum": name, "cluster": f"{name} {text}", "length": 9, "seed": seed,
         "score": 10 * rng.standard_normal() + {"a": 50, "b": 20}[name]}
        for name in "ab" for text in range(200) for seed in range(4)])
    noise = flattery(samples, [2, 4], 50).set_index("settings")
    # The best of two leads their mean by 1 / sqrt(pi), of four by 1.03, standard errors of a half.
    error = 10 / np.sqrt(200)
    assert noise.loc[2, "flattery"] == pytest.approx(error * 0.564, rel=0.35)
    assert noise.loc[4, "flattery"] == pytest.approx(error * 1.03, rel=0.35)
    better = samples.assign(score=samples["score"] + 100 * (samples["seed"] == 2))
    found = flattery(better, [4], 20).iloc[0]
    assert found["real"] == pytest.approx(75, abs=3) and abs(found["flattery"]) < 2


def test_distances_within_key_groups():
    """Four heads, two of each key head."""
    near, far = {(0, 1): 0.1, (2, 3): 0.3}, {(0, 2): 0.5, (0, 3): 0.6, (1, 2): 0.7, (1, 3): 0.8}
    distances = pd.DataFrame([(0, *pair[::way], value) for pair, value in (near | far).items()
                              for way in (1, -1)] + [(0, i, i, 0.0) for i in range(4)],
                             columns=["layer", "head", "other", "distance"])
    assert group_distances(distances, 2).to_numpy().tolist() == [
        [pytest.approx(0.2), pytest.approx(0.65)]]
    table, more = key_groups()["smollm2-135m"]
    assert len(table) == 30 and more.low > 0  # what the page says
