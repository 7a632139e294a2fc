"""Heads at work: texts, the control and differences counted by hand, and one small run."""

import numpy as np
import pandas as pd
import pytest

from rmutils import DetectConfig, HeadScores, UserError
from rmutils.book.chapters.heads_at_work import contribution
from rmutils.book.chapters.heads_at_work import ordinary_texts as module
from rmutils.book.chapters.heads_at_work.experiment import HeadsAtWorkConfig, heads_at_work
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
from rmutils.heads.attention_kinds import KINDS, copyable


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


HEADS = pd.DataFrame({"layer": [0, 0, 0, 1, 1, 1], "head": [0, 1, 2] * 2, "score": 0.0,
                      "retrieval": [True, False, False, True, True, False]})


def test_layers_count_by_their_retrieval_heads():
    found = weights(HEADS)
    assert found[RETRIEVAL].tolist() == pytest.approx([1 / 3, 0, 0, 1 / 3, 1 / 3, 0])
    assert found[OTHERS].tolist() == pytest.approx([0, 1 / 6, 1 / 6, 0, 0, 2 / 3])


@pytest.fixture
def tables():
    """Windows of 10 positions; retrieval heads copy at 4, 5, ... of them, others at 1."""
    rows = []
    for number, (text, window) in enumerate([("prose", 0), ("prose", 1), ("code", 0), ("code", 1)]):
        for layer, head, _, retrieval in HEADS.itertuples(index=False):
            copies = 4 + number if retrieval else 1
            rows.append((layer, head, text, window, 10 - copies, 0, 0, copies, 0, 0, 3.0, 1.0))
    kinds = pd.DataFrame(rows, columns=["layer", "head", "text", "window", *KINDS, "distance",
                                        "entropy"])
    about = kinds[["text", "window"]].drop_duplicates().assign(positions=10, copyable=8)
    return {"heads": HEADS, "kinds": kinds, "windows": about}


def test_differences_are_counted_by_hand(tables):
    copies = by_window(tables, RETRIEVAL)
    assert copies.loc[("prose", 1), "copy"] == pytest.approx(0.5)
    assert copies.loc[("prose", 1), POSSIBLE] == pytest.approx(5 / 8)
    assert by_window(tables, OTHERS)["copy"].tolist() == pytest.approx([0.1] * 4)
    found = difference(tables, "copy")
    assert found.value == pytest.approx(np.mean([3, 4, 5, 6]) / 10) and found.clusters == 4
    assert found.p == 2 / 2**4
    assert difference(tables, "sink").value == pytest.approx(-found.value)
    assert difference(tables, "distance").value == pytest.approx(0)
    assert level(tables, "copy").value == pytest.approx(0.55)


def test_sums_of_heads_do_not_overflow(tables, monkeypatch):
    """Stored counts have 16 bits."""
    many = tables["kinds"].assign(**{kind: (tables["kinds"][kind] * 3000).astype("int16")
                                     for kind in KINDS})
    about = tables["windows"].assign(positions=30000)
    wide = {**tables, "kinds": many, "windows": about,
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
