"""The playground's models, tokenizers and scores in the browser, against those of this package."""

import hashlib
import random
import re
from base64 import b64decode

import numpy as np
import pytest
import torch

from rmutils.attention.decore import DeCoRe
from rmutils.attention.head_memory import memory_by_heads
from rmutils.attention.ms_poe import MsPoe
from rmutils.attention.redirect import Span, redirect
from rmutils.attention.select_attention import Select
from rmutils.attention.variants import AttentionVariant, Plain
from rmutils.book.chapters.memory_by_heads import ranking
from rmutils.book.site import playground
from rmutils.core.paths import CORPORA, ROOT
from rmutils.corpora.niah import NiahBuilder, NiahCase, load_haystacks, load_needles
from rmutils.heads import mask_heads
from rmutils.heads.copy_score import copy_counts
from rmutils.heads.detection import detect_stored
from rmutils.heads.scores import Head
from rmutils.models import load_model
from tests.site.conftest import visiting

HELD_OUT = {"tiny-llama": [("needles", 10, 20)],
            playground.REAL: [("literal", 0, 20), ("paraphrased", 0, 20), ("associative", 0, 10)]}
"""Of each set from which needle to which; no stored score of the page is from one of them."""
DEPTHS = 0.0, 0.25, 0.5, 0.75, 1.0
FEW = {"tiny-llama": 6, playground.REAL: 1}
LOAD = """async name => {
    const model = Playground.models.find(model => model.name === name);
    globalThis.thread = await Playground.LoadedModel.load(model, () => {});
}"""
ANSWER = """question => new Promise((resolve, reject) => {
    const tokens = [], logits = [];
    let prompt;
    const run = question.change.kind === 'WholeModel' ? 'whole' : 'changed';
    thread.ask(run, {...question, logits: true}, event => {
        if (event.kind === 'failure') reject(new Error(event.text));
        if (event.kind === 'prompt') prompt = event;
        if (event.logits) {  // as a string: numbers one by one take Playwright minutes
            logits.push(new Uint8Array(event.logits.buffer).toBase64());
        }
        if (event.kind === 'token') tokens.push(event);
        const {frame} = Playground.models.find(model => model.name === question.model);
        if (event.kind === 'end') resolve({
            sentences: Playground.Prompt.sentences(prompt.texts, frame),
            ids: prompt.ids, needle: prompt.needle, inserted: prompt.inserted, logits,
            tokens: tokens.map(({id}) => id), next: tokens.map(({next}) => next),
            looks: tokens.map(token => Array.from(
                token.shares, (_, head) => Playground.retrieval.looks(token, head))),
            copied: Array.from(tokens[0].shares,
                               (_, head) => Playground.retrieval.copied(head, prompt, tokens)),
        });
    });
})"""
TOKENS = """([name, texts]) => {
    const model = Playground.models.find(model => model.name === name);
    const tokenizer = new Playground.Tokenizer({...globalThis.file.tokenizer, ...model});
    return texts.map(text => {
        const {ids, starts, ends} = tokenizer.encode(text);
        const places = ids.map((_, i) => [starts[i], ends[i]].map(
            at => Array.from(text.slice(0, at)).length));
        return {ids, places, decoded: tokenizer.decode(ids)};
    });
}"""
READ = """async name => {  // the file on the page itself, for its tokenizer
    const model = Playground.models.find(model => model.name === name);
    const engine = new Playground.Engine(model, Playground.KERNEL);
    for (const part of model.parts) {
        engine.take({...part, bytes: await Playground.LoadedModel.part(part.file)});
    }
    globalThis.file = new Playground.Gguf(engine.memory.buffer);
}"""


@pytest.fixture(scope="module", params=HELD_OUT)
def lm(request):
    """A model as the page has it, in PyTorch."""
    if request.param == playground.REAL:
        request.getfixturevalue("smollm")
    name = str(playground.TEACHING) if request.param == "tiny-llama" else request.param
    return load_model(name, device="cpu", dtype=torch.float32)


@pytest.fixture(scope="module")
def page(browser, html, lm):
    """The page, opened as a file, with the model loaded."""
    with visiting(browser, html.as_uri(), 1200) as (page, problems):
        page.goto(f"{html.as_uri()}/playground.html")
        if not page.evaluate("name => Playground.models.some(m => m.name === name)", lm.name):
            pytest.skip(f"{lm.name} was not here when the pages were built")
        page.evaluate(LOAD, lm.name)
        yield page
        assert not problems


@pytest.fixture(scope="module")
def held_out(lm) -> list[NiahCase]:
    home = CORPORA[lm.corpus]
    builder = NiahBuilder(lm, load_haystacks(home / "haystack"))
    needles = [needle for name, first, last in HELD_OUT[lm.name]
               for needle in load_needles(home / name / "needles.jsonl")[first:last]]
    places = [(i, needle, 256, DEPTHS[i % 5]) for i, needle in enumerate(needles)]
    if lm.name == "tiny-llama":
        places = [(i, needle, 128, depth) for i, needle, *_ in places for depth in DEPTHS]
    return [builder.build(*place) for place in places[1 :: len(places) // FEW[lm.name]]]


teaching_alone = pytest.mark.parametrize("lm", ["tiny-llama"], indirect=True)
"""With the real model it would take minutes; the page itself asks that, in test_playground.py."""
WHOLE = {"kind": "WholeModel"}
"""A change is what the page tells its thread: a class of `variants.js` and its settings."""


def numbered(lm, heads: list[Head]) -> list[int]:
    return [layer * lm.shape[1] + head for layer, head in heads]


ANSWERED: dict[tuple[str, str], dict] = {}
"""What the whole models have answered in the browser; several tests compare with that."""


def in_browser(page, lm, case: NiahCase, change: dict) -> dict:
    if change == WHOLE and (lm.name, case.id) in ANSWERED:
        return ANSWERED[lm.name, case.id]
    before, between, _ = playground._frame(lm)
    context = case.prompt[len(before):].split(between)[0]
    needle = case.needle
    inserted = f"{needle.needle} " if context.startswith(needle.needle) else f" {needle.needle}"
    assert context.count(inserted) == 1
    said = page.evaluate(ANSWER, {
        "haystack": context.replace(inserted, ""), "needle": needle.needle,
        "question": needle.question, "answer": needle.real_needle, "depth": case.depth,
        "change": change, "model": lm.name,
    })
    if change == WHOLE:
        ANSWERED[lm.name, case.id] = said
    return said


def assert_same(page, lm, case: NiahCase, change: dict, variant: AttentionVariant) -> tuple[
        list[int], float]:
    """Tokens and arg-max positions are PyTorch's, and logits nearly; returns the tokens, and how
    far the logits are apart."""
    here = in_browser(page, lm, case, change)
    ids = list(case.input_ids)
    assert here["ids"] == ids
    assert (tuple(here["needle"]), tuple(here["inserted"])) == (case.needle_span,
                                                                case.inserted_span)
    with variant.attached(lm) as model:
        answer = model.watch(ids, max_new_tokens=playground.LIMIT, stop_ids=lm.stop_ids)
        tokens = answer.tokens.tolist()
        logits, _ = model.next_logits([*ids, *tokens, 0], known=len(ids))
    assert here["tokens"] == tokens
    told = np.stack([np.frombuffer(b64decode(step), "<f4") for step in here["logits"]])
    for step, positions in zip(here["looks"], answer.positions, strict=True):
        for looks, position in zip(step, positions.ravel(), strict=True):
            # The first, unless another one is as large up to the last bits of a float32.
            weights = dict(looks)
            assert weights.get(position, 0) > looks[0][1] - 1e-5
    likely = logits[: len(tokens)].softmax(-1).topk(playground.NEXT)
    if not isinstance(variant, DeCoRe):
        shares = np.array([[share for *_, share in step] for step in here["next"]])
        assert np.abs(shares - likely.values.numpy()).max() < 1e-3
    assert [step[0][0] for step in here["next"]] == tokens
    counts = copy_counts(answer, case.input_ids, case.needle_span)
    assert here["copied"] == counts.ravel().tolist()
    return tokens, float(np.abs(told - logits[: len(told)].numpy()).max())


def test_held_out_cases_are_answered_as_in_pytorch(page, lm, held_out):
    """Whole, and without ten heads: the retrieval heads and random ones, in lower layers too, by
    turns."""
    scores, _ = detect_stored(lm, playground._grid(lm.name), compute="never")
    changed, apart = 0, []
    for number, case in enumerate(held_out):
        heads = (scores.select_random(10, seed=number) if number % 2
                 else scores.select(top_k=playground.MASKED))
        whole = assert_same(page, lm, case, WHOLE, Plain())
        with mask_heads(lm, heads):
            masked = assert_same(page, lm, case, {
                "kind": "MaskedModel", "heads": numbered(lm, heads)}, Plain())
        changed += whole[0] != masked[0]
        apart += [whole[1], masked[1]]
        print(f"{lm.name}, {case.id}: logits at most {max(apart):.1e} apart", flush=True)
    assert max(apart) < 1e-3
    assert changed > len(held_out) / 4  # else nothing was masked


def test_heads_pointed_at_a_sentence_are_those_of_the_package(page, lm, held_out):
    """At the needle's, the last and the first one. The teaching model takes a lot of pointing."""
    scores, _ = detect_stored(lm, playground._grid(lm.name), compute="never")
    heads, differing = scores.select(top_k=20), 0
    for case in held_out[:2]:
        whole = in_browser(page, lm, case, WHOLE)
        sentences = [tuple(sentence) for sentence in whole["sentences"]]
        assert case.inserted_span in sentences
        texts = [lm.tokenizer.decode(case.input_ids[slice(*one)]).strip() for one in sentences]
        assert all(re.search(r"[.!?][\"')\]]*$", text) for text in texts[:-1])
        pointed = [(None, 5), (len(sentences) - 1, 10), (0, 10)]
        for sentence, strength in pointed[:1 if lm.name == playground.REAL else 3]:
            span = case.inserted_span if sentence is None else sentences[sentence]
            with redirect(lm, heads, Span(case.input_ids, *span), strength):
                tokens, apart = assert_same(page, lm, case, {
                    "kind": "Redirect", "heads": numbered(lm, heads), "strength": strength,
                    "sentence": sentence}, Plain())
            print(f"{lm.name}, {case.id}, sentence {sentence}: logits {apart:.1e} apart")
            assert apart < 1e-3
            differing += tokens != whole["tokens"]
    assert differing


CHOSEN = """([name, share, tokens]) => {
    const model = Playground.models.find(model => model.name === name);
    const changed = new Playground.ChangedModel(model);
    Object.assign(changed, {kind: 'memory', share});
    return [changed.change.whole, changed.left(tokens)];
}"""


@torch.inference_mode()
def test_memory_by_heads_is_that_of_the_package(page, lm, held_out):
    scores, _ = detect_stored(lm, playground._grid(lm.name), compute="never")
    key_heads, forgetful = lm.model.config.num_key_value_heads, 0
    order = ranking(scores, key_heads)
    for case in held_out[:2]:
        for share in (0.25, 0, 0.75)[:2 if lm.name == playground.REAL else 3]:
            whole = order[: round(share * len(order))]
            numbers, left = page.evaluate(CHOSEN, [lm.name, share, len(case.input_ids)])
            assert numbers == [layer * key_heads + head for layer, head in whole]
            here = in_browser(page, lm, case, {"kind": "Memory", "whole": numbers})
            tokens, logits, newest = [], [], case.input_ids[-1]
            heads = [(layer, head * lm.shape[1] // key_heads) for layer, head in whole]
            with memory_by_heads(lm, heads) as read:
                cache = read(case.input_ids)
                while len(tokens) < playground.LIMIT:
                    logits.append(lm.model(torch.tensor([[newest]]),
                                           past_key_values=cache).logits[0, -1].numpy())
                    if not tokens:
                        assert cache.share == pytest.approx(left)
                    newest = int(logits[-1].argmax())
                    if newest in lm.stop_ids:
                        break
                    tokens.append(newest)
            assert here["tokens"] == tokens
            told = np.stack([np.frombuffer(b64decode(step), "<f4") for step in here["logits"]])
            assert np.abs(told - np.stack(logits)[: len(told)]).max() < 1e-3
            forgetful += tokens != in_browser(page, lm, case, WHOLE)["tokens"]
    assert forgetful


@teaching_alone
def test_other_changes_are_those_of_the_package(page, lm, held_out):
    """Ms-PoE, Select and DeCoRe, by turns, so that one finds the cache that another one left."""
    scores, _ = detect_stored(lm, playground._grid(lm.name), compute="never")
    heads = scores.select(top_k=playground.MASKED)
    both = [
        ({"kind": "MsPoe", "low": 1.5, "high": 1.5}, MsPoe(s_min=1.5, s_max=1.5)),
        ({"kind": "Select", "p": 0.9}, Select(filter_layer=lm.shape[0] // 2 - 1, p=0.9)),
        ({"kind": "MsPoe", "low": 1.2, "high": 1.8}, MsPoe()),
        ({"kind": "DeCoRe", "heads": numbered(lm, heads), "cap": None}, DeCoRe(heads=heads)),
        ({"kind": "DeCoRe", "heads": numbered(lm, heads), "cap": 0.5},
         DeCoRe(heads=heads, cap=0.5)),
        ({"kind": "Select", "p": 0.6}, Select(filter_layer=lm.shape[0] // 2 - 1, p=0.6)),
        ({"kind": "MsPoe", "low": 1, "high": 3}, MsPoe(s_min=1, s_max=3)),
    ]
    differing: dict[str, int] = dict.fromkeys((change["kind"] for change, _ in both), 0)
    for case in held_out[:2]:
        whole = in_browser(page, lm, case, WHOLE)
        for change, variant in both:
            tokens, apart = assert_same(page, lm, case, change, variant)
            print(f"{lm.name}, {case.id}, {variant}: logits {apart:.1e} apart", flush=True)
            assert apart < 1e-2
            differing[change["kind"]] += tokens != whole["tokens"]
    assert differing["MsPoe"] and differing["Select"]


@teaching_alone
def test_the_answers_that_ship_are_those_of_the_browser(page, lm):
    scene = playground.scenes(lm)[0]
    scores, _ = detect_stored(lm, playground._grid(lm.name), compute="never")
    heads = numbered(lm, scores.select(top_k=playground.MASKED))
    for name, change in {"whole": WHOLE,
                         "changed": {"kind": "MaskedModel", "heads": heads}}.items():
        here = page.evaluate(ANSWER, {**scene, "change": change, "model": lm.name})
        first = page.evaluate("([name, run]) => Playground.models.find("
                              "model => model.name === name).first[run]", [lm.name, name])
        assert first["prompt"]["ids"] == here["ids"]
        assert first["prompt"]["needle"] == here["needle"]
        assert [token["id"] for token in first["tokens"]] == here["tokens"]
        for token, looks, likely in zip(
                first["tokens"], here["looks"], here["next"], strict=True):
            assert all(abs(a - b) < 1e-3 for (*_, a), (*_, b) in zip(
                token["next"], likely, strict=True))
            strongest = np.array([[weight for _, weight in head] for head in looks])
            assert np.abs(strongest.ravel() - token["weights"]).max() < 0.006
    first_whole = "".join(token["text"] for token in page.evaluate(
        "name => Playground.models.find(model => model.name === name).first.whole.tokens", lm.name))
    assert scene["answer"] in first_whole


def test_tokens_of_any_text(page, lm):
    texts = [
        "", " ", "a  b\n\n c\t\td  ", "I'll don't we've it's 'S he'd", "héllo wörld, Ω≈ç√∫ ß Жук",
        "12３４½Ⅷ² ٣٤", "日本語のテスト 🎉👩\u200d👧 x", "e\u0301",
        "<|user|>hi<think>x</think><|end|><|im_end|><|us",
        "\ufeffbom \x85nel \u3000wide\u00a0nb \u200bzw \u2028", "\x00\x01\x7f <b>&amp;</b>",
    ]
    draw = random.Random(0)
    texts += ["".join(draw.choices("ab Zé\n\t 1२'sstre<|>.,🎉\u3000\u00a0\x85ßЖ中", k=20))
              for _ in range(200)]
    texts += [h.text[:2000] for h in load_haystacks()]
    page.evaluate(READ, lm.name)
    for text, here in zip(texts, page.evaluate(TOKENS, [lm.name, texts]), strict=True):
        there = lm.tokenizer(text, return_offsets_mapping=True)
        assert here["ids"] == there["input_ids"], repr(text)
        assert [tuple(p) for p in here["places"]] == there["offset_mapping"], repr(text)
        assert here["decoded"] == lm.tokenizer.decode(there["input_ids"], skip_special_tokens=True)


def test_the_kernel_that_ships_is_assembled_from_its_source():
    folder = ROOT / "book" / playground.FOLDER
    script, source = ((folder / name).read_bytes() for name in ("kernel.js", "kernel.wat"))
    assert hashlib.sha256(source).hexdigest() in script.decode("ascii")
