"""`rmutils variants`."""

import json

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from rmutils.__main__ import app
from rmutils.book.commands.measure import MEASURED, SHOWN, summaries
from rmutils.book.experiments.under_variants import VariantConfig, measure
from rmutils.core import results
from rmutils.models import load_model

TEXTS = {"variant": {"kind": "ms-poe", "s_max": 4}, "needles": None, "documents": None,
         "texts": {"count": 2, "tokens": 40}}
OPTIONS = ["--variant.kind", "ms-poe", "--variant.s-max", "4", "--needles", "none", "--documents",
           "none", "--texts.count", "2", "--texts.tokens", "40"]


def command(*words):
    return CliRunner().invoke(app, ["variants", *words])


def test_answers_are_those_of_the_configuration(cache):
    done = command("answers", "tiny-llama", *OPTIONS, "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    artifact = results.find(found["artifact"])
    assert found["facts"] == {"texts": 2} and str(artifact.folder) == found["folder"]
    [perplexity] = found["means"]["perplexity of short texts"]
    table = measure(load_model("tiny-llama"), VariantConfig.model_validate(TEXTS))["texts"]
    pd.testing.assert_frame_equal(pd.read_parquet(artifact.path("texts.parquet")), table)
    assert perplexity["variant"] == "ms-poe" and perplexity["samples"] == 2
    assert perplexity["value"] == pytest.approx(np.exp(table["nats"].mean()))
    again = command("answers", "tiny-llama", json.dumps(TEXTS), "--compute", "never")
    assert again.exit_code == 0 and "texts: 2" in again.stdout and found["folder"] in again.stdout
    assert f"{perplexity['value']:.3g}" in again.stdout


@pytest.mark.parametrize("name", MEASURED)
def test_each_measurement_shows_means(name):
    """Of results that came with the book, against plain means."""
    stage = {"answers": "variant", "heads": "variant-heads"}.get(name, name)
    tables = results.read_tables(next(a.folder for a in results.stored(stage) if a.shipped))
    by, shown = SHOWN[name]
    for title, means in summaries(name, tables, "x").items():
        table, column = next((table, column) for what, table, column in shown if what == title)
        rows = tables[table]
        if name == "likeness":
            rows = rows.query("head != other")
        plain = rows.groupby([*(["variant"] * ("variant" in rows)), *([by] * (by in rows))] or (
            lambda _: 0), sort=False)[column].mean().to_numpy()
        assert means["value"].to_numpy() == pytest.approx(
            np.exp(plain) if column == "nats" else plain)
        assert (means["low"] <= means["value"]).all() and (means["value"] <= means["high"]).all()


@pytest.mark.parametrize(("words", "message"), [
    (["answers", "tiny-llama", '{"variant": {"kind": "magic"}}'], "variant"),
    (["answers", "tiny-llama", "--variant.kind", "magic"], "ms-poe, plain, "),
    (["answers", "tiny-llama", "{"], "not fit: this is not valid JSON"),
    (["recall", "tiny-llama", '{"p": [2]}'], "the configuration of recall does not fit: p: "),
    (["heads", "tiny-llama", "--compute", "never"], "Make it: `rmutils variants heads tiny-llama"),
    (["costs", "tiny-llama", "--compute", "never"], "Make it: `rmutils variants costs tiny-llama")])
def test_bad_input(cache, words, message):
    done = command(*words)
    assert done.exit_code == 2 and done.stdout == ""
    assert done.stderr.startswith("rmutils: ") and message in done.stderr
