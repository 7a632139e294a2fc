"""Costs by hand from the sizes of a model, recalls from the methods one by one; their curves."""

import shlex

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import DynamicCache
from typer.testing import CliRunner

from rmutils.__main__ import app
from rmutils.attention.gemfilter import GemFilter, choose
from rmutils.attention.select_attention import Select, selecting
from rmutils.attention.share_attention import Share, Unshared
from rmutils.attention.sharing_plans import calibration_prompts, sharing_at
from rmutils.attention.variants import Plain
from rmutils.book.chapters.share_attention.layer_choice import (
    LayersConfig,
    LikenessConfig,
    RecallConfig,
    chosen_near_needle,
    layers,
    likeness,
    recall,
    square,
)
from rmutils.book.chapters.share_attention.savings_curves import (
    along,
    by_half,
    look_up,
    medians,
    memory,
    ratios,
    same_as,
    tokens_kept,
)
from rmutils.book.experiments.run_costs import CostsConfig, costs, seconds_by_part
from rmutils.book.experiments.under_variants import VariantConfig, measure
from rmutils.book.experiments.variant_questions import DocumentsConfig
from rmutils.core.errors import UserError
from rmutils.heads.detection import DetectConfig, build_cases
from rmutils.models import load_model
from rmutils.models.engine.implementations import using
from rmutils.stats import expansion

NEEDLES = DetectConfig(lengths=(160,), depths=(0.0, 1.0), needles=2, max_new_tokens=24)
SHARE = Share(threshold=0.9, prompts=1, tokens=200)
COSTS = CostsConfig(length=160, rounds=2, steps=3, variants={
    "plain": Plain(), "unshared": Unshared(), "share": SHARE,
    "all": Select(filter_layer=1, p=1), "some": Select(filter_layer=1, p=0.9, at_prefill=True),
    "gems": GemFilter(filter_layer=0, tokens=50)})


@pytest.fixture(scope="module")
def lm():
    return load_model("tiny-llama")


@pytest.fixture(scope="module")
def rows(lm):
    return costs(lm, COSTS)["costs"].query("question == 0").set_index("variant")


@pytest.fixture(scope="module")
def case(lm):
    return build_cases(lm, DetectConfig(lengths=(160,), depths=(0.5,), needles=1))[0]


def test_multiply_adds_and_bytes_by_hand(lm, rows, case):
    """Layers: 4 with 16 heads of 32 numbers, 8 key heads, 128 numbers of hidden state, float32."""
    n, m = len(case.input_ids), 50
    layer = sum(p.numel() for p in lm.model.base_model.layers[0].parameters() if p.dim() == 2)
    head = lm.model.lm_head.weight.numel()
    square = 2 * 16 * 32  # of attention, for each query and key
    plain, gems, some = rows.loc["plain"], rows.loc["gems"], rows.loc["some"]
    assert plain["tokens"] == n
    assert plain["prefill_attention"] == 4 * square * n * n
    assert plain["prefill_work"] - plain["prefill_attention"] == 4 * layer * n + head
    assert plain["step_attention"] == pytest.approx(4 * square * (n + 2))
    assert plain["cache_bytes"] == 4 * 2 * 8 * 32 * 4 * (n + 3) and plain["hidden_bytes"] == 0
    # one layer reads the prompt and answers no query, then all of them read 50 tokens
    assert gems["prefill_work"] == layer * n + 4 * (
        layer * m + square * m * m) + head + 16 * 32 * n
    assert gems["cache_bytes"] == 4 * 2 * 8 * 32 * 4 * (m + 3) and gems["kept"] == m / n
    with torch.inference_mode(), selecting(lm.model, COSTS.variants["some"]) as selection:
        lm.model(torch.tensor([case.input_ids]), past_key_values=DynamicCache())
    m = len(selection.chosen[0])
    assert 1 < m < n / 2
    assert some["prefill_work"] == 2 * (layer * n + square * n * n) + 2 * (
        layer * m + square * m * m) + head + 16 * 32 * n
    assert some["cache_bytes"] == plain["cache_bytes"] / 2
    assert some["hidden_bytes"] == 128 * 4 * (n + 3)
    assert rows.loc["all", "kept"] == 1 and 0 < some["kept"] < 0.5


def test_sharing_saves_one_of_two_products(lm, rows, case):
    n, plain, share = len(case.input_ids), rows.loc["plain"], rows.loc["share"]
    assert rows.loc["unshared", "prefill_attention"] == plain["prefill_attention"]
    assert 0.1 < share["kept"] < 0.9
    saved = (1 - share["kept"]) * 64 * 32
    assert plain["prefill_attention"] - share["prefill_attention"] == pytest.approx(saved * n * n)
    assert plain["step_attention"] - share["step_attention"] == pytest.approx(saved * (n + 2))
    assert plain["prefill_work"] - share["prefill_work"] == pytest.approx(saved * n * n)
    assert share["cache_bytes"] == plain["cache_bytes"]


def test_parts_of_the_time_are_those_that_a_variant_has(lm):
    found = seconds_by_part(lm, {"plain": Plain(), "own": Unshared()}, 160, rounds=1)
    assert found.loc["plain", "fused attention"] > 0 == found.loc["plain", "softmax"]
    assert found.loc["own", "softmax"] > 0 == found.loc["own", "fused attention"]
    assert (found["linear layers"] > 0).all() and found.loc["own", "products of attention"] > 0


def test_recall_is_that_of_the_methods_themselves(lm):
    config = RecallConfig(needles=NEEDLES, p=(0.95, 0.5))
    found = recall(lm, config)["recall"]
    assert len(found) == 4 * 4 * 2
    cases = {(c.needle_index, c.depth): c for c in build_cases(lm, NEEDLES)}
    for row in found.query("layer < 3 and place == 1").itertuples():
        case = cases[row.question, row.place]
        needle, n = {*range(*case.needle_span)}, len(case.input_ids)
        sentence = range(*case.inserted_span)
        with torch.inference_mode(), selecting(lm.model, Select(
                filter_layer=row.layer, p=row.p, at_prefill=True)) as selection:
            cache = DynamicCache()
            for ids in (case.input_ids, *([case.input_ids[i]] for i in sentence)):
                lm.model(torch.tensor([ids]), past_key_values=cache)
        chosen = [{*places.tolist()} for places in selection.chosen]
        assert row.prompt == pytest.approx(len(chosen[0] & needle) / len(needle))
        assert row.prompt_kept == pytest.approx(len(chosen[0]) / n)
        assert row.answer == pytest.approx(
            np.mean([len(one & needle) / len(needle) for one in chosen[1:]]))
        assert row.answer_kept == pytest.approx(
            np.mean([len(one) / (n + i) for i, one in enumerate(chosen[1:], 1)]))
        copied = [place in chosen[i] for i, place in enumerate(sentence) if place in needle]
        assert len(copied) == len(needle) and row.next == pytest.approx(np.mean(copied))
        gems = choose(lm, case.input_ids, GemFilter(filter_layer=row.layer,
                                                          tokens=len(chosen[0])))
        assert row.gemfilter == pytest.approx(len({*gems} & needle) / len(needle))
    wide = found.pivot(index=["question", "place", "layer"], columns="p", values="answer")
    assert (wide[0.95] >= wide[0.5]).all() and (wide[0.95] > wide[0.5]).any()


def test_one_layer_after_the_other(lm):
    asked = {"needles": NEEDLES,
             "documents": DocumentsConfig(lengths=(200,), places=(0, 1), questions=2)}
    found = layers(lm, LayersConfig(variant=SHARE, layers=(0, 2), **asked))
    assert [*found["needles"]["variant"].unique()] == ["plain", "0", "2"]
    for name, variant in (("plain", Plain()), ("2", SHARE.model_copy(
            update={"threshold": (0, 0, 0.9, 0)}))):
        alone = measure(lm, VariantConfig(variant=variant, texts=None, **asked))
        for table, frame in alone.items():
            part = found[table][found[table]["variant"] == name].drop(columns="variant")
            pd.testing.assert_frame_equal(part.reset_index(drop=True), frame)
    filters = layers(lm, LayersConfig(variant=Select(p=0.9), needles=NEEDLES,
                                              documents=None))["needles"]
    assert [*filters["variant"].unique()] == ["plain", "0", "1", "2"]
    assert filters.groupby("variant")["kept"].mean().nunique() == 4
    with pytest.raises(UserError, match="no layer 4: it has 4, counted from 0"):
        layers(lm, LayersConfig(variant=SHARE, layers=(0, 4), **asked))


def test_likeness_is_what_heads_share_by(lm):
    config = LikenessConfig(prompts=1, tokens=200, layer=2, cells=4096)
    found = likeness(lm, config)
    assert sharing_at(square(found["distances"], "distance"), 0.9) == SHARE.plan(lm)
    prompt, = calibration_prompts(lm, 1, 200)
    with using(lm.model, "eager"), torch.inference_mode():
        maps = lm.model(torch.tensor([prompt]), output_attentions=True).attentions[2][0]
    np.testing.assert_allclose(square(found["maps"], "weight"), maps.numpy(), atol=1e-6)
    small = square(likeness(lm, config.model_copy(update={"cells": 10}))["maps"], "weight")
    assert small.shape == (16, 10, 10) and small.max() == pytest.approx(float(maps.max()))
    with pytest.raises(UserError, match="no layer 4: tiny-llama has 0 to 3"):
        likeness(lm, config.model_copy(update={"layer": 4}))


def test_what_is_missing_is_named_and_its_command_makes_it(cache):
    config = RecallConfig(needles=NEEDLES.model_copy(update={"needles": 1}), p=(0.5,))
    tables, artifacts, (command,) = look_up("tiny-llama", config, compute="never")
    assert not tables and not artifacts
    assert command.startswith("rmutils variants recall tiny-llama ")
    done = CliRunner().invoke(app, shlex.split(command)[1:])
    assert done.exit_code == 0, done.output
    tables, (artifact,), missing = look_up("tiny-llama", config, compute="never")
    assert not missing and len(tables["recall"]) == 2 * 4
    assert str(artifact.folder) in done.output
    assert artifact.manifest["command"] == command and not artifact.problems()


def test_medians_by_hand():
    table = pd.DataFrame({
        "question": [0, 1, 2] * 2, "variant": ["plain"] * 3 + ["fast"] * 3,
        "seconds": [1.0, 4, 10, 0.5, 1, 9]})
    found = ratios(table, "seconds").set_index("variant")
    assert found.loc["plain", ["value", "low", "high"]].tolist() == [1, 1, 1]
    # medians drawn from three rounds lie between 0.25 and 0.9; no cost is below 0
    assert found.loc["fast", ["value", "low", "high"]].tolist() == pytest.approx(
        [0.5, 0, 0.5 + 0.4 * expansion(3)])
    assert medians(table, "seconds")["value"].tolist() == [4, 1]


def test_lines_and_halves_by_hand():
    right = {"plain": [1, 1, 0, 1], "0": [0, 1, 0, 0], "1": [1, 1, 0, 0], "2": [1, 1, 1, 1],
             "3": [1, 1, 0, 1]}
    table = pd.DataFrame([
        {"variant": name, "length": 9, "question": i // 2, "place": i % 2, "correct": value}
        for name, values in right.items() for i, value in enumerate(values)])
    halves = by_half(table, 4).set_index("variant")["effect"]
    assert halves["first half"] == pytest.approx((1 + 2) / 8 - 3 / 4)
    assert halves["second half"] == pytest.approx((4 + 3) / 8 - 3 / 4)
    assert len(along(table, {"3": ("a", 0)})) == 4


def test_what_is_kept_by_hand():
    none = float("nan")
    tables = {name: pd.DataFrame({"variant": ["plain", "select", "select"], "question": [0, 0, 1],
                                  "kept": kept}) for name, kept in (
        ("documents", [1, 0.2, none]), ("needles", [1, 0.4, 0.6]))}
    found = tokens_kept(tables)
    assert found["value"].to_dict() == pytest.approx({"plain": 1, "select": 0.4})
    assert found["samples"].tolist() == [2, 3]
    costs = pd.DataFrame({"variant": ["plain", "select"] * 2, "cache_bytes": [90, 45, 110, 55],
                          "hidden_bytes": [0, 10, 0, 20]})
    assert memory(costs).loc["select", ["cache", "both"]].tolist() == [0.5, 0.65]


def test_same_answers_by_hand():
    tables = {"needles": pd.DataFrame({"variant": ["plain"] * 2 + ["a"] * 2 + ["b"] * 2,
                                       "response": ["x", "y", "x", "y", "x", "z"]}),
              "texts": pd.DataFrame({"variant": ["plain", "a", "b"], "nats": [1, 1, 1.0001]})}
    assert same_as(tables, "a") == (3, 3) and same_as(tables, "b") == (1, 3)


def test_words_near_the_needle_are_chosen_as_recall_counts_them(lm):
    config = RecallConfig(needles=NEEDLES, p=(0.5,))
    case = build_cases(lm, NEEDLES)[0]
    row = recall(lm, config)["recall"].query("layer == 1").iloc[0]
    before, copied = chosen_near_needle(lm, config, 1, 0.5, around=3).values()
    first, last = case.inserted_span
    start = max(first - 3, 0)
    assert len(before) == len(copied) == last + 3 - start
    text = lm.tokenizer.decode(case.input_ids[first:last])
    assert "".join(word for word, _ in before[first - start:last - start]) == text
    first, last = (place - start for place in case.needle_span)
    assert np.mean([chosen for _, chosen in before[first:last]]) == pytest.approx(row["prompt"])
