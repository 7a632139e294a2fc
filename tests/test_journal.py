"""A journal gives back what was written to it, also after a kill in the middle of a line."""

from __future__ import annotations

import pytest

from rmutils.journal import Journal


def test_goes_on_after_a_cut_line(tmp_path):
    path = tmp_path / "journal.jsonl"
    first = Journal(path)
    first["a"], first["b"] = {"text": "two\nlines, ümlaut"}, [1.5, None]
    path.write_text(path.read_text(encoding="utf-8") + '["c", {"tex', encoding="utf-8")
    again = Journal(path)
    assert dict(again) == {"a": {"text": "two\nlines, ümlaut"}, "b": [1.5, None]}
    again["c"] = 3
    assert dict(Journal(path)) == dict(again) and len(Journal(path)) == 3
    assert path.read_text(encoding="utf-8").count("\n") == 3


def test_a_result_that_is_no_json_is_not_kept(tmp_path):
    journal = Journal(tmp_path / "journal.jsonl")
    with pytest.raises(TypeError):
        journal["a"] = {1, 2}
    assert dict(Journal(tmp_path / "journal.jsonl")) == {}


def test_without_a_file():
    journal = Journal(None)
    journal["a"] = 1
    assert dict(journal) == {"a": 1}
