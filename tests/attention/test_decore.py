"""DeCoRe against a slow second implementation: two models, and every token by full passes."""

import math
from itertools import takewhile

import pytest
import torch

from rmutils.attention.decore import DeCoRe
from rmutils.book.experiments.run_costs import CostsConfig, costs
from rmutils.core.errors import UserError
from rmutils.corpora.niah import load_haystacks
from rmutils.evaluation.helmet import EvaluateConfig, evaluate
from rmutils.models import load_model
from rmutils.models.engine.contrastive_decoding import ContrastiveDecoding
from rmutils.models.engine.generation import generate, next_token_logits
from tests.conftest import two_families

HEADS = ((1, 3), (0, 1), (1, 0), (3, 2))


@pytest.fixture
def prompts(lm):
    """Five prompts of 1 to 140 tokens; the window of Olmo 3 and Gemma 3 has 24."""
    ids = lm.tokenizer(load_haystacks()[0].text[:4000])["input_ids"]
    lengths = 5, 1, 140, 33, 64
    return [ids[7 * i : 7 * i + n] for i, n in enumerate(lengths)]


def masked_logits(lm, prompt, said, heads):
    """What the masked model expects next, without a cache: it reads the last token of the prompt
    and the answer, and looks back on keys and values that the whole model made of the rest.

    That is what a full pass gives in which the heads are silent from the last token of the prompt
    on: earlier places never see later ones.
    """
    width, first, hooks = lm.shape[1], len(prompt) - 1, []
    for layer, head in heads:
        def silent(module, inputs, head=head):
            outputs = inputs[0].clone()
            size = outputs.shape[-1] // width
            outputs[:, first:, head * size : (head + 1) * size] = 0
            return (outputs,)

        projection = lm.model.base_model.layers[layer].self_attn.o_proj
        hooks.append(projection.register_forward_pre_hook(silent))
    try:
        return next_token_logits(lm, [*prompt, *said])[-1]
    finally:
        for hook in hooks:
            hook.remove()


def log_p(lm, prompt, said, heads, cap=math.inf, relative=False):
    """The formula, entry by entry."""
    base, masked = (torch.log(torch.softmax(logits.double(), -1)) for logits in (
        next_token_logits(lm, [*prompt, *said])[-1], masked_logits(lm, prompt, said, heads)))
    alpha = sum(-p * math.log(p) for p in base.exp().tolist() if p > 0)
    alpha = min(alpha / math.log(len(base)) if relative else alpha, cap)
    return base + alpha * (base - masked)


def slowly(lm, prompt, count, **options):
    said = []
    for _ in range(count):
        said.append(int(log_p(lm, prompt, said, HEADS, **options).argmax()))
    return said


@two_families
@pytest.mark.parametrize(("options", "batch_tokens"), [
    ({}, 300), ({"cap": 0.5, "relative": True}, 100_000)])
def test_answers_are_those_of_two_slow_models(lm, prompts, options, batch_tokens):
    whole = [slowly(lm, prompt, 6, **options) for prompt in prompts]
    stop_ids = {whole[0][2], whole[2][4]}
    expected = [[*takewhile(lambda token: token not in stop_ids, said)] for said in whole]
    found = generate(lm, prompts, max_new_tokens=6, stop_ids=stop_ids, batch_tokens=batch_tokens,
                     contrast=ContrastiveDecoding(HEADS, **options))
    assert found == expected and len({*map(len, expected)}) > 1
    assert found != generate(lm, prompts, max_new_tokens=6, stop_ids=stop_ids)


@two_families
def test_texts_are_read_by_the_formula(lm, prompts):
    text, known = prompts[2], 130
    with DeCoRe(heads=HEADS).attached(lm) as model:
        logits, kept = model.next_logits(text, known)
    expected = [log_p(lm, text[:known], text[known:i], HEADS) for i in range(known, len(text))]
    torch.testing.assert_close(logits.double(), torch.stack(expected), rtol=0, atol=2e-3)
    assert kept == 1


def test_a_model_that_is_sure_of_itself_is_not_contrasted():
    """At entropy 0, log p is that of the whole model; equal models give the model itself."""
    logits = torch.tensor([[60.0, 0, 0], [0, 60.0, 0], [3.0, 2, 1], [3.0, 2, 1]])
    sure, equal = ContrastiveDecoding(((0, 0),)).combine(logits)
    torch.testing.assert_close(sure, logits[0].log_softmax(-1))
    torch.testing.assert_close(equal, logits[2].log_softmax(-1))


def test_heads_are_watched_while_the_answer_is_written(llama):
    prompt = [40, 41, 42, 43, 40, 41]
    said, = generate(llama, [prompt], max_new_tokens=4, stop_ids=(),
                     contrast=ContrastiveDecoding(HEADS))
    with DeCoRe(heads=HEADS).attached(llama) as model:
        answer = model.watch(prompt, max_new_tokens=4, stop_ids=())
    assert answer.tokens.tolist() == said and answer.positions.shape == (4, *llama.shape)


def test_heads_are_checked_and_come_back(llama):
    for heads, message in [((), "needs to know which heads"), (((9, 9),), "no head 9-9")]:
        with pytest.raises(UserError, match=message), DeCoRe(heads=heads).attached(llama):
            pass
    before = next_token_logits(llama, [40, 41, 42])
    generate(llama, [[40, 41, 42]], max_new_tokens=2, contrast=ContrastiveDecoding(HEADS))
    torch.testing.assert_close(next_token_logits(llama, [40, 41, 42]), before, rtol=0, atol=0)


def test_evaluations_and_costs_take_it():
    """Without the heads in question, a contrast is another answer and costs another pass."""
    lm = load_model("tiny-llama", device="cpu")
    config = EvaluateConfig(datasets=("free_answer",), lengths=(300,), samples=2)
    decore = DeCoRe(heads=((3, 7), (3, 6), (3, 12)))
    told = evaluate(lm, config.changed({"variant": decore}))
    prompts = evaluate(lm, config)
    assert told["prompt_tokens"].tolist() == prompts["prompt_tokens"].tolist()
    assert EvaluateConfig(variant=decore).digest() != EvaluateConfig().digest()
    assert "variant" not in EvaluateConfig().identity()
    found = costs(lm, CostsConfig(length=256, rounds=1, steps=2, variants={
        "plain": {"kind": "plain"}, "decore": decore}))["costs"].set_index("variant")
    ratio = found.loc["decore"] / found.loc["plain"]
    assert ratio["step_work"] == pytest.approx(2, abs=0.01)
    assert ratio["prefill_work"] == 1 and ratio["cache_bytes"] == 2
