"""The playground's model, tokenizer and scores in the browser, against those of this package."""

import random
from base64 import b64decode

import numpy as np
import pytest
import torch

from rmutils.attention.decoding import capturing, decode
from rmutils.core.paths import CORPORA
from rmutils.corpora.haystacks import load_haystacks, load_needles
from rmutils.corpora.niah import NiahBuilder, NiahCase
from rmutils.experiments.teaching_models import DETECTION
from rmutils.heads import mask_heads
from rmutils.heads.copy_score import copy_counts
from rmutils.heads.detection import detect_stored
from rmutils.heads.scores import Head
from rmutils.models import load_model
from rmutils.models.engine.caches import Trunk
from rmutils.models.engine.generation import generate
from rmutils.site import playground
from tests.site.conftest import visiting

HELD_OUT = range(10, 20)
"""Needles that the page does not offer, each in its own haystack, which it does not have either."""
PLACES = [(128, 0.0), (128, 0.25), (256, 0.5), (128, 0.75), (128, 1.0)]
"""Length and depth; with the needles 50 cases. Short ones, so that the tests do not take long."""
LIMIT = 50
ANSWER = """question => new Promise((resolve, reject) => {
    const tokens = [], logits = [];
    let prompt;
    Playground.page.worker.ask(question, event => {
        if (event.kind === 'failure') reject(new Error(event.text));
        if (event.kind === 'prompt') prompt = event;
        if (event.logits) {  // as a string: numbers one by one take Playwright minutes
            const bytes = new Uint8Array(event.logits.buffer);
            logits.push(btoa(String.fromCharCode(...bytes)));
        }
        if (event.kind === 'token') {
            event.looks = Playground.retrieval.split(event.rows, 64);
            tokens.push(event);
        }
        if (event.kind === 'end') resolve({
            ids: prompt.ids, needle: prompt.needle, inserted: prompt.inserted, logits,
            tokens: tokens.map(token => token.id),
            copied: Array.from({length: 64},
                               (_, i) => Playground.retrieval.copied(i, prompt, tokens)),
        });
    });
})"""
TOKENS = """texts => {
    const tokenizer = new Playground.Tokenizer(Playground.data.tokenizer);
    return texts.map(text => {
        const {ids, starts, ends} = tokenizer.encode(text);
        const places = ids.map((_, i) => [starts[i], ends[i]].map(
            at => Array.from(text.slice(0, at)).length));
        return {ids, places, decoded: tokenizer.decode(ids)};
    });
}"""


@pytest.fixture(scope="module")
def lm():
    return load_model(str(playground.MODEL), device="cpu", dtype=torch.float32)


@pytest.fixture(scope="module")
def page(browser, html):
    """The page, opened as a file."""
    with visiting(browser, html.as_uri(), 1200) as (page, problems):
        page.goto(f"{html.as_uri()}/playground.html")
        yield page
        assert not problems


@pytest.fixture(scope="module")
def held_out(lm) -> list[NiahCase]:
    builder, needles = _material(lm)
    return [builder.build(i, needles[i], *place) for i in HELD_OUT for place in PLACES]


def _material(lm):
    needles = load_needles(CORPORA["world"] / "needles" / "needles.jsonl")
    return NiahBuilder(lm, load_haystacks(CORPORA["world"] / "haystack")), needles


def in_browser(page, lm, case: NiahCase, masked: list[Head]) -> dict:
    haystacks = load_haystacks(CORPORA["world"] / "haystack")
    return page.evaluate(ANSWER, {
        "haystack": haystacks[case.needle_index].text, "needle": case.needle.needle,
        "question": case.needle.question, "answer": case.needle.real_needle,
        "length": case.length, "depth": case.depth,
        "masked": [layer * lm.shape[1] + head for layer, head in masked],
    })


def in_pytorch(lm, case: NiahCase, masked: list[Head]) -> tuple[list[int], np.ndarray]:
    """The greedy answer, and the logits that decided each of its tokens and its end."""
    ids = list(case.input_ids)
    with mask_heads(lm, masked), torch.inference_mode():
        answer = generate(lm, [ids], max_new_tokens=LIMIT)[0]
        logits = lm.model(torch.tensor([ids + answer])).logits[0, len(ids) - 1:]
    return answer, logits[: LIMIT].numpy()


def assert_same(page, lm, case: NiahCase, masked: list[Head]) -> dict:
    here, (answer, logits) = in_browser(page, lm, case, masked), in_pytorch(lm, case, masked)
    assert tuple(here["ids"]) == case.input_ids
    assert (tuple(here["needle"]), tuple(here["inserted"])) == (case.needle_span,
                                                                case.inserted_span)
    assert here["tokens"] == answer
    decoded = [np.frombuffer(b64decode(step), "<f4") for step in here["logits"]]
    assert np.abs(np.stack(decoded) - logits).max() < 1e-3
    return here


def test_held_out_cases_are_answered_as_in_pytorch(page, lm, held_out):
    """Tokens, and logits within 0.001 at every step; of every second case also without the
    retrieval heads."""
    scores, _ = detect_stored(lm, DETECTION, compute="never")
    heads = scores.select(tau=0.1)
    assert len(held_out) == 50
    changed = 0
    for i, case in enumerate(held_out):
        whole = assert_same(page, lm, case, [])
        if i % 2:
            changed += whole["tokens"] != assert_same(page, lm, case, heads)["tokens"]
    assert changed > 12  # else nothing was masked


def test_masks_in_lower_layers_and_long_prompts(page, lm):
    """Masked heads below the last layer change what is read of the prompt, too."""
    scores, _ = detect_stored(lm, DETECTION, compute="never")
    builder, needles = _material(lm)
    for seed, (i, length) in enumerate([(10, 256), (11, 256), (12, 1024)]):
        heads = scores.select_random(12, seed=seed)
        assert min(heads)[0] < 3
        case = builder.build(i, needles[i], length, 0.5)
        assert_same(page, lm, case, heads)
        assert_same(page, lm, case, [])


def test_copied_needle_tokens_are_those_of_equation_1(page, lm, held_out):
    copying = 0
    for case in held_out[::5]:
        with capturing(lm.model) as recorder:
            cache = Trunk(lm.model, case.input_ids[:1]).read(case.input_ids)
            answer = decode(lm.model, recorder, [case.input_ids], [cache], max_new_tokens=LIMIT,
                            stop_ids=lm.stop_ids)[0]
        expected = copy_counts(answer, case.input_ids, case.needle_span)
        assert in_browser(page, lm, case, [])["copied"] == expected.ravel().tolist()
        copying += int(expected.sum() > 0)
    assert copying > 5


def test_tokens_of_any_text(page, lm):
    texts = [
        "", " ", "a  b\n\n c\t\td  ", "I'll don't we've it's 'S he'd", "héllo wörld, Ω≈ç√∫ ß Жук",
        "12３４½Ⅷ² ٣٤", "日本語のテスト 🎉👩\u200d👧 x", "e\u0301",
        "<|user|>hi<think>x</think><|end|><|us",
        "\ufeffbom \x85nel \u3000wide\u00a0nb \u200bzw \u2028", "\x00\x01\x7f <b>&amp;</b>",
    ]
    draw = random.Random(0)
    texts += ["".join(draw.choices("ab Zé\n\t 1२'sstre<|>.,🎉\u3000\u00a0\x85ßЖ中", k=20))
              for _ in range(200)]
    texts += [h.text[:2000] for h in load_haystacks()]  # English that it was not trained on
    for text, here in zip(texts, page.evaluate(TOKENS, texts), strict=True):
        there = lm.tokenizer(text, return_offsets_mapping=True)
        assert here["ids"] == there["input_ids"], repr(text)
        assert [tuple(p) for p in here["places"]] == there["offset_mapping"], repr(text)
        assert here["decoded"] == lm.tokenizer.decode(there["input_ids"], skip_special_tokens=True)
