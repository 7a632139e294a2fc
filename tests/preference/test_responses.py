"""Responses are a function of model, instruction and settings, however often one is stopped."""

import pandas as pd

from rmutils.heads.masking import mask_heads
from rmutils.preference.instructions import Instruction
from rmutils.preference.responses import ResponseConfig, Transformers, respond, respond_stored
from tests.conftest import two_families

TEXTS = ("Who is the mayor of Saltbury?", "Sing.", "Repeat this: a b c d e f g h i j k l", "Why?",
         "Name three animals that live near the river, and say what they eat.")
ASKED = [Instruction.of(text) for text in TEXTS]
SHORT = ResponseConfig(max_new_tokens=12)


def test_defaults_are_those_of_the_authors_scripts():
    config = ResponseConfig()
    assert (config.temperature, config.top_p, config.max_new_tokens) == (0.6, 1.0, 2048)


@two_families
def test_one_response_per_instruction(lm):
    table = respond(Transformers(lm), ASKED, SHORT)
    assert table["id"].tolist() == [i.id for i in ASKED]
    assert table["instruction"].tolist() == list(TEXTS)
    assert ((table["tokens"] < 12) == table["finished"]).all() and (table["tokens"] <= 12).all()
    again = respond(Transformers(lm, batch_tokens=1), ASKED[::-1], SHORT)
    pd.testing.assert_frame_equal(again[::-1].reset_index(drop=True), table)


def test_seeds(llama):
    """Another seed, other heads, another instruction: other numbers are drawn."""
    with_heads = SHORT.model_copy(update={"heads": ((0, 1), (2, 3))})
    seeds = {c.seed_of(i) for i in ASKED for c in
             (SHORT, with_heads, SHORT.model_copy(update={"seed": 1}))}
    assert len(seeds) == 3 * len(ASKED)
    one, two = (respond(Transformers(llama), ASKED, SHORT.model_copy(update={"seed": seed}))
                for seed in (0, 1))
    assert (one["text"] != two["text"]).any()


@two_families
def test_masked_responses_are_those_of_a_masked_model(lm):
    heads = ((1, 0), (3, 2), (2, 1))
    greedy = ResponseConfig(max_new_tokens=8, temperature=0)
    found = respond(Transformers(lm), ASKED, greedy.model_copy(update={"heads": heads}))
    whole = respond(Transformers(lm), ASKED, greedy)
    with mask_heads(lm, heads):
        expected = respond(Transformers(lm), ASKED, greedy)
    pd.testing.assert_frame_equal(found, expected)
    assert (found["text"] != whole["text"]).any()


def test_stored(llama, tmp_path, monkeypatch):
    monkeypatch.setenv("RMUTILS_CACHE", str(tmp_path))
    table, artifact = respond_stored(Transformers(llama), ASKED, SHORT)
    again, same = respond_stored(Transformers(llama), ASKED, SHORT, compute="never")
    pd.testing.assert_frame_equal(again, table)
    assert same == artifact and artifact.problems() == []
    assert artifact.manifest["facts"]["responses"] == 5
    other = SHORT.model_copy(update={"heads": ((0, 0),)})
    assert respond_stored(Transformers(llama), ASKED, other)[1].name != artifact.name
