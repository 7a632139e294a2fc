"""`rmutils pairs`, on small random models."""

import json
from contextlib import contextmanager

import pandas as pd
import pytest
from typer.testing import CliRunner

from rmutils.__main__ import app
from rmutils.models import load_model
from rmutils.preference.instructions import draw
from rmutils.preference.pairs import make_pairs
from rmutils.preference.responses import ResponseConfig, Transformers, respond
from tests.cli.conftest import assert_refused
from tests.servers import Answering, serving

FEW = ("--pairs", 8, "--max-new-tokens", 6)


def rmutils(*words):
    return CliRunner().invoke(app, ["pairs", *map(str, words)])


@pytest.fixture
def make(tiny, scores, tmp_path):
    """Runs the command with its scores from a file; the record and the table."""
    def make(*words) -> tuple[dict, pd.DataFrame]:
        out = tmp_path / "made" / "pairs.parquet"
        done = rmutils(tiny, *FEW, "--scores", scores, "--out", out, "--json", *words)
        assert done.exit_code == 0, done.output
        record = json.loads(done.stdout)
        assert record["file"] == str(out)
        return record, pd.read_parquet(out)

    return make


def responses(model, **settings) -> pd.DataFrame:
    config = ResponseConfig(max_new_tokens=6, **settings)
    return respond(Transformers(load_model(str(model))), draw("world", 8).instructions, config)


def test_retmask(tiny, make):
    """The whole model against the masked one, with what was dropped and how long they are."""
    record, table = make("--tau", 0.05)
    pairs = make_pairs(responses(tiny), responses(tiny, heads=((0, 2), (3, 1))))
    pd.testing.assert_frame_equal(table, pairs.table)
    assert record["dropped"] == pairs.dropped and record["pairs"] == len(table)
    assert (record["heads"], record["judge"], record["left_out"]) == ([[3, 1], [0, 2]], None, {})
    tokenizer = load_model(str(tiny)).tokenizer
    lengths = {"prompt": table["prompt"].map(lambda text: len(tokenizer(text).input_ids)),
               "chosen": table["chosen_tokens"], "rejected": table["rejected_tokens"]}
    for side, tokens in lengths.items():
        assert record["tokens"][side]["mean"] == pytest.approx(tokens.mean())
    assert len(record["artifacts"]) == 2


def test_settings_reach_the_responses(tiny, make):
    _, table = make("--temperature", 0.9, "--top-p", 0.8, "--seed", 4, "--no-thinking")
    config = ResponseConfig(max_new_tokens=6, temperature=0.9, top_p=0.8, seed=4, thinking=False)
    whole = respond(Transformers(load_model(str(tiny))), draw("world", 8, seed=4).instructions,
                    config).set_index("id")
    assert table["chosen"].tolist() == whole.loc[table["id"], "text"].tolist()


@contextmanager
def server(get, post):
    """Answers requests with what two functions make of the path, and of what is posted."""
    class Handler(Answering):
        def do_GET(self):  # noqa: N802
            self.send(get(self.path))

        def do_POST(self):  # noqa: N802
            self.send(post(self.posted()))

    with serving(Handler) as server:
        yield server.address


def rating(text: str) -> int:
    """How many vowels it has, up to ten."""
    return min(10, 1 + sum(text.count(vowel) for vowel in "aeiou"))


def test_server_judges(make):
    models = set()

    def judge(asked):
        models.add(asked["model"])
        response = asked["messages"][0]["content"].split("<response>")[1].split("</response>")[0]
        return {"choices": [{"message": {"content": f"[[{rating(response)}]]"}}]}

    with server(None, judge) as url:
        record, table = make("--strategy", "win-lose-pair", "--judge", url, "--judge-model", "own")
    assert record["judge"] == "own" and models == {"own"}
    assert (table["chosen"].map(rating) > table["rejected"].map(rating)).all() and len(table)
    assert record["pairs"] + sum(record["dropped"].values()) == 8


def test_servers_answer(tiny, scores, make, tmp_path):
    """One serves the whole model, and one what `rmutils mask` wrote."""
    done = CliRunner().invoke(app, ["mask", str(tiny), "--scores", scores, "--out",
                                    str(tmp_path / "masked")])
    assert done.exit_code == 0, done.output

    def answers(text):
        return lambda asked: {"choices": [{"text": text, "finish_reason": "stop"}],
                              "usage": {"completion_tokens": 3}}

    with (server(lambda path: {"data": [{"id": "tiny model"}]}, answers("Whole.")) as whole,
          server(lambda path: {"data": [{"id": "masked"}]}, answers("Masked.")) as masked):
        _, table = make("--server", whole, "--server", f"{masked}={tmp_path / 'masked'}")
    assert {*table["chosen"]} == {"Whole."} and {*table["rejected"]} == {"Masked."}
    assert len(table) == 8


def test_errors_exit_with_2(tiny, scores, tmp_path):
    """Before anything is written, and what is cheap to see before the model is loaded."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("mine")
    out = ("--out", tmp_path / "pairs.parquet")
    assert_refused(rmutils, {
        ("no-model", *out, "--strategy", "luck"):
            "'luck' is no strategy. There are: retmask, smaller-model, win-lose-pair, "
            "non-retrieval-mask, random-mask, layer-matched-non-retrieval-mask, "
            "layer-matched-random-mask, sft, rc-removed, rc-un-generated, longreward",
        ("no-model", *out, "--strategy", "smaller-model"): "needs --smaller MODEL",
        ("no-model", "--out", tmp_path / "folder"): "is a folder",
        ("no-model", "--out", tmp_path / "pairs.xlsx"): "ends in .parquet, .jsonl or .csv",
        ("no-model", "--out", tmp_path / "file" / "pairs.parquet"): "cannot be written",
        ("no-model", *out): "no model is called 'no-model'",
        (tiny, *out, "--strategy", "win-lose-pair", "--judge", "me"): "'me' is not the address",
        (tiny, *out, *FEW, "--scores", scores, "--compute", "never"): "Make it: `rmutils ",
    })
    assert not (tmp_path / "pairs.parquet").exists() and (tmp_path / "file").read_text() == "mine"
    for words in (out, (tiny,), (tiny, *out, "--pairs", 0), (tiny, *out, "--compute", "maybe")):
        assert rmutils(*words).exit_code == 2
