"""What is measured is what the models say, one question at a time; a stopped run goes on."""

import math
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from rmutils.core.errors import UserError
from rmutils.core.paths import CORPORA
from rmutils.corpora.niah import load_haystacks
from rmutils.evaluation.abilities import evaluate_abilities, short_tasks
from rmutils.evaluation.abilities.ability_tasks import TASKS, tasks_of
from rmutils.evaluation.abilities.evaluate_abilities import (
    GeneralConfig,
    drift_table,
    evaluate_general,
    passage_drift,
)
from rmutils.evaluation.abilities.sandbox import Outcome
from rmutils.evaluation.answers import answer
from rmutils.heads.masking import mask_heads
from rmutils.models.language_model import passages
from tests.conftest import make_lm

SMALL = GeneralConfig(samples=3, passages=2, passage_tokens=20)


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    """Answers of three tokens are enough here. They are no programs, so no sandbox is needed."""
    monkeypatch.setattr(evaluate_abilities, "missing", lambda: "")
    monkeypatch.setattr(short_tasks, "call", lambda *given: Outcome())
    for name, task in tasks_of("book").items():
        monkeypatch.setitem(TASKS._known, f"book/{name}", replace(
            task, max_new_tokens=min(task.max_new_tokens, 3)))


def log_odds(lm, prompt: list[int], answer: list[int]) -> float:
    """One forward pass for each token."""
    total = 0.0
    for i, token in enumerate(answer):
        with torch.inference_mode():
            row = lm.model(torch.tensor([[*prompt, *answer[:i]]])).logits[0, -1]
        total += row.double().log_softmax(0)[token].item()
    return total


def test_one_question_at_a_time(lm):
    found = evaluate_general(lm, SMALL).samples
    assert found["task"].unique().tolist() == list(tasks_of("book"))
    for name, (task, items) in SMALL.items("book").items():
        rows = found[found["task"] == name]
        assert rows["sample"].tolist() == [0, 1, 2]
        for item, row in zip(items, rows.itertuples(), strict=True):
            prompt = lm.render(item.prompt)
            if item.options:
                ids = [lm.tokenizer.encode(option) for option in item.options]
                odds = [log_odds(lm, prompt, one) / len(text)
                        for one, text in zip(ids, item.options, strict=True)]
                said = item.options[int(np.argmax(odds))]
            else:
                said, = answer(lm, [prompt], max_new_tokens=task.max_new_tokens)
            assert (row.response, row.kind, row.score) == (said, item.kind, item.score(said))


def test_masked_heads_are_silent(llama):
    """The answers are those of a model that was masked before, and of the whole one afterwards."""
    heads = ((0, 1), (2, 3), (3, 0), (3, 1), (3, 2), (3, 3))
    config = SMALL.changed({"masked": heads})
    whole = evaluate_general(llama, SMALL).samples
    found = evaluate_general(llama, config).samples
    with mask_heads(llama, heads):
        expected = evaluate_general(llama, SMALL).samples
    pd.testing.assert_frame_equal(found, expected)
    assert (found["response"] != whole["response"]).any()
    pd.testing.assert_frame_equal(evaluate_general(llama, SMALL).samples, whole)
    assert config.digest() != SMALL.digest() == SMALL.changed({"masked": ()}).digest()


def test_without_a_sandbox_programs_are_skipped(llama, monkeypatch):
    """The others are asked as before; where nothing else is asked for, that is an error."""
    whole = evaluate_general(llama, SMALL).samples
    monkeypatch.setattr(evaluate_abilities, "missing", lambda: "it is missing")
    monkeypatch.setattr(short_tasks, "call", None)
    why = "code: skipped, because it is missing"
    with pytest.warns(match=why):
        found = evaluate_general(llama, SMALL).samples
    pd.testing.assert_frame_equal(found, whole[whole["task"] != "code"].reset_index(drop=True))
    with pytest.raises(UserError, match=why):
        evaluate_general(llama, SMALL.changed({"tasks": ("code",)}))


def test_options_of_teaching_models_count_per_character(llama, monkeypatch):
    """Long options would lose if the sum decided."""
    monkeypatch.setattr(type(llama), "corpus", "world")
    config = GeneralConfig(samples=12, tasks=("multiple choice",))
    found = evaluate_general(llama, config).samples
    (_, items), = config.items("world").values()
    wins = []
    for item, said in zip(items, found["response"], strict=True):
        sums = {o: log_odds(llama, llama.render(item.prompt), llama.tokenizer.encode(o))
                for o in item.options}
        assert said == max(sums, key=lambda o: sums[o] / len(o))
        wins.append(said == max(sums, key=sums.get))
    assert not all(wins)


def test_drift_token_by_token(tokenizer):
    """Both directions of the divergence, from the sums that define them."""
    trained, base = make_lm("llama", tokenizer, 1), make_lm("llama", tokenizer, 0)
    found = evaluate_general(trained, SMALL, base=base).drift
    texts, turn = passages(trained, 2, 20)
    for text, row in zip(texts, found.itertuples(), strict=True):
        sums = np.zeros(4)
        for place in range(turn + 1, len(text)):
            with torch.inference_mode():
                q, p = (lm.model(torch.tensor([text[:place]])).logits[0, -1].double().softmax(0)
                        .tolist() for lm in (trained, base))
            token = text[place]
            sums += [-math.log(p[token]), -math.log(q[token]),
                     sum(a * math.log(a / b) for a, b in zip(p, q, strict=True)),
                     sum(b * math.log(b / a) for a, b in zip(p, q, strict=True))]
        assert row.tokens == 19
        got = (row.base_nats, row.nats, row.from_base, row.from_trained)
        np.testing.assert_allclose(got, sums, rtol=1e-4)
    table = drift_table(found).set_index("measure")["value"]
    tokens = found["tokens"].sum()
    assert table["KL from the base model"] == pytest.approx(found["from_base"].sum() / tokens)
    assert table["perplexity before"] == pytest.approx(
        math.exp(found["base_nats"].sum() / tokens))
    assert table["perplexity after / before"] == pytest.approx(
        table["perplexity after"] / table["perplexity before"])
    assert table["KL from the base model"] > 0.1 != table["KL from the trained model"] > 0.1


def test_more_passages_than_there_is_text(llama):
    with pytest.raises(UserError, match="100000 passages of 400 tokens: .* only") as refused:
        passages(llama, 100_000, 400)
    room = int(re.search(r"only (\d+)", str(refused.value))[1])
    with pytest.raises(UserError):
        passages(llama, room + 1, 400)
    texts, turn = passages(llama, room, 400)
    assert {len(text) - turn for text in texts} == {400}
    parts = load_haystacks(CORPORA[llama.corpus] / "haystack")
    assert texts[0][turn:] + texts[len(parts)][turn:] == llama.encode(parts[0].text)[:800]


def test_other_vocabularies_cannot_be_compared(tokenizer):
    one, other = make_lm("llama", tokenizer), make_lm("llama", tokenizer)
    other.model.resize_token_embeddings(520)
    with pytest.raises(UserError, match="has 512 tokens and random-llama 520"):
        passage_drift(one, other, [3, 4, 5], 1)


def test_a_model_without_turns_is_refused(llama, monkeypatch):
    monkeypatch.setattr(llama.tokenizer, "chat_template", None)
    with pytest.raises(UserError, match="random-llama has no chat template"):
        evaluate_general(llama, SMALL)
