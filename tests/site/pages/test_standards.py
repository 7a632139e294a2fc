"""Answers to reporting standards: complete, and nothing that they point to is missing."""

import ast
import re

import pytest
import yaml

from rmutils.book.site.pages import inputs, standards
from rmutils.book.site.pages.standards import SIGNS, evidence, is_file, missing, read_standards
from rmutils.core import paths

REFORMS = [f"{module}{letter}" for module, count in enumerate((3, 5, 7, 3, 6, 3, 3, 2), 1)
           for letter in "abcdefg"[:count]]
"""32 items in eight modules."""


@pytest.fixture(scope="module")
def answers():
    return {standard["name"]: standard["items"] for standard in read_standards()}


def test_every_question_has_one_answer(answers):
    ids = {name: [item["id"] for item in items] for name, items in answers.items()}
    assert ids["REFORMS"] == REFORMS and len(REFORMS) == 32
    assert ids["NeurIPS paper checklist"] == [*range(1, 17)]
    assert [len(items) for items in answers.values()] == [32, 16, 5, 6]
    for item in (item for items in answers.values() for item in items):
        assert item["answer"] in SIGNS and "{" not in item["why"]
        assert set(item) <= {"id", "asks", "answer", "why", "where"}
        assert item.get("where") if item["answer"] == "yes" else item["why"], item["id"]


def test_no_answer_points_nowhere(answers):
    """Labels stand on a page or in a notebook, files and tests exist."""
    pages = "\n".join(p.read_text(encoding="utf-8") for p in
                      [*paths.BOOK.glob("*.md"), *paths.NOTEBOOKS.glob("*.ipynb")])
    labels = {*re.findall(r"\(([\w-]+)\)=", pages)}
    linked = {*evidence()} & {*inputs()}
    for place in {place for items in answers.values() for item in items
                  for place in item.get("where", ())}:
        name, _, test = place.partition("::")
        if not is_file(place):
            assert place in labels
            continue
        assert (paths.ROOT / name).is_file() and paths.ROOT / name in linked, place
        if test:
            tree = ast.parse((paths.ROOT / name).read_text(encoding="utf-8"))
            assert test in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_an_answer_follows_the_file_that_decides_it(tmp_path, monkeypatch):
    without = [line for line in missing(paths.BOOK).splitlines() if "DOI" in line]
    known = yaml.safe_load(standards.CITATION.read_text(encoding="utf-8"))
    (tmp_path / "CITATION.cff").write_text(yaml.safe_dump(known | {"doi": "10.1/2"}), "utf-8")
    monkeypatch.setattr(standards, "CITATION", tmp_path / "CITATION.cff")
    standards.facts.cache_clear()
    try:
        assert "DOI" not in missing(paths.BOOK)
        assert len(without) == (0 if known.get("doi") else 3)
    finally:
        standards.facts.cache_clear()
