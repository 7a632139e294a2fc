"""`rmutils variants`."""

import json

import pandas as pd
import pytest
from typer.testing import CliRunner

from rmutils.cli import app
from rmutils.cli.measure import MEASURED
from rmutils.core import results
from rmutils.experiments.savings_curves import MEASUREMENTS
from rmutils.experiments.under_variants import VariantConfig, measure
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
    table = measure(load_model("tiny-llama"), VariantConfig.model_validate(TEXTS))["texts"]
    pd.testing.assert_frame_equal(pd.read_parquet(artifact.path("texts.parquet")), table)
    again = command("answers", "tiny-llama", json.dumps(TEXTS), "--compute", "never")
    assert again.exit_code == 0 and "texts: 2" in again.stdout and found["folder"] in again.stdout


def test_every_measurement_is_explained():
    assert {*MEASURED} == {"answers", "heads", *MEASUREMENTS}
    shown = command("--help").stdout
    assert "Example: rmutils variants answers" in shown


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
