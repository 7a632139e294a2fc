"""Every variant answers and reads as its own module does, and leaves the model as it was."""

from contextlib import contextmanager
from typing import Literal

import pandas as pd
import pytest
import torch

from rmutils.attention.decore import DeCoRe
from rmutils.attention.evicting import H2O, SnapKV
from rmutils.attention.gemfilter import GemFilter
from rmutils.attention.ms_poe import MsPoe, rescaled
from rmutils.attention.rope import RopeExtension, inverse_frequencies
from rmutils.attention.select_attention import Select, answer_selecting
from rmutils.attention.share_attention import GivenSharing, Retain, Share, Unshared
from rmutils.attention.sharing_plans import retention, sharing_json
from rmutils.attention.streaming import Streaming
from rmutils.attention.variants import VARIANTS, AttachedModel, AttentionVariant, Plain, Variant
from rmutils.book.chapters.olmo3_recipe.experiment import extension
from rmutils.book.experiments.under_variants import TextsConfig, VariantConfig, measure
from rmutils.core.config import Config
from rmutils.core.errors import UserError
from rmutils.heads import mask_heads
from rmutils.longcontext.extension import Extended, ExtensionConfig
from rmutils.longcontext.reach import reach
from rmutils.models import load_model
from rmutils.models.engine.generation import generate, next_token_logits
from tests.conftest import two_families

PROMPTS = [list(range(7, 47)), list(range(60, 90)), list(range(30, 75))]
SELECT = Select(filter_layer=1, p=0.6)
ALL = [Plain(), MsPoe(first_layer=1), MsPoe(first_layer=1, order="position_aware"),
            MsPoe(first_layer=1, order="reference"),
            Share(threshold=9.0, prompts=1, tokens=700), SELECT, Extended(factor=2),
            GemFilter(filter_layer=1, tokens=20),
            Share(threshold=9.0, prompts=1, tokens=700, at_random=5), Unshared(),
            DeCoRe(heads=((1, 3), (3, 0))), Streaming(first=2, recent=15), H2O(tokens=14),
            SnapKV(tokens=14, window=5)]


def answers(lm, variant, prompts=PROMPTS, n=5):
    found = {}
    with variant.attached(lm) as model:
        model.answer(prompts, max_new_tokens=n,
                     done=lambda index, tokens, kept: found.update({index: (tokens, kept)}))
    return [found[i] for i in range(len(prompts))]


def slowly(lm, prompt, n):
    """Greedy, each token by a full pass."""
    ids = list(prompt)
    for _ in range(n):
        token = int(next_token_logits(lm, ids)[-1].argmax())
        if token in lm.stop_ids:
            break
        ids.append(token)
    return ids[len(prompt):]


@pytest.mark.parametrize("order", ["linear", "position_aware", "reference"])
def test_heads_are_ordered_by_each_prompt(llama, order):
    """Wide ratios, so that the order matters; whatever was answered before."""
    wide = MsPoe(s_min=1, s_max=8, first_layer=0, order=order)
    expected = []
    for prompt in PROMPTS:
        with rescaled(llama.model, MsPoe(s_min=1, s_max=8, first_layer=0, order=order),
                      prompt):
            expected.append(slowly(llama, prompt, 5))
    assert [tokens for tokens, _ in answers(llama, wide)] == expected
    assert [tokens for tokens, _ in answers(llama, wide, PROMPTS[::-1])] == expected[::-1]


@two_families
@pytest.mark.parametrize("variant", ALL, ids=lambda v: f"{v.kind} {getattr(v, 'order', '')}")
def test_a_text_is_predicted_as_it_is_answered(lm, variant):
    """What a model says is what it expects most when it reads the same."""
    (said, kept), = answers(lm, variant, PROMPTS[:1])
    with variant.attached(lm) as model:
        logits, share = model.next_logits([*PROMPTS[0], *said], len(PROMPTS[0]))
    assert logits.argmax(-1).tolist() == said and len(said) > 0
    assert share == pytest.approx(kept, nan_ok=True)


@two_families
@pytest.mark.parametrize("variant", ALL, ids=lambda v: f"{v.kind} {getattr(v, 'order', '')}")
def test_the_model_is_left_as_it_was(lm, variant):
    before, window = next_token_logits(lm, PROMPTS[0]), lm.window
    turns = [inverse_frequencies(lm.model, i).clone() for i in range(4)]
    with pytest.raises(KeyError), variant.attached(lm) as model:
        assert (model.lm.window == 2 * window) == (variant.kind == "extended")
        raise KeyError
    torch.testing.assert_close(next_token_logits(lm, PROMPTS[0]), before, rtol=0, atol=0)
    assert lm.window == window
    for i, turn in enumerate(turns):
        assert torch.equal(inverse_frequencies(lm.model, i), turn)


@pytest.mark.parametrize("variant", ALL, ids=lambda v: f"{v.kind} {getattr(v, 'order', '')}")
def test_tensors_are_made_where_the_model_is(llama, variant):
    """Not where torch makes them by itself, which is on no device at all here."""
    def told(model):
        found = []
        model.answer(PROMPTS[:1], max_new_tokens=3, done=lambda *answer: found.append(answer))
        watched = model.watch(PROMPTS[0], max_new_tokens=3, stop_ids=[])
        return (found, model.next_logits(PROMPTS[1], 20)[0].tolist(), watched.tokens.tolist(),
                watched.positions.tolist())

    with variant.attached(llama) as model:
        want = told(model)
        with torch.device("meta"):
            assert told(model) == want


def test_plain_is_the_model_itself(lm):
    assert answers(lm, Plain()) == [(tokens, 1.0) for tokens in generate(
        lm, PROMPTS, max_new_tokens=5)]


def test_kept_counts_heads_and_tokens(llama):
    """All heads of a layer share: one of four is computed. All tokens are selected: all are kept.
    """
    assert {kept for _, kept in answers(llama, ALL[4])} == {0.25}
    all_tokens = answers(llama, Select(filter_layer=1, p=1))
    assert all_tokens == answers(llama, Plain())
    tokens, selection = answer_selecting(llama, PROMPTS[1], SELECT, max_new_tokens=5)
    sizes = [len(chosen) for chosen in selection.chosen[1:]]
    by_hand = sum(size / (30 + i) for i, size in enumerate(sizes, 1)) / len(sizes)
    assert answers(llama, SELECT)[1] == (tokens, pytest.approx(by_hand))
    assert 0 < by_hand < 0.95
    filtered = answers(llama, ALL[7])
    assert [kept for _, kept in filtered] == [20 / 40, 20 / 30, 20 / 45]
    assert answers(llama, GemFilter(filter_layer=1, tokens=45)) == answers(llama, Plain())


def test_heads_that_are_alike_or_drawn(llama):
    """As many are computed, but other ones."""
    drawn = ALL[8].plan(llama)
    alike = ALL[8].model_copy(update={"at_random": None}).plan(llama)
    assert drawn != alike and retention(drawn) == retention(alike) < 1


def test_fine_tuned_is_the_model_of_the_comparison_and_goes_away(llama):
    """Its losses on long texts are those of the comparison of methods, which trains another copy;
    afterwards all weights are as they were."""
    name, window = "tiny-olmo3", 640
    config = ExtensionConfig().changed({
        "methods": ["YaRN, full layers"], "steps": 2, "factor": 1.1, "checkpoints": [],
        "reach.lengths": [400], "reach.texts": 1, "reach.questions": 3})
    losses = extension(name, config).losses.query("tokens > 0")["loss"].tolist()
    lm = load_model(name)
    before = {part: weight.clone() for part, weight in lm.model.state_dict().items()}
    tuned = Extended(factor=1.1, trained=window, fine_tune_steps=2)
    with tuned.attached(lm):
        assert [row["loss"] for row in reach(lm, config.reach)[1]] == pytest.approx(losses)
    with Extended(factor=1.1, trained=window).attached(lm):
        assert [row["loss"] for row in reach(lm, config.reach)[1]] != pytest.approx(losses)
    for part, weight in lm.model.state_dict().items():
        assert torch.equal(weight, before[part]), part
    with pytest.raises(UserError, match="random-llama is no teaching model"), \
            tuned.attached(llama):
        pass


def test_defaults_are_those_of_the_papers():
    for variant, published in (
        (MsPoe(), {"s_min": 1.2, "s_max": 1.8, "first_layer": 2, "last_layer": -1,
                   "order": "linear", "spacing": "even", "spared": ()}),
        (Select(), {"filter_layer": 15, "p": 0.95, "at_prefill": False, "sharing": {}}),
        (Share(), {"prompts": 4, "tokens": 512, "threshold": 0.18, "at_random": None}),
        (Retain(), {"prompts": 4, "tokens": 512, "kept": 0.691}),
        (GivenSharing(), {"sharing": {}}),
        (RopeExtension(), {"method": "yarn", "factor": 8, "trained": None, "theta": None,
                           "beta_fast": 32, "beta_slow": 1, "layers": "full"}),
    ):
        assert dict(variant) == published | ({"kind": variant.kind} if hasattr(variant, "kind")
                                             else {})


class Headless(AttentionVariant):
    """A toy variant from outside: one layer answers nothing."""

    kind: Literal["headless"] = "headless"
    label = "without the heads of one layer"
    layer: int = 0

    @contextmanager
    def attached(self, lm):
        with mask_heads(lm, [(self.layer, head) for head in range(lm.shape[1])]):
            yield AttachedModel(lm)


class Holder(Config):
    variant: Variant = Plain()


def test_a_variant_from_outside_is_measured(tiny, monkeypatch):
    monkeypatch.setattr(VARIANTS, "_known", {**VARIANTS})
    VARIANTS.register("headless")(Headless)
    lm = load_model(str(tiny))
    config = VariantConfig.model_validate({
        "variant": {"kind": "headless", "layer": 1}, "needles": None, "documents": None,
        "texts": {"count": 2, "tokens": 40}})
    heads = tuple((1, head) for head in range(lm.shape[1]))
    masked = measure(lm, VariantConfig(masked=heads, needles=None, documents=None,
                                       texts=TextsConfig(count=2, tokens=40)))
    pd.testing.assert_frame_equal(measure(lm, config)["texts"], masked["texts"])
    with pytest.raises(UserError, match="cannot be set in a single layer"):
        config.variant.by_layer(4)


def test_configurations_name_their_variant():
    assert {"plain", "ms-poe", "share", "retain", "select", "gemfilter", "extended"} <= {*VARIANTS}
    assert all(variant.__doc__ for variant in VARIANTS.values())
    labels = {kind: variant.label for kind, variant in VARIANTS.items()}
    assert labels.items() >= {  # as their papers call them
        "ms-poe": "Ms-PoE", "gemfilter": "GemFilter", "select": "Select-Attention",
        "share": "Share-Attention", "retain": "Share-Attention, by retention rate",
        "given-sharing": "Share-Attention, by a given plan",
        "unshared": "Share-Attention's code without sharing"}.items()
    written = Holder(variant=MsPoe(s_max=2)).model_dump(mode="json")
    assert written["variant"]["kind"] == "ms-poe" and written["variant"]["s_max"] == 2
    assert Holder.model_validate(written).variant == MsPoe(s_max=2)
    assert Holder().model_dump() == {"variant": {"kind": "plain"}}


@pytest.mark.parametrize(("given", "message"), [
    ({"kind": "ms-poo"}, "'ms-poo' is no attention variant. Did you mean ms-poe"),
    ({"s_max": 2}, "'' is no attention variant. There are: .*plain, "),
    ({"kind": "ms-poe", "s_max": 0}, "variant.s_max: expected more than 0.0, got 0"),
    ({"kind": "select", "q": 1}, "there is no variant.q"), ("plain", "expected settings by name")])
def test_wrong_configurations(given, message):
    with pytest.raises(UserError, match=message):
        Holder().changed({"variant": given})


def test_variants_as_options():
    found = Holder().changed({"variant.kind": "ms-poe", "variant.s_max": "3"})
    assert found.variant == MsPoe(s_max=3)
    assert found.changed({"variant.order": "reference"}).variant.s_max == 3
    with pytest.raises(UserError, match=r"variant.kind: expected one of .*ms-poe.*, got 'magic'"):
        Holder().changed({"variant.kind": "magic"})


def test_a_plan_of_sharing_from_a_file(llama, tmp_path):
    """Prepared once, it is the variant itself."""
    share = ALL[4]
    (tmp_path / "heads.json").write_text(sharing_json(share.plan(llama)))
    given = GivenSharing(sharing=str(tmp_path / "heads.json"))
    assert given == share.prepared(llama)
    assert answers(llama, given) == answers(llama, share)
