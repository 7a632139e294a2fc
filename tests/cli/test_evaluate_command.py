"""`rmutils evaluate` and `rmutils collect`."""

import json

import numpy as np
import pandas as pd
import pytest
import yaml
from typer.testing import CliRunner

from rmutils import EvaluateConfig, HeadScores, evaluate, load_model, mask_heads
from rmutils.__main__ import app
from rmutils.core import results
from tests.evaluation.helmet.helmet_files import written

SMALL = ["--datasets", "ICL,choice", "--lengths", "300", "--samples", "3", "--workers", "1"]


def command(*words):
    return CliRunner().invoke(app, [*words])


def test_averages_are_printed_and_stored(cache):
    done = command("evaluate", "tiny-llama", *SMALL, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    rows = {row["name"]: row for row in found["averages"]}
    labels = ["labels_coarse", "labels_fine", "labels_names"]
    assert [*rows] == [*labels, "ICL", "choice", "LongQA", "overall"]
    mean = (rows["ICL"]["value"] + rows["LongQA"]["value"]) / 2
    assert rows["overall"]["value"] == pytest.approx(mean)
    manifest = results.find(found["artifact"]).manifest
    assert manifest["config"]["datasets"] == [*labels, "choice"]
    text = command("evaluate", "tiny-llama", *SMALL, "--compute", "never").stdout
    assert text.startswith("tiny-llama, 300 tokens\n") and found["artifact"] in text
    assert "missing: Recall, RAG, Re-rank, Cite, free_answer, text_hops, Summ" in text


def test_masked_heads_are_those_of_the_words_or_of_a_file(cache, tmp_path):
    asked = ["--datasets", "needle_rivals", "--lengths", "300", "--samples", "2", "--workers", "1",
             "--how", "mean", "--json"]
    lm, config = load_model("tiny-llama", device="cpu"), EvaluateConfig(
        datasets=("needle_rivals",), lengths=(300,), samples=2)
    with mask_heads(lm, [(3, head) for head in range(16)], "mean"):
        by_hand = evaluate(lm, config)
    runs = np.zeros((1, *lm.shape))
    runs[0, 3], runs[0, 2] = 0.5, 0.09  # and those of layer 2 do not reach 0.1
    HeadScores(runs, "tiny-llama").save(tmp_path / "heads.json")
    for heads in (",".join(f"3-{head}" for head in range(16)), str(tmp_path / "heads.json")):
        done = command("evaluate", "tiny-llama", "--mask", heads, *asked)
        assert done.exit_code == 0, done.output
        table = pd.read_parquet(
            results.find(json.loads(done.stdout)["artifact"]).folder / "scores.parquet")
        assert table["response"].tolist() == by_hand["response"].tolist()
    assert evaluate(lm, config)["response"].tolist() != by_hand["response"].tolist()


@pytest.mark.parametrize(("words", "message"), [
    (["--datasets", "Everything"], "no data set or category is called 'Everything'"),
    (["--lengths", "9000", "--workers", "1"], "the window of tiny-llama has 4096 tokens"),
    (["--compute", "never"], "Make it: `rmutils evaluate tiny-llama`"),
    (["--suite", "helmet", "--lengths", "512"], "HELMET has no data of 512 tokens"),
    (["--suite", "helmet", "--datasets", "choice"], "HELMET is run by categories"),
    (["--suite", "helmet", "--out", "/sys/helmet"], "/sys/helmet cannot be written"),
    (["--suite", "helmet", "--mask", "3-7"], "HELMET itself masks no heads"),
    (["--mask", "3.7"], "expected pairs (layer, head)"),
])
def test_bad_input(cache, words, message):
    done = command("evaluate", "tiny-llama", *words)
    assert done.exit_code == 2 and done.stdout == ""
    assert done.stderr.startswith("rmutils: ") and message in done.stderr


def test_the_judge_is_the_one_that_is_named(cache):
    done = command("evaluate", "tiny-llama", *SMALL, "--judge", "http://127.0.0.1:1",
                   "--judge-model", "mine", "--compute", "never")
    assert "--judge http://127.0.0.1:1 --judge-model mine" in done.stderr


def test_files_for_helmet(tmp_path):
    done = command("evaluate", "llama-3.1-8b-instruct", "--suite", "helmet", "--datasets",
                   "RAG,Cite", "--lengths", "8192,131072", "--out", str(tmp_path / "h"))
    assert done.exit_code == 0 and str(tmp_path / "h" / "run.sh") in done.stdout
    assert {p.name for p in (tmp_path / "h").iterdir()} == {"rag.yaml", "cite.yaml", "run.sh"}
    assert "meta-llama/Llama-3.1-8B-Instruct" in (tmp_path / "h" / "run.sh").read_text()
    command("evaluate", "llama-3.1-8b-instruct", "--suite", "helmet", "--datasets", "Re-rank",
            "--out", str(tmp_path / "all"))
    found = yaml.safe_load((tmp_path / "all" / "rerank.yaml").read_text())
    assert found["input_max_length"] == "8192,16384,32768,65536,131072"


def test_results_of_helmet(cache, tmp_path):
    output = written(tmp_path / "Some-Model")
    done = command("collect", str(output))
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("org/Some-Model, 8192 tokens\n")
    assert "alce_qampari" in done.stdout and "2 unscored" in done.stdout
    found = json.loads(command("collect", str(output), "--json").stdout)
    assert len(found["averages"]) == 21 + 7 + 1
    assert not any(row["missing"] for row in found["averages"])  # HELMET's data sets are all there
