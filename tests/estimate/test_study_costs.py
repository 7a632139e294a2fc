"""The paper's study, priced: every job once, sums that add up, and the paper's hours beside."""

import json

import pytest
from typer.testing import CliRunner

from rmutils.__main__ import app
from rmutils.book.jobs.studies import PaperConfig
from rmutils.book.jobs.study_costs import estimate_paper, samples
from rmutils.evaluation.helmet.official import HELMET

SMALL = PaperConfig().changed({"models": "llama-3.1-8b-instruct", "places": "Table 1"})


@pytest.fixture(scope="module")
def found():
    return estimate_paper(SMALL)


def test_every_job_has_its_cost_and_the_steps_add_up(found):
    assert set(found.costs) == set(found.jobs)
    steps = found.steps()
    assert steps["jobs"].sum() == len(found.jobs)
    assert steps["gpu_hours"].sum() == pytest.approx(found.total.gpu_hours)
    assert steps["disk"].sum() == pytest.approx(found.total.disk)
    for name, job in found.jobs.items():
        assert (found.costs[name].gpu_hours > 0) == (
            job.stage in ("detect", "generate", "train", "evaluate")
            or job.stage == "pairs" and job.run.strategy == "win-lose-pair"), name


def test_the_papers_hours_stand_beside_ours(found):
    table = found.beside_paper().set_index("step")
    assert table["paper"].to_dict() == {"detection": 2, "generation": 12, "training": 24}
    assert set(table["place"]) == {"Appendix A"}
    assert (table["floor"] < table["derived"]).all()
    # Once more, in one line: 8 operations per weight and token of both epochs and both sides, 2 of
    # the reference model, without attention and output; 4 GPUs at 0.4 of their peak.
    flops = (2 * 8 + 2) * 2 * 8.03e9 * 294_121 * (63.62 + 494.69)
    assert table.loc["training", "derived"] == pytest.approx(flops / (4 * 0.4 * 989e12 * 3600),
                                                             rel=0.1)


def test_prompts_of_helmet():
    """100 queries at each of six, three and three depths; 500 of ICL; 100 of all others."""
    assert [samples(name) for name in HELMET["RAG"]] == [600, 600, 300, 600]
    assert [samples(name) for name in HELMET["Re-rank"]] == [300]
    assert [samples(name) for name in HELMET["Recall"]] == [100] * 4
    assert sum(samples(name) for names in HELMET.values() for name in names) == 6000


def test_command():
    call = CliRunner().invoke
    words = ["estimate", "--profile", "paper", "-p", "models", "llama-3.1-8b-instruct", "-p",
             "places", "Table 9"]
    shown = call(app, words)
    assert shown.exit_code == 0, shown.output
    for text in ("training", "GPU hours", "and scratch", "Assumed: compute 0.4", "data sheet"):
        assert text in shown.output
    told = json.loads(call(app, [*words, "--json", "--accelerator", "h200", "--assume",
                                 "compute=0.5"]).output)
    assert told["assumptions"]["compute"] == 0.5 and "H200" in told["accelerator"]["name"]
    assert told["total"]["gpu_hours"] == pytest.approx(
        sum(job["gpu_hours"] for job in told["jobs"].values()))
    assert call(app, ["estimate"]).exit_code == 2
    assert call(app, ["estimate", "--profile", "paper", "-p", "moon", "1"]).exit_code == 2
