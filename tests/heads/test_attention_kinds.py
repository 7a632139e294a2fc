"""What heads look at, against a slow loop over the attention of the plain model."""

import math

import numpy as np
import pytest
import torch

from rmutils import UserError, attention_kinds
from rmutils.heads import attention_kinds as module
from rmutils.heads.attention_kinds import KINDS, copyable, kinds_of, looks
from rmutils.models.engine.implementations import using

TEXT = "the cat sat on the mat and the cat sat on the hat, and the dog sat by the cat on the mat. "


def slow_kind(ids, here, at):
    if at == 0:
        return "sink"
    if at == here:
        return "itself"
    if at == here - 1:
        return "previous"
    if ids[at] == ids[here + 1]:
        return "copy"
    return "induction" if ids[at - 1] == ids[here] else "other"


@torch.inference_mode()
def slow(lm, ids):
    """Rows of `attention_kinds` by head, from one pass with eager attention."""
    with using(lm.model, "eager"):
        every = lm.model(torch.tensor([ids]), output_attentions=True).attentions
    found = {}
    for layer, weights in enumerate(every):
        for head in range(lm.shape[1]):
            counts, distances, entropies = dict.fromkeys(KINDS, 0), [], []
            for here in range(1, len(ids) - 1):
                row = weights[0, head, here].tolist()
                counts[slow_kind(ids, here, row.index(max(row)))] += 1
                distances.append(sum(w * (here - j) for j, w in enumerate(row)))
                entropies.append(-sum(w * math.log(w) for w in row if w > 0))
            found[layer, head] = [*(n / len(distances) for n in counts.values()),
                                  np.mean(distances), np.mean(entropies)]
    return found


@pytest.mark.parametrize("at_once", [512, 16])
def test_as_a_slow_loop_in_one_pass_or_in_parts(lm, at_once, monkeypatch):
    """Also where layers see a window of 24 tokens only."""
    monkeypatch.setattr(module, "AT_ONCE", at_once)
    text = TEXT * 2
    expected, found = slow(lm, lm.encode(text, begin=True)), attention_kinds(lm, text)
    assert [*zip(found["layer"], found["head"], strict=True)] == [*expected]
    np.testing.assert_allclose(found.iloc[:, 2:], [*expected.values()], atol=1e-4)
    assert found["copy"].sum() and found["induction"].sum()
    assert found.iloc[:, 2:8].sum(axis=1).to_numpy() == pytest.approx(1)


def test_kinds_by_hand():
    """Tokens 7 1 2 1 3 1 2: at position 5 (a 1, then comes 2), token 2 is a copy and induction."""
    ids = [7, 1, 2, 1, 3, 1, 2]
    at = np.array([[0, 1, 1, 1, 2], [1, 2, 3, 4, 5], [0, 0, 0, 3, 4]])
    assert [[KINDS[i] for i in row] for row in kinds_of(ids, at)] == [
        ["sink", "previous", "other", "copy", "copy"], ["itself"] * 5,
        ["sink", "sink", "sink", "previous", "previous"]]
    assert [KINDS[i] for i in kinds_of([1, 2, 3, 4, 2, 5], np.array([[1, 2, 3, 2]]))[0]] == [
        "itself", "itself", "itself", "induction"]
    # at 2 comes 1, which stands only at 1, the previous token; at 4 comes 1, and 1 stands at 1
    assert copyable(ids).tolist() == [False, False, False, True, True]


def test_examples_of_where_heads_look(llama):
    seen = looks(llama, llama.encode(TEXT, begin=True))
    assert seen.at.shape == seen.weight.shape == (4, 4, len(seen.ids) - 2)
    assert (seen.at <= np.arange(1, len(seen.ids) - 1)).all() and (seen.weight > 0).all()


@pytest.mark.parametrize("text", ["", "a", TEXT * 200])
def test_texts_that_cannot_be_read_are_refused(llama, text):
    with pytest.raises(UserError, match=r"text: it has \d+ tokens. Give 3 to 1024"):
        attention_kinds(llama, text)
