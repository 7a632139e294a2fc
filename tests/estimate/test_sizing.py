"""Chapters with a large model: what is cut, and what never is."""

import json

import pytest
import yaml
from typer.testing import CliRunner

from rmutils.__main__ import app
from rmutils.book.chapters.masking_sweep import experiment as masking_sweep
from rmutils.book.jobs.notebook_costs import LIMIT, SMALLER, estimate, fitted, load_costs
from rmutils.book.site import notebooks
from rmutils.book.site.parameters import check_parameters
from rmutils.core import paths
from rmutils.core.errors import NotStored
from rmutils.heads.detection import DetectConfig

CODER = "qwen2.5-coder-0.5b"
ROWS = yaml.safe_load(SMALLER.read_text(encoding="utf-8"))


def costs(name):
    return load_costs(paths.NOTEBOOKS / f"{name}.ipynb")


@pytest.mark.parametrize("name", ROWS)
def test_rows_fit_their_notebook_and_grow_smaller(name):
    """Every value is one that the notebook takes, and each row makes the run shorter."""
    known, given = costs(name), {"compute": "auto"}
    key = "checkpoint" if "checkpoint" in known.own else "model"
    before = estimate(known, {key: CODER} | given).seconds
    for row in ROWS[name]:
        given |= check_parameters(known.notebook, row)
        now = estimate(known, {key: CODER} | given).seconds
        assert now < before or "max_new_tokens" in row
        before = now
    assert before < 2 * LIMIT


@pytest.mark.parametrize("name", ["02_masking_sweep", "12_share_attention", "your_own_model"])
def test_a_large_model_ends_in_minutes(name):
    key = "checkpoint" if name == "your_own_model" else "model"
    found = fitted(costs(name), {key: CODER})
    assert found.cut and found.seconds <= LIMIT
    assert all(f"{what} " in found.cuts() for what in found.cut)


def test_nothing_else_is_cut(monkeypatch):
    """Models of the book, what is given by hand, and machines with a GPU."""
    known = costs("02_masking_sweep")
    for given in ({}, {"model": "tiny-qwen3", "draws": 50}, {"model": "smollm2-135m"}):
        assert fitted(known, given).values == given and not fitted(known, given).cuts()
    given = {"model": CODER, "draws": 3, "needles": 12}
    assert given.items() <= fitted(known, given).values.items()
    monkeypatch.setenv("RMUTILS_DEVICE", "cuda")
    assert not fitted(known, {"model": CODER}).cut


def test_run_and_estimate_agree(monkeypatch, tmp_path):
    """Both commands say what is cut, and the run has these parameters."""
    monkeypatch.setenv("RMUTILS_CACHE", str(tmp_path))
    ran = []
    monkeypatch.setattr(notebooks, "run_notebook",
                        lambda path, target, given, **_: ran.append(given))
    monkeypatch.setattr(notebooks, "write_page", lambda target: target)
    words = ["02_masking_sweep", "-p", "model", CODER]
    done = CliRunner().invoke(app, ["run", *words])
    said = json.loads(CliRunner().invoke(app, ["estimate", *words, "--json"]).stdout)
    assert ran == [{"model": CODER} | said["cut"]] and said["cut"], done.output
    assert "The model is large" in done.stderr and " (chapter: 3)" in done.stderr
    assert "The model is large" in CliRunner().invoke(app, ["estimate", *words]).stdout


def test_heads_of_a_model_without_stored_scores_take_minutes(monkeypatch):
    """The large grid of a real model is looked up; what is computed is the default one."""
    asked = []

    def detect_stored(model, config=DetectConfig(), *, compute="auto"):
        asked.append((config.lengths, compute))
        if compute == "never":
            raise NotStored("not here", "")
        return "scores"

    monkeypatch.setattr(masking_sweep, "detect_stored", detect_stored)
    monkeypatch.setattr(masking_sweep, "corpus_of", lambda model: "book")
    assert masking_sweep.scored(CODER) == "scores"
    assert asked == [(masking_sweep.GRIDS["book"].lengths, "never"), ((256, 512), "auto")]
    with pytest.raises(NotStored):
        masking_sweep.scored(CODER, compute="never")
