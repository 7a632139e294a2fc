"""Each arm against the recipe, token by token: what it changes, and nothing else."""

import pytest
import torch

from rmutils import load_model
from rmutils.book.chapters.olmo3_recipe.ablations import ARMS, arm_instances
from rmutils.longcontext.extension import ExtensionConfig, Texts, weights_of
from rmutils.longcontext.packing import leak, packed_inputs
from rmutils.models.teaching import RECIPES

NAME, CAPACITY = "tiny-olmo3", 1920
CONFIG = ExtensionConfig(steps=6, factor=3, long=0.6, seed=3)


@pytest.fixture(scope="module")
def olmo():
    return load_model(NAME)


@pytest.fixture(scope="module")
def arms(olmo):
    return {arm: arm_instances(olmo, RECIPES[NAME], CONFIG, arm) for arm in ARMS}


@pytest.fixture(scope="module")
def stream(olmo):
    """All documents in the order in which they come, before any packing."""
    return Texts(olmo, RECIPES[NAME], CONFIG.seed).mixture(
        6 * CAPACITY, 640, CAPACITY, CONFIG.long, CONFIG.synthetic, look_ups=False)


def text_of(olmo, document):
    return olmo.tokenizer.decode(document.ids)


def test_long_documents_end_with_cwe_or_rex_or_nothing(olmo, arms, stream):
    kinds = {kind: [d for d in stream if d.kind == kind] for kind in ("cwe", "rex", "text")}
    assert all(kinds.values())
    for kind, documents in kinds.items():
        for document in documents:
            _, *answers = text_of(olmo, document).split("<|assistant|>")
            assert len(answers) in {"cwe": range(2, 6), "rex": [1], "text": [0]}[kind]
            if kind == "cwe":
                assert all("occurs exactly" in answer for answer in answers[:-1])
    # The texts are those of the stored fine-tunes, and more of them, for they are shorter.
    with_look_ups = Texts(olmo, RECIPES[NAME], CONFIG.seed).mixture(
        6 * CAPACITY, 640, CAPACITY, CONFIG.long, CONFIG.synthetic)
    ours, theirs = ({tuple(d.text[-12:]) for d in given if d.kind != "short"}
                    for given in (stream, with_look_ups))
    assert theirs < ours


@pytest.mark.parametrize("arm, without", [("no-rex", {"rex"}), ("natural", {"cwe", "rex"})])
def test_questions_go_and_their_texts_stay_where_they_were(arm, without, olmo, arms):
    lost = set()
    for ours, whole in zip(arms[arm], arms["recipe"], strict=True):
        for one, full in zip(ours, whole, strict=True):
            if one == full:
                assert full.kind not in without
                continue
            lost.add(full.kind)
            told, asked = text_of(olmo, one), text_of(olmo, full)
            assert asked.startswith(told) and "<|assistant|>" not in told
            rest = asked.removeprefix(told).split("<|assistant|>")[0]
            assert told.endswith(".") and len(rest) < 200 and set(one.weights) == {0.1}
    assert lost == without


def test_split_cuts_the_same_stream_every_so_many_tokens(arms, stream):
    ids = [i for document in stream for i in document.ids]
    weights = [w for document in stream for w in document.weights]
    parts = [(ids[at:at + CAPACITY], weights[at:at + CAPACITY])
             for at in range(0, 6 * CAPACITY, CAPACITY)]
    read = [([i for d in held for i in d.ids], [w for d in held for w in d.weights])
            for held in arms["split"]]
    assert sorted(read) == sorted(parts)
    ends = {sum(len(d.ids) for d in stream[:n]) for n in range(len(stream) + 1)}
    pieces = sum(len(held) for held in arms["split"])
    inner = [at for at in range(CAPACITY, 6 * CAPACITY, CAPACITY) if at not in ends]
    assert pieces == len([at for at in ends if at < 6 * CAPACITY]) + len(inner)


def test_unmasked_documents_see_each_other_and_count_as_before(olmo, arms):
    ours, whole = ([next(held for held in arms[arm])] for arm in ("unmasked", "recipe"))
    assert len(ours[0]) == 1 < len(whole[0])
    inputs = [packed_inputs(olmo.model, [[d.ids for d in held[0]]], length=CAPACITY,
                            pad_id=olmo.tokenizer.pad_token_id) for held in (ours, whole)]
    assert torch.equal(inputs[0]["input_ids"], inputs[1]["input_ids"])
    assert torch.equal(*(weights_of(held[0], given["labels"])
                         for held, given in zip((ours, whole), inputs, strict=True)))
    borders = inputs[1]["position_ids"]
    assert leak(olmo.model, inputs[1]) == 0
    assert leak(olmo.model, inputs[0] | {"position_ids": borders}) > 0
    assert torch.equal(inputs[0]["position_ids"][0, :200], torch.arange(200))
