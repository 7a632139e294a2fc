"""Heads at work and their cards: against residual streams, counts by hand and slow loops."""

import json
from contextlib import ExitStack

import numpy as np
import pandas as pd
import pytest
import torch

from rmutils import DetectConfig, HeadScores, UserError
from rmutils.book.chapters.heads_at_work import contribution
from rmutils.book.chapters.heads_at_work import ordinary_texts as module
from rmutils.book.chapters.heads_at_work.cards import contributions, head_cards
from rmutils.book.chapters.heads_at_work.experiment import (
    HeadsAtWorkConfig,
    WatchConfig,
    heads_at_work,
)
from rmutils.book.chapters.heads_at_work.findings import (
    OTHERS,
    POSSIBLE,
    RETRIEVAL,
    by_window,
    difference,
    level,
    weights,
)
from rmutils.book.chapters.heads_at_work.ordinary_texts import sources, stretches, windows
from rmutils.book.chapters.heads_at_work.plots import card_view, cards_figure
from rmutils.heads.attention_kinds import KINDS, copyable, looks

TEXT = "the cat sat on the mat and the dog sat by the cat on the mat. " * 4


@torch.inference_mode()
def slow(lm, ids):
    """What all heads of each layer together add to the next token's logit, (layers, N - 2): the
    change of the residual stream in a layer, less what its MLP adds; and the logits themselves."""
    model, seen = lm.model, {}
    blocks = model.base_model.layers
    with ExitStack() as hooks:
        def keep(name):
            return lambda part, given, out: seen.__setitem__(
                name, out[0] if isinstance(out, tuple) else out)

        for i, block in enumerate(blocks):
            hooks.callback(block.register_forward_hook(keep(("out", i))).remove)
            hooks.callback(block.register_forward_pre_hook(
                lambda part, given, i=i: seen.__setitem__(("in", i), given[0])).remove)
            last = getattr(block, "post_feedforward_layernorm", block.mlp)
            hooks.callback(last.register_forward_hook(keep(("mlp", i))).remove)
        model(torch.tensor([ids]))
    end = seen["out", len(blocks) - 1][0].double()
    rms = (end.pow(2).mean(-1, keepdim=True) + model.config.rms_norm_eps).sqrt()
    gain = model.base_model.norm.weight.double() + (1 if lm.family == "gemma3_text" else 0)
    rows = model.get_output_embeddings().weight.double()[list(ids[2:])]
    return np.stack([
        ((seen["out", i] - seen["in", i] - seen["mlp", i].view(seen["in", i].shape))[0].double()
         / rms * gain)[1:-1].mul(rows).sum(-1) for i in range(len(blocks))])


def test_heads_of_a_layer_add_what_the_residual_stream_shows(lm):
    """Also with a norm after attention and with windows."""
    ids = lm.encode(TEXT, begin=True)[:60]
    _, right, added = contributions(lm, ids)
    expected = slow(lm, ids)
    np.testing.assert_allclose(right.sum(1), expected, atol=1e-4 * np.abs(expected).max())
    assert added.shape == (*lm.shape, 58)


@torch.inference_mode()
def test_each_head_adds_what_its_columns_write(llama):
    """In float64, head by head and token by token; the mean over all tokens is subtracted."""
    ids = llama.encode(TEXT, begin=True)[:20]
    _, right, added = contributions(llama, ids)
    model, came = llama.model, {}
    with ExitStack() as hooks:
        for i, block in enumerate(model.base_model.layers):
            hooks.callback(block.self_attn.o_proj.register_forward_pre_hook(
                lambda part, given, i=i: came.__setitem__(i, given[0][0])).remove)
        hooks.callback(model.base_model.norm.register_forward_pre_hook(
            lambda part, given: came.__setitem__("end", given[0][0].double())).remove)
        model(torch.tensor([ids]))
    matrix = model.get_output_embeddings().weight.double()
    rms = (came["end"].pow(2).mean(-1) + model.config.rms_norm_eps).sqrt()
    for layer, head, at in [(0, 0, 1), (1, 3, 7), (3, 2, 18)]:
        columns = slice(8 * head, 8 * head + 8)
        wrote = model.base_model.layers[layer].self_attn.o_proj.weight.double()[:, columns] @ (
            came[layer][at, columns].double())
        logits = matrix @ (wrote / rms[at] * model.base_model.norm.weight.double())
        assert right[layer, head, at - 1] == pytest.approx(float(logits[ids[at + 1]]), rel=1e-3)
        assert added[layer, head, at - 1] == pytest.approx(
            float(logits[ids[at + 1]] - logits.mean()), rel=1e-3)


def test_a_small_run_by_a_slow_loop(llama, monkeypatch):
    monkeypatch.setattr(module, "sources", lambda: {"prose": [TEXT, TEXT[8:], TEXT[4:]]})
    mean = np.zeros((4, 4))
    mean[1, 2], mean[3, 0] = 0.5, 0.2
    config = WatchConfig(detect=DetectConfig(), tau=0.1, tokens=40, windows=2)
    found = head_cards(llama, HeadScores(mean[None], "a model"), config)
    heads, kinds = found["heads"], found["kinds"]
    assert len(heads) == 16 and heads["retrieval"].sum() == 2 and len(kinds) == 2 * 16
    texts = [llama.encode(text, begin=True)[:40] for text in (TEXT, TEXT[8:])]
    row = kinds[(kinds["layer"] == 1) & (kinds["head"] == 2) & (kinds["window"] == 1)].iloc[0]
    seen, right, added = contributions(llama, texts[1])
    for i, kind in enumerate(KINDS):
        at = [n for n in range(38) if seen.kinds[1, 2, n] == i]
        assert row[kind] == len(at)
        assert row[f"added_{kind}"] == pytest.approx(sum(added[1, 2, n] for n in at), abs=1e-4)
    assert row["right"] == pytest.approx(right[1, 2].sum(), rel=1e-4)
    example = found["examples"].query("layer == 1 and head == 2").iloc[0]
    best = max(looks(llama, ids).weight[1, 2, n] for ids in texts for n in range(38)
               if KINDS[looks(llama, ids).kinds[1, 2, n]] in ("copy", "induction", "other"))
    assert example["weight"] == pytest.approx(best)
    ids, at = texts[example["window"]], example["position"]
    assert example["next"] == llama.tokenizer.decode(ids[at + 1])
    assert not {*found["examples"]["kind"]} & {"sink", "itself", "previous"}


HEADS = pd.DataFrame({"layer": [0, 0, 0, 1, 1, 2], "head": [0, 1, 2, 0, 1, 0], "score": [
    0.5, 0.0, 0.0, 0.3, 0.2, 0.0], "retrieval": [True, False, False, True, False, False]})


@pytest.fixture
def tables():
    """Windows of 10 positions; retrieval heads copy at 2 of them, and add a logit at each, and a
    tenth at all others; other heads add a tenth everywhere; in one window nobody copies."""
    rows = []
    for number, (text, window) in enumerate([("prose", 0), ("prose", 1), ("code", 0), ("code", 1)]):
        for layer, head, _, retrieval in HEADS.itertuples(index=False):
            copies = 2 if retrieval and number < 3 else 0
            sums = dict.fromkeys(contribution.ADDED, 0.0) | {
                "added_copy": 1.0 * copies, "added_sink": 0.1 * (10 - copies)}
            counts = dict.fromkeys(KINDS, 0) | {"copy": copies, "sink": 10 - copies}
            rows.append({"layer": layer, "head": head, "text": text, "window": window, **counts,
                         "distance": np.float32(5), "entropy": np.float32(1.25), "right": 0.0,
                         **sums})
    examples = pd.DataFrame([(1, 0, "prose", 0, 5, 0.75, "copy", 1.5, "in the\n", "jar", "a blue",
                              " jar")], columns=[
        "layer", "head", "text", "window", "position", "weight", "kind", "added", "before", "seen",
        "here", "next"])
    return {"heads": HEADS, "kinds": pd.DataFrame(rows), "examples": examples}


def test_contributions_counted_by_hand(tables):
    found = contribution.by_window(tables, RETRIEVAL)
    assert found.loc[("prose", 0)] == pytest.approx(280) and found.loc[("code", 1)] == 100
    assert contribution.by_window(tables, OTHERS).tolist() == pytest.approx([100] * 4)
    assert contribution.difference(tables).value == pytest.approx(135)
    copying = contribution.copying(tables)
    assert copying.value == pytest.approx(900) and copying.clusters == 3  # one has no copies
    assert contribution.share_of_copies(tables) == pytest.approx((12 / (12 + 6.8), 12 / 80))


def test_the_other_heads_count_by_layer(tables):
    """Each layer counts by its number of retrieval heads; one without any does not count."""
    rows = tables["kinds"]
    for layer, head, more in [(0, 1, 1.0), (1, 1, 4.0), (2, 0, 100.0)]:
        rows.loc[(rows["layer"] == layer) & (rows["head"] == head), "added_sink"] += more
    assert contribution.by_window(tables, OTHERS).tolist() == pytest.approx(
        [1000 * (1 / 4 * (0.1 + 0.2) + 1 / 2 * 0.5)] * 4)


def test_cards_have_all_that_they_show(tables, monkeypatch):
    monkeypatch.setattr(contribution, "stored", lambda: {"a model": (tables, None)})
    cards = contribution.card_data("a model")
    assert [card["head"] for card in cards] == HEADS[["layer", "head"]].to_numpy().tolist()
    assert cards[0] == {"head": [0, 0], "score": 0.5, "shares": [85, 0, 0, 15, 0, 0],
                        "distance": 5, "entropy": 1.2, "adds": pytest.approx(235),
                        "examples": []}
    assert cards[3]["examples"] == [["prose", 0.75, "copy", "in the⏎", "jar", "a blue", " jar"]]
    assert card_view("a model")["mean"] == pytest.approx((235 * 2 + 4 * 100) / 6, abs=0.05)
    assert len(cards_figure("a model").axes) == 24
    json.dumps(card_view("a model"), allow_nan=False)


def test_cards_without_contributions_have_the_rest(tables, monkeypatch):
    before = {**tables, "kinds": tables["kinds"].drop(columns=contribution.ADDED),
              "examples": tables["examples"].drop(columns=["layer", "head"])}
    monkeypatch.setattr(contribution, "stored", dict)
    monkeypatch.setattr(contribution, "looked_at", lambda model: (before, None))
    found = card_view("a model")
    assert found["mean"] is None and found["cards"][0]["adds"] is None
    assert found["cards"][0]["shares"] == [85, 0, 0, 15, 0, 0]
    assert found["cards"][0]["examples"] and not found["cards"][3]["examples"]
    json.dumps(found, allow_nan=False)


def test_stretches_begin_with_a_line_and_leave_nothing_out():
    text = "".join(f"line {i}\n" for i in range(40))
    found = stretches(text, 4)
    assert len(found) == 4 and "".join(found) == text
    assert all(part.startswith("line ") for part in found)


def test_there_are_twelve_texts_of_each_kind():
    assert {kind: len(texts) for kind, texts in sources().items()} == {
        "prose": 12, "code": 12, "chat": 12}
    assert all(chat[-1]["role"] == "assistant" and len(chat) % 2 == 0
               for chat in sources()["chat"])


def test_windows_have_all_their_tokens(llama, monkeypatch):
    chat = [{"role": role, "content": "the cat sat"} for role in ("user", "assistant") * 3]
    monkeypatch.setattr(module, "sources", lambda: {"prose": ["the cat sat " * 9], "chat": [chat]})
    found = [*windows(llama, 12)]
    assert [(kind, number, len(ids)) for kind, number, ids in found] == [
        ("prose", 0, 12), ("chat", 0, 12)]
    assert found[1][2] == llama.render_chat(chat[:-1])[:12]
    with pytest.raises(UserError, match=r"text 0 of prose has \d+ tokens, not 500"):
        [*windows(llama, 500)]


AT_WORK = pd.DataFrame({"layer": [0, 0, 0, 1, 1, 1], "head": [0, 1, 2] * 2, "score": 0.0,
                      "retrieval": [True, False, False, True, True, False]})


def test_layers_count_by_their_retrieval_heads():
    found = weights(AT_WORK)
    assert found[RETRIEVAL].tolist() == pytest.approx([1 / 3, 0, 0, 1 / 3, 1 / 3, 0])
    assert found[OTHERS].tolist() == pytest.approx([0, 1 / 6, 1 / 6, 0, 0, 2 / 3])


@pytest.fixture
def at_work():
    """Windows of 10 positions; retrieval heads copy at 4, 5, ... of them, others at 1."""
    rows = []
    for number, (text, window) in enumerate([("prose", 0), ("prose", 1), ("code", 0), ("code", 1)]):
        for layer, head, _, retrieval in AT_WORK.itertuples(index=False):
            copies = 4 + number if retrieval else 1
            rows.append((layer, head, text, window, 10 - copies, 0, 0, copies, 0, 0, 3.0, 1.0))
    kinds = pd.DataFrame(rows, columns=["layer", "head", "text", "window", *KINDS, "distance",
                                        "entropy"])
    about = kinds[["text", "window"]].drop_duplicates().assign(positions=10, copyable=8)
    return {"heads": AT_WORK, "kinds": kinds, "windows": about}


def test_differences_are_counted_by_hand(at_work):
    copies = by_window(at_work, RETRIEVAL)
    assert copies.loc[("prose", 1), "copy"] == pytest.approx(0.5)
    assert copies.loc[("prose", 1), POSSIBLE] == pytest.approx(5 / 8)
    assert by_window(at_work, OTHERS)["copy"].tolist() == pytest.approx([0.1] * 4)
    found = difference(at_work, "copy")
    assert found.value == pytest.approx(np.mean([3, 4, 5, 6]) / 10) and found.clusters == 4
    assert found.p == 2 / 2**4
    assert difference(at_work, "sink").value == pytest.approx(-found.value)
    assert difference(at_work, "distance").value == pytest.approx(0)
    assert level(at_work, "copy").value == pytest.approx(0.55)


def test_sums_of_heads_do_not_overflow(at_work, monkeypatch):
    """Stored counts have 16 bits."""
    many = at_work["kinds"].assign(**{kind: (at_work["kinds"][kind] * 3000).astype("int16")
                                     for kind in KINDS})
    about = at_work["windows"].assign(positions=30000)
    wide = {**at_work, "kinds": many, "windows": about,
            "examples": pd.DataFrame(columns=["layer", "head"])}
    monkeypatch.setattr(contribution, "stored", dict)
    monkeypatch.setattr(contribution, "looked_at", lambda model: (wide, None))
    shown = contribution.card_data("a model")
    assert shown[0]["shares"][KINDS.index("copy")] == 55
    assert shown[0]["shares"][0] == 45


def test_a_small_run(llama, monkeypatch):
    text = "the cat sat on the mat and the dog sat by the cat on the mat. " * 4
    monkeypatch.setattr(module, "sources", lambda: {"prose": [text, text[8:], text[4:]]})
    mean = np.zeros((4, 4))
    mean[1, 2], mean[3, 0] = 0.5, 0.2
    config = HeadsAtWorkConfig(detect=DetectConfig(), tau=0.1, tokens=40, windows=2, examples=3)
    found = heads_at_work(llama, HeadScores(mean[None], "a model"), config)
    heads = found["heads"]
    assert {*heads["layer"]} == {1, 3} and heads["retrieval"].sum() == 2
    assert len(found["kinds"]) == 2 * len(heads)
    assert (found["kinds"][[*KINDS]].sum(axis=1) == 38).all()
    ids = llama.encode(text, begin=True)[:40]
    assert found["windows"].loc[0, "copyable"] == copyable(ids).sum()
    examples = found["examples"]
    assert examples["rank"].tolist() == [1, 2, 3]
    assert examples["weight"].is_monotonic_decreasing
    assert not {*examples["kind"]} & {"sink", "itself", "previous"}
