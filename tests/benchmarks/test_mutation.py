"""Modules are tried again when they have changed, and what the first try showed is kept."""

import json

import pytest

from benchmarks import mutation


@pytest.fixture
def tried(tmp_path, monkeypatch):
    """Runs the benchmark with so many of ten mutants killed; returns its rows by module."""
    def run(killed, most=10):
        def lines(python, module, words):
            asked = json.loads(words)
            asking.append([*asked["modules"]])
            for name in asked["modules"]:
                yield {"module": name, "tried": 10, "killed": killed, "survivors": [
                    {"line": 1, "change": "a → b", "tests": 1}] * (10 - killed)}

        monkeypatch.setattr(mutation, "lines_of", lines)
        assert mutation.measure(mutation.Settings(most=most), tmp_path)
        rows = json.loads((tmp_path / "mutation.json").read_text())["rows"]
        return {row["module"]: (row["first"], row["killed"]) for row in rows}

    run.asking = asking = []
    monkeypatch.setattr(mutation, "MODULES", {"stats.contrast": "test_stats",
                                              "core.paths": "test_package"})
    return run


def test_only_what_has_changed_is_tried_again(tried, monkeypatch):
    both = ["rmutils.stats.contrast", "rmutils.core.paths"]
    assert tried(8) == dict.fromkeys(both, (8, 8))
    assert tried(9) == dict.fromkeys(both, (8, 8))
    monkeypatch.setitem(mutation.MODULES, "stats.contrast", "test_stats test_workers")
    assert tried(9) == {both[0]: (8, 9), both[1]: (8, 8)}
    assert tried.asking == [both, both[:1]]
    assert tried(7, most=5) == dict.fromkeys(both, (7, 7))  # another draw, tried for the first time


def test_survivors_have_the_reason_that_is_known(tried, tmp_path, monkeypatch):
    monkeypatch.setattr(mutation, "REASONS", tmp_path / "reasons.yml")
    mutation.REASONS.write_text("rmutils.stats.contrast: {a → b: No difference.}\n",
                                encoding="utf-8")
    tried(9)
    rows = json.loads((tmp_path / "mutation.json").read_text())["rows"]
    assert [row["survivors"][0]["reason"] for row in rows] == ["No difference.", None]
