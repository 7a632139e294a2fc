"""The fine-tune against the documents one by one; the comparison in small, stopped and gone on."""


import pandas as pd
import pytest
import torch
from torch.nn.functional import cross_entropy

from rmutils import load_model
from rmutils.book.chapters.olmo3_recipe import experiment as extension_store
from rmutils.book.chapters.olmo3_recipe.experiment import (
    at_end,
    differences,
    extension,
    extension_stored,
    gained,
    loss_change,
    shares,
)
from rmutils.core.errors import NotStored, UserError
from rmutils.longcontext.extension import (
    NONE,
    ExtensionConfig,
    Texts,
    extended,
    fine_tune,
    instances,
    trained_window,
)
from rmutils.models.teaching import RECIPES

NAME = "tiny-olmo3"
RECIPE = RECIPES[NAME]
YARN = "YaRN, full layers"
SMALL = ExtensionConfig().changed({
    "methods": [NONE, YARN], "steps": 2, "factor": 1.1, "checkpoints": [0.5], "studied": [YARN],
    "reach.lengths": [400], "reach.texts": 1, "reach.questions": 3})


@pytest.fixture(scope="module")
def olmo():
    return load_model(NAME)


def test_documents_and_what_counts_in_them(olmo):
    texts = Texts(olmo, RECIPE, 5)
    for kind, mark in (("cwe", "occurs exactly"), ("rex", ""), ("questions", "")):
        document = texts.long(1, 1500, kind)
        assert 1300 < len(document.ids) <= 1500 and len(document.weights) == len(document.ids)
        ids = torch.tensor(document.ids)
        answers = olmo.tokenizer.decode(ids[torch.tensor(document.weights) == 1])
        whole = olmo.tokenizer.decode(ids)
        turns = whole.split("<|assistant|>")[1:]
        assert answers == "".join(turn.split("<|user|>")[0] for turn in turns)
        assert mark in answers and len(turns) > 3
    again = Texts(olmo, RECIPE, 5).long(1, 1500, "questions")
    assert again == document != Texts(olmo, RECIPE, 6).long(1, 1500, "questions")


def test_mixture_has_its_shares(olmo):
    found = Texts(olmo, RECIPE, 0).mixture(40_000, 640, 2560, 0.5, 1.0)
    long = [d for d in found if d.kind != "short"]
    assert 0.5 * 40_000 <= sum(len(d.ids) for d in long) < 0.5 * 40_000 + 2560
    assert {d.kind for d in long} == {"cwe", "rex"}
    assert max(len(d.ids) for d in found if d.kind == "short") <= 640
    assert 40_000 <= sum(len(d.ids) for d in found) < 40_000 + 640


def test_instances_are_full_and_none_is_too_full():
    lm = load_model(NAME)
    packed = instances(lm, RECIPE, SMALL.changed({"steps": 6, "factor": 4}))
    sizes = [sum(len(d.ids) for d in documents) for documents in packed]
    assert len(packed) == 6 and max(sizes) <= 2560 and sum(sizes) > 0.9 * 6 * 2560


def test_the_loss_is_that_of_documents_read_alone(olmo):
    """Weighted mean over all documents of an instance; the step goes down that slope."""
    packed = instances(olmo, RECIPE, SMALL.changed({"factor": 2}))[:1]
    total = weight = answers = count = 0.0
    for document in packed[0]:
        ids = torch.tensor([document.ids])
        weights = torch.tensor(document.weights)[1:]
        with torch.inference_mode():
            each = cross_entropy(olmo.model(ids).logits[0, :-1], ids[0, 1:], reduction="none")
        total, weight = total + (each * weights).sum(), weight + weights.sum()
        answers, count = answers + each[weights == 1].sum(), count + (weights == 1).sum()
    lm = load_model(NAME)
    before = {name: p.detach().clone() for name, p in lm.model.named_parameters()}
    found, = fine_tune(lm, packed, 1280, lambda step: 1e-4)
    assert found == pytest.approx(float(answers / count), rel=1e-3)
    for name, parameter in lm.model.named_parameters():  # the first step of Adam: the rate, or 0
        moved = (parameter - before[name]).detach().abs()
        assert float(moved.max()) == pytest.approx(1e-4, rel=0.05), name


def test_each_method_gets_its_positions():
    bare, yarn, ntk = (extended(load_model(NAME), method, 8, RECIPE).model
                       for method in (NONE, YARN, "NTK-aware"))
    assert trained_window(RECIPE) == 640
    assert bare.config.max_position_embeddings == 4096
    assert yarn.config.max_position_embeddings == 8 * 640
    assert yarn.config.rope_parameters["full_attention"]["original_max_position_embeddings"] == 640
    slowest = 500_000 ** -(15 / 16)
    assert ntk.base_model.rotary_emb.full_attention_inv_freq[-1] == pytest.approx(slowest / 8)


def test_rates_and_checkpoints():
    config = ExtensionConfig(steps=40)
    rates = [config.rate(step) for step in range(40)]
    assert max(rates) == rates[3] == config.learning_rate and rates[0] == rates[3] / 4
    assert 0 < rates[-1] < 0.05 * rates[3] and rates[3:] == sorted(rates[3:], reverse=True)
    assert config.asked_after(YARN) == [0, 5, 10, 20, 40]
    assert config.asked_after("interpolation") == [0, 40]
    with pytest.raises(UserError, match="no method is called alibi"):
        config.changed({"methods": ["alibi"]})


def test_stopped_and_gone_on(cache, monkeypatch):
    """Each method is done once; a stored comparison is read, and gives the same rows."""
    with pytest.raises(NotStored, match="rmutils run 14_olmo3_recipe"):
        extension_stored(NAME, SMALL, compute="never")
    done, own = [], extension_store.run_method

    def stops(name, method, *rest):
        if len(done) == 1:
            raise KeyboardInterrupt
        done.append(method)
        return own(name, method, *rest)

    monkeypatch.setattr(extension_store, "run_method", stops)
    with pytest.raises(KeyboardInterrupt):
        extension_stored(NAME, SMALL)
    done.insert(0, "counts no more")
    monkeypatch.setattr(extension_store, "run_method",
                        lambda *given: done.append(given[1]) or own(*given))
    result, artifact = extension_stored(NAME, SMALL)
    assert done[1:] == [NONE, YARN]
    again, _ = extension_stored(NAME, SMALL, compute="never")
    pd.testing.assert_frame_equal(again.found, result.found)
    assert artifact.manifest["facts"] == {"methods": 2, "steps": 2}

    found = result.found
    assert found.groupby("method")["tokens"].unique().map(list).to_dict() == {
        NONE: [0, 2 * 704], YARN: [0, 704, 2 * 704]}
    assert set(found.groupby(["method", "tokens"]).size()) == {len(found) // 5}
    training = result.training.set_index(["method", "step"])["loss"]
    assert len(training) == 4 and training.loc[NONE, 0] != training.loc[YARN, 0]
    pd.testing.assert_frame_equal(
        extension(NAME, SMALL.changed({"methods": [YARN]})).found.drop(columns="method"),
        found[found["method"] == YARN].drop(columns="method").reset_index(drop=True))


def test_tables_by_hand():
    """Two texts with two questions each; the other method misses both of the second text."""
    rows = [{"method": method, "tokens": tokens, "length": 100, "text": text, "depth": depth,
             "found": tokens > 0 and (method == "a" or text == 0)}
            for method in "ab" for tokens in (0, 9) for text in (0, 1) for depth in (0.2, 0.8)]
    found = pd.DataFrame(rows)
    at = shares(found).set_index(["method", "tokens"])
    assert at.loc[("a", 9), "value"] == 1 and at.loc[("a", 0), "value"] == 0
    assert list(at.loc[("b", 9), ["value", "low", "high"]]) == [0.5, 0, 1]
    less, = differences(at_end(found), "a").itertuples()
    assert (less.method, less.value, less.low, less.high) == ("b", -0.5, -1, 1)
    more, = gained(found, "b").itertuples()
    assert (more.length, more.value, more.low, more.high) == (100, 0.5, -1, 1)
    losses = pd.DataFrame([{"method": m, "tokens": 9, "text": t, "position": p,
                            "loss": t + p + (m == "b") * 0.5}
                           for m in "ab" for t in (0, 1) for p in (10, 20)])
    change = loss_change(losses, "a")
    assert set(change["method"]) == {"b"} and list(change["position"]) == [10, 20]
    assert (change[["value", "low", "high"]] == 0.5).all(axis=None)
    mean, = loss_change(losses, "a", by=()).itertuples()
    assert (mean.method, mean.value) == ("b", 0.5)
