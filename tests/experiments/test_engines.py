"""Answers by two engines: where they part, how they are sampled, and what is stored of them."""

import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from rmutils import load_model
from rmutils.book.chapters.data_and_training import engines as module
from rmutils.book.chapters.data_and_training.engines import (
    ENGINES,
    MASKED,
    OURS,
    THEIRS,
    WHOLE,
    EnginesConfig,
    compare_engines,
    run_of,
    runs_by_engine,
)
from rmutils.core.results import read_tables
from rmutils.heads import mask_heads
from rmutils.models.engine.generation import generate, next_token_logits
from rmutils.stats import interval

CONFIG = EnginesConfig(model="tiny-llama", seed=0, instructions=6, max_new_tokens=24,
                       temperature=0.6)
TIE = ENGINES.read_plan().content["tie"]


@pytest.fixture(scope="module")
def lm():
    return load_model("tiny-llama", device="cpu")


@pytest.fixture(scope="module")
def runs():
    """The stored runs, with their models and instructions."""
    found = ENGINES.collect()
    assert len(found.stored) == 3 and not found.missing and not found.deviations
    return {model: read_tables(one.folder) for (model,), one in found.stored.items()}


def compared(lm, ours, theirs, sampled):
    return [*module._compared(lm, prompt(lm), ours, theirs, sampled, CONFIG)]


def prompt(lm):
    return lm.render("Repeat: the old mill.")


def logits_after(lm, tokens):
    return next_token_logits(lm, prompt(lm) + tokens)[-1].double().numpy()


def test_where_answers_part(lm):
    """One token differs; one answer ends where the other goes on."""
    said, = generate(lm, [prompt(lm)], max_new_tokens=4)
    other = (said[1] + 1) % 500
    _, row, _ = compared(lm, said, [said[0], other], [])
    logits = logits_after(lm, said[:1])
    assert row["at"] == 1
    assert row["gap"] == pytest.approx(logits[said[1]] - logits[other], abs=1e-4)
    _, row, _ = compared(lm, said[:2], said, [])
    logits = logits_after(lm, said[:2])
    assert row["at"] == 2 and row["gap"] == pytest.approx(
        max(logits[stop] for stop in lm.stop_ids) - logits[said[2]], abs=1e-4)
    _, row, _ = compared(lm, said, said, [])
    assert math.isnan(row["at"]) and math.isnan(row["gap"])


def test_surprise_by_hand(lm):
    said, = generate(lm, [prompt(lm)], max_new_tokens=5, temperature=0.6, seeds=[4])
    row = compared(lm, [], [], said[:3])[-1]
    total = 0.0
    for drawn, before in (*((said[i], said[:i]) for i in range(3)), (None, said[:3])):
        odds = np.exp((logits_after(lm, before) - logits_after(lm, before).max()) / 0.6)
        odds /= odds.sum()
        stop = sum(odds[token] for token in lm.stop_ids)
        rest = [odds[i] for i in range(len(odds)) if i not in lm.stop_ids]
        expected = -sum(p * math.log(p) for p in [*rest, stop] if p)
        total += -math.log(stop if drawn is None else odds[drawn]) - expected
    assert row["drawn"] == 4 and row["surprise"] == pytest.approx(total, abs=1e-3)


def test_surprise_is_expected_at_the_temperature_of_the_draws_only(lm):
    prompts = [lm.render(f"Tell me about {name}.") for name in ("a mill", "a town", "my friend")]

    def surprise(temperature):
        drawn = generate(lm, prompts * 40, max_new_tokens=24, temperature=temperature)
        rows = [[*module._compared(lm, one, [], [], said, CONFIG)][-1]
                for one, said in zip(prompts * 40, drawn, strict=True)]
        return interval([row["surprise"] for row in rows])

    same, hotter = surprise(0.6), surprise(0.8)
    assert same.low < 0 < same.high and hotter.low > 0


class Other:
    """Answers as transformers does, but for the last token of the third answer."""

    def __init__(self, lm):
        self.lm, self.asked = lm, []

    @classmethod
    def version(cls):
        return "vllm 0.32.0"

    def write(self, instructions, how, done):
        self.asked.append((how.heads, how.temperature))
        prompts = [self.lm.render(one.text, thinking=True) for one in instructions]
        with mask_heads(self.lm, how.heads):
            said = generate(self.lm, prompts, max_new_tokens=how.max_new_tokens,
                            temperature=how.temperature)
        for index, tokens in reversed([*enumerate(said)]):  # in any order
            done(index, [*tokens[:-1], 7] if index == 2 else tokens, len(tokens) < 24)

    def close(self):
        pass


def test_a_run_from_its_answers_to_its_comparison(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "VLLM", Other)
    run = run_of(CONFIG)
    module._make(CONFIG, tmp_path)
    tables = read_tables(tmp_path)
    answers = tables["answers"]
    assert len(answers) == 6 * 2 * 3 and answers["id"].nunique() == 6
    assert [*answers["id"].unique()] == [*run.pairs["id"][:6]]
    found = compare_engines(answers, tables["seconds"])
    assert (found["instructions"], found[WHOLE], found[MASKED], found["pairs"]) == (6, 5, 5, 5)
    assert found["gap"] > TIE and found[OURS] > 0 and found[THEIRS] > 0
    # A killed run finds its answers: nobody is asked again.
    monkeypatch.setattr(Other, "write", lambda *_: pytest.fail("asked"))
    monkeypatch.setattr(module, "generate", lambda *_: pytest.fail("asked"))
    module._make(CONFIG, tmp_path)
    pd.testing.assert_frame_equal(read_tables(tmp_path)["answers"], answers)


def test_another_version_of_vllm_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "VLLM", SimpleNamespace(version=lambda: "vllm 0.31.0"))
    with pytest.raises(module.UserError, match=r"vllm 0\.31\.0 .* vllm 0\.32\.0"):
        module._make(CONFIG, tmp_path)


def test_what_is_stored_counted_again(runs):
    """Token by token, from the stored answers."""
    for model, tables in runs.items():
        said = {(row.side, row.decoding, row.engine, row.id): [*row.tokens]
                for row in tables["answers"].itertuples()}
        asked = [*dict.fromkeys(key[-1] for key in said)]
        same = {side: [said[side, "greedy", OURS, one] == said[side, "greedy", THEIRS, one]
                       for one in asked] for side in (WHOLE, MASKED)}
        found = compare_engines(tables["answers"], tables["seconds"])
        assert found["instructions"] == len(asked)
        assert {side: found[side] for side in same} == {side: sum(of) for side, of in same.items()}
        assert found["pairs"] == sum(map(all, zip(*same.values(), strict=True)))
        parted = tables["answers"]["gap"].dropna()
        assert len(parted) == sum(not one for of in same.values() for one in of)
        assert parted.between(0, TIE).all(), model  # a tie within rounding
        low, high = found["surprise"][1:]
        assert low < 0 < high, model


def test_stored_answers_come_out_again(runs, lm):
    """Ours, of the model that is at hand; the texts are those of the tokens."""
    config, run = ENGINES.runs()[("tiny-llama",)], run_of(ENGINES.runs()[("tiny-llama",)])
    answers = runs["tiny-llama"]["answers"].query(
        "engine == @OURS and side == @MASKED").set_index("id")
    some = run.pairs.head(config.instructions).iloc[::8]
    with mask_heads(lm, run.heads):
        said = generate(lm, [lm.render(text, thinking=True) for text in some["prompt"]],
                        max_new_tokens=config.max_new_tokens)
    assert [[*answers["tokens"][one]] for one in some["id"]] == said
    assert [*answers["text"][some["id"]]] == lm.tokenizer.batch_decode(
        said, skip_special_tokens=True)


def test_what_the_chapter_says_of_the_run_by_vllm():
    table = runs_by_engine()
    ours, others = table[table["engine"] == OURS], table[table["engine"] != OURS]
    assert ours["seed"].tolist() == [*range(5)] and len(others) == 1
    (other,) = others.to_dict("records")
    for name in ("pairs", "chosen", "rejected", "found"):
        assert ours[name].min() <= other[name] <= ours[name].max()
    assert 0 < ours["score"].min() - other["score"] < 0.001
    assert other["engine"].startswith("vllm") and 0 < other["same_rejected"] < other["same_chosen"]
