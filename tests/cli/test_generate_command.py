"""`rmutils generate`, on a small random model."""

import json
import shlex

import pandas as pd
import pytest
from typer.testing import CliRunner

from rmutils.__main__ import app
from rmutils.core import results
from rmutils.models import load_model
from rmutils.preference.instructions import draw
from rmutils.preference.responses import ResponseConfig, Transformers, respond
from tests.cli.conftest import assert_refused

FEW = ("--count", 6, "--max-new-tokens", 8)


def rmutils(*words):
    return CliRunner().invoke(app, ["generate", *map(str, words)])


def found(*words) -> dict:
    done = rmutils(*words, "--json")
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def expected(tiny, **settings) -> pd.DataFrame:
    config = ResponseConfig(max_new_tokens=8, **settings)
    asked = draw("world", 6, seed=config.seed).instructions
    return respond(Transformers(load_model(str(tiny))), asked, config)


def test_whole_model(tiny):
    record = found(tiny, *FEW, "--seed", 3, "--temperature", 0.9, "--no-thinking")
    table = pd.read_parquet(record["file"])
    pd.testing.assert_frame_equal(
        table, expected(tiny, seed=3, temperature=0.9, thinking=False))
    assert (record["responses"], record["heads"], record["policy"]) == (6, [], None)
    assert record["finished"] == table["finished"].sum() and record["dropped"] == {}
    assert record["tokens"]["mean"] == pytest.approx(table["tokens"].mean())
    assert record["tokens"]["low"] <= record["tokens"]["mean"] <= record["tokens"]["high"]


def test_masked_model(tiny, scores):
    """A threshold, a number or a file of scores masks the retrieval heads, as --policy does."""
    masked = found(tiny, *FEW, "--scores", scores, "--tau", 0.05)
    assert (masked["policy"], masked["heads"]) == ("retrieval", [[0, 2], [3, 1]])
    table = pd.read_parquet(masked["file"])
    pd.testing.assert_frame_equal(table, expected(tiny, heads=((0, 2), (3, 1))))
    assert (table["text"] != expected(tiny)["text"]).any()
    assert found(tiny, *FEW, "--scores", scores)["heads"] == [[3, 1]]  # at or above 0.1
    drawn = [found(tiny, *FEW, "--scores", scores, "--top-k", 3, "--policy", "non-retrieval",
                   "--head-seed", seed)["heads"] for seed in (1, 2)]
    assert drawn[0] != drawn[1] and all(len(heads) == 3 for heads in drawn)
    assert not {(3, 1), (0, 2), (1, 0)} & {tuple(head) for heads in drawn for head in heads}


def test_command_of_the_manifest_remakes_the_result(tiny, scores, tmp_path, monkeypatch):
    record = found(tiny, *FEW, "--scores", scores, "--top-k", 2, "--seed", 5, "--no-thinking",
                   "--top-p", 0.9)
    manifest = results.find(record["artifact"]).manifest
    monkeypatch.setenv("RMUTILS_CACHE", str(tmp_path / "other cache"))
    never = rmutils(tiny, *FEW, "--compute", "never")
    assert never.exit_code == 2 and f"Make it: `rmutils generate '{tiny}' --count 6" in never.stderr
    program, *words = shlex.split(manifest["command"])
    done = CliRunner().invoke(app, words)
    assert program == "rmutils" and done.exit_code == 0, done.output
    again = results.find(record["artifact"])
    assert again.folder.is_relative_to(tmp_path / "other cache")
    assert again.manifest["files"] == manifest["files"]


def test_own_instructions(tiny, tmp_path):
    """Those left out are told, here and as text; what is stored is read again."""
    file = tmp_path / "own.jsonl"
    file.write_text("".join(f'{{"prompt": "{text}"}}\n' for text in ("Sing.", "sing.", "Go.", "")))
    words = (tiny, "--source", file, "--count", 2, "--max-new-tokens", 8, "--seed", 1)
    record = found(*words)
    assert record["dropped"] == draw(str(file), 2, seed=1).dropped
    text = rmutils(*words, "--compute", "never").stdout.splitlines()
    assert text[0].startswith("tiny model: 2 responses, ") and "95 % interval" in text[0]
    assert text[1].startswith("Instructions left out: ")
    assert text[2] == f"Stored as {record['artifact']}: {record['file']}"


def test_errors_exit_with_2(tiny, scores, tmp_path, monkeypatch):
    base = tmp_path / "base"
    base.mkdir()
    for file in tiny.iterdir():
        if file.name != "chat_template.jinja":
            (base / file.name).write_bytes(file.read_bytes())
    assert_refused(rmutils, {
        (tiny, "--tau", 0.1, "--top-k", 1): "--tau and --top-k exclude each other",
        (tiny, "--scores", scores, "--tau", 0.4): "reaches tau=0.4",
        (tiny, "--max-new-tokens", 0): "max_new_tokens: expected at least 1",
        (base, "--scores", scores, "--tau", 0.4): "base has no chat template",
    })
    for words in (("--count", 0), ("--policy", "all"), ("--compute", "maybe"), ("--cuont", 1)):
        assert rmutils(tiny, *words).exit_code == 2
