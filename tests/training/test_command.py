"""`rmutils train`."""

import json

import pytest
from typer.testing import CliRunner

from rmutils.__main__ import app
from rmutils.training import RECIPES
from tests.cli.conftest import assert_refused


def rmutils(*words):
    return CliRunner().invoke(app, ["train", *map(str, words)])


@pytest.fixture
def file(pairs, tmp_path):
    pairs.to_parquet(tmp_path / "pairs.parquet")
    return tmp_path / "pairs.parquet"


def test_trains_what_is_asked_for(tiny, file, tmp_path):
    out = tmp_path / "out"
    done = rmutils(tiny, file, "--recipe", "smoke", "--objective", "sft", "--lora", 2, "--seed", 7,
                   "--no-thinking", "--learning-rate", "1e-3", "--out", out)
    assert done.exit_code == 0, done.output
    assert done.stdout == f"{out}\n" and (out / "adapter_model.safetensors").exists()
    assert json.loads((out / "training.json").read_text())["recipe"] == \
        RECIPES["smoke"].model_dump(mode="json") | {
            "objective": "sft", "lora_rank": 2, "seed": 7, "thinking": False,
            "learning_rate": 1e-3, "min_learning_rate": 1e-4}


def test_errors_exit_with_2(tiny, file, tmp_path):
    out = ("--out", tmp_path / "out")
    (tmp_path / "text.parquet").write_text("prompt,chosen,rejected\n")
    (tmp_path / "equal.csv").write_text("prompt,chosen,rejected\na,b,c\nd,same,same\n")
    (tmp_path / "bad.jsonl").write_text("[1]\n")
    (tmp_path / "number.jsonl").write_text('{"prompt": "a", "chosen": "b"}\n')
    assert_refused(rmutils, {
        (tiny, file, *out, "--recipe", "mine"): "--recipe mine: one of paper, embedded, smoke",
        (tiny, tmp_path / "nowhere.parquet", *out): "nowhere.parquet cannot be read",
        (tiny, tmp_path / "text.parquet", *out): "text.parquet is not a parquet file",
        (tiny, tmp_path / "pairs.docx", *out): "ends in .parquet, .jsonl or .csv",
        (tiny, tmp_path, *out): "ends in .parquet",
        (tiny, tmp_path / "bad.jsonl", *out): "bad.jsonl is not a jsonl file",
        (tiny, tmp_path / "number.jsonl", *out): "have no column rejected",
        (tiny, tmp_path / "equal.csv", *out):
            "1 of 2 pairs have the same text on both sides; the first of them begins 'same'",
        (tiny, file, "--out", "/sys/trained"): "/sys/trained cannot be written: ",
        (tiny, file, "--out", file): "is a file. Give a folder",
    })
    assert not (tmp_path / "out").exists()
