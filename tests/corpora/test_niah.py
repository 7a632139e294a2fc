"""Cases against what can be read off the prompt itself, for tokenizers that cut differently."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch.nn import Module
from transformers import PreTrainedTokenizerFast

from rmutils.core.errors import UserError
from rmutils.core.paths import CORPORA
from rmutils.corpora import niah
from rmutils.corpora.niah import (
    Haystack,
    Needle,
    NiahBuilder,
    PublishedNiahBuilder,
    load_haystacks,
    load_needles,
)
from rmutils.models import LanguageModel
from tests.conftest import TEMPLATE

HAYSTACKS = load_haystacks()
NEEDLES = load_needles()
LENGTHS, DEPTHS = (250, 900), (0.0, 0.3, 0.7, 1.0)


def train(pre, decoder, **kwargs) -> Tokenizer:
    inner = Tokenizer(models.BPE(**kwargs))
    inner.pre_tokenizer, inner.decoder = pre, decoder
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=["<s>", "<|im_start|>", "<|im_end|>"], show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    inner.train_from_iterator([HAYSTACKS[0].text[:8000], "\n".join(n.needle for n in NEEDLES)],
                              trainer)
    return inner


def byte_level(use_regex: bool) -> Tokenizer:
    return train(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex),
                 decoders.ByteLevel())


TOKENIZERS = {
    "words": lambda: byte_level(True),  # as in Llama 3, Qwen3, Olmo 3: " word" is a token
    "merging": lambda: byte_level(False),  # tokens reach over spaces and full stops
    "metaspace": lambda: train(pre_tokenizers.Metaspace(), decoders.Metaspace(), unk_token="<s>"),
}


def as_lm(inner: Tokenizer, template: str | None = TEMPLATE) -> LanguageModel:
    wrapped = PreTrainedTokenizerFast(tokenizer_object=inner, chat_template=template)
    return LanguageModel(Module(), wrapped, "no model", "llama", "none")


@pytest.fixture(scope="module", params=TOKENIZERS)
def lm(request) -> LanguageModel:
    return as_lm(TOKENIZERS[request.param]())


@pytest.fixture(scope="module")
def word_lm() -> LanguageModel:
    return as_lm(byte_level(True))


def context(case) -> str:
    """What stands between the tags."""
    return case.prompt.split("<book>", 1)[1].rsplit("</book>", 1)[0]


def check_span(lm, case, span, text):
    """The tokens of `span` hold `text`, and each of them is needed."""
    start, end = span
    read = lm.tokenizer.decode
    assert text in read(case.input_ids[start:end])
    assert text not in read(case.input_ids[start + 1 : end])
    assert text not in read(case.input_ids[start : end - 1])


def test_spans_decode_to_what_was_put_in(lm):
    """All needles x lengths x depths: answer and sentence are exactly where the case says."""
    cases = NiahBuilder(lm, HAYSTACKS).grid(NEEDLES, LENGTHS, DEPTHS)
    assert len({case.id for case in cases}) == len(cases) == len(NEEDLES) * 8
    for case in cases:
        assert lm.tokenizer(case.prompt, add_special_tokens=False)["input_ids"] == [
            *case.input_ids]
        assert len(case.input_ids) <= case.length
        assert len(case.input_ids) > case.length - 12
        check_span(lm, case, case.needle_span, case.needle.real_needle)
        check_span(lm, case, case.inserted_span, case.needle.needle)
        assert case.haystack == HAYSTACKS[case.needle_index % 3].name


def test_japanese_needles_stand_between_sentences_without_spaces(word_lm):
    home = CORPORA["japanese"]
    texts, needles = load_haystacks(home / "haystack"), load_needles(home / "needles")
    cases = NiahBuilder(word_lm, texts).grid(needles, (700,), (0.0, 0.5, 1.0))
    assert len(cases) == 18
    for case in cases:
        check_span(word_lm, case, case.needle_span, case.needle.real_needle)
        before, after = context(case).split(case.needle.needle)
        assert texts[case.needle_index % 2].text.startswith(before + after)
        assert (before == "") == (case.depth == 0) and before[-1:] in ("", "。", "！", "？")


def test_nothing_of_the_haystack_is_lost(lm):
    """Without the inserted sentence, the context is the beginning of the haystack."""
    builder = NiahBuilder(lm, HAYSTACKS)
    for depth in DEPTHS:
        case = builder.build(1, NEEDLES[1], 900, depth)
        before, after = context(case).split(case.needle.needle)
        rest = before.removesuffix(" ") + after if before else after.removeprefix(" ")
        assert rest and HAYSTACKS[1].text.startswith(rest)
        assert before == "" or before[-2:] in {". ", "? ", "! "}  # it follows a whole sentence


def test_deeper_is_later(word_lm):
    """0 is the start, 1 the last sentence's start, and in between the order is kept."""
    builder = NiahBuilder(word_lm, HAYSTACKS)
    cases = [builder.build(0, NEEDLES[0], 900, i / 10) for i in range(11)]
    starts = [case.inserted_span[0] for case in cases]
    assert starts == sorted(starts) and len(set(starts)) >= 8
    assert context(cases[0]).startswith(NEEDLES[0].needle)
    assert ". " not in context(cases[-1]).split(NEEDLES[0].needle)[1]
    for case in cases[1:-1]:  # as deep as asked for, up to a sentence
        found = (case.inserted_span[0] - 20) / (900 - 90)
        assert case.depth - 0.12 < found <= case.depth + 0.02


def test_prompt_is_that_of_the_published_script(word_lm):
    case = NiahBuilder(word_lm, HAYSTACKS).build(2, NEEDLES[2], 400, 0.5)
    assert case.prompt == (
        f"<|im_start|>user\n<book>{context(case)}</book>\nBased on the content of the book, "
        f"Question: {NEEDLES[2].question}\nAnswer:<|im_end|>\n<|im_start|>assistant\n")


def test_base_model_has_no_tags_and_keeps_its_first_token():
    inner = byte_level(True)
    inner.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", inner.token_to_id("<s>"))])
    lm = as_lm(inner, template=None)
    case = NiahBuilder(lm, HAYSTACKS).build(0, NEEDLES[0], 400, 0.5)
    assert case.input_ids[0] == inner.token_to_id("<s>") not in case.input_ids[1:]
    assert "<book>" not in case.prompt and "</book>" not in case.prompt
    assert case.prompt.startswith(HAYSTACKS[0].text[:40]) and len(case.input_ids) <= 400
    check_span(lm, case, case.needle_span, NEEDLES[0].real_needle)


@pytest.mark.parametrize("sentence, answer", [
    ("The code (a+b)*[c] is <b>5 & $6\\1</b> or \"none\".", "<b>5 & $6\\1</b>"),
    ("Die Stadt Łódź mag 天気 und 🎉 naïve Cafés sehr.", "天気 und 🎉 naïve Cafés"),
    ("Yes yes yes yes is what the yes yes parrot says.", "yes yes parrot"),
])
def test_unusual_needles(word_lm, sentence, answer):
    """Regex and HTML characters, several bytes to a character, words that stand there twice."""
    needle = Needle(sentence, "What?", answer)
    for depth in DEPTHS:
        case = NiahBuilder(word_lm, HAYSTACKS).build(0, needle, 300, depth)
        check_span(word_lm, case, case.needle_span, answer)
        check_span(word_lm, case, case.inserted_span, sentence)


def test_needle_that_the_haystack_holds_too(word_lm):
    """The span is the inserted one: it is known, not searched for."""
    sentence = "The key is under the mat."
    twin = Haystack("twin", f"{sentence} {HAYSTACKS[0].text}")
    case = NiahBuilder(word_lm, [twin]).build(0, Needle(sentence, "Where?", "the mat"), 400, 1.0)
    first = word_lm.tokenizer.decode(case.input_ids).index(sentence)
    at = len(word_lm.tokenizer.decode(case.input_ids[: case.inserted_span[0]]))
    assert at > first + 500
    check_span(word_lm, case, case.needle_span, "the mat")


def test_shortest_length(lm):
    """One token less than the shortest prompt is refused; none is longer than asked for."""
    builder = NiahBuilder(lm, HAYSTACKS)
    for needle in NEEDLES[:4]:
        built = []
        for length in range(60, 160):
            try:
                built.append(builder.build(0, needle, length, 0.5))
            except UserError as error:
                assert not built and f"length of {length} tokens is too short" in str(error)
        assert built and all(len(case.input_ids) <= case.length for case in built)


def test_errors_say_both_numbers(word_lm):
    size = len(word_lm.tokenizer(" " + NEEDLES[0].needle)["input_ids"])
    with pytest.raises(UserError, match=rf"length of 20 tokens.*needle has {size} tokens"):
        NiahBuilder(word_lm, HAYSTACKS).build(0, NEEDLES[0], 20, 0.5)
    short = Haystack("short", HAYSTACKS[0].text[:400])
    size = len(word_lm.tokenizer(short.text)["input_ids"])
    with pytest.raises(UserError, match=rf"'short' has {size} tokens, too few for a length of 999"):
        NiahBuilder(word_lm, [short]).build(0, NEEDLES[0], 999, 0.5)


@pytest.mark.parametrize("stops", [(), (".",)])
def test_places_of_the_published_script(word_lm, monkeypatch, stops):
    """200 tokens less of haystack and needle. Where no token ends a sentence for the script, the
    needle is first at all depths but the last; else it follows one, as a slow search has it."""
    ids = word_lm.tokenizer.convert_tokens_to_ids(stops)
    monkeypatch.setattr(niah, "FULL_STOPS", ids)
    needle = NEEDLES[0].needle
    size = len(word_lm.tokenizer(needle)["input_ids"])
    builder, tokens = PublishedNiahBuilder(word_lm, HAYSTACKS), word_lm.tokenizer(
        HAYSTACKS[0].text)["input_ids"]
    for length, depth in ((900, 0.0), (900, 0.33), (900, 0.89), (900, 1.0), (200, 0.4), (0, 1.0)):
        case = builder.build(0, NEEDLES[0], length, depth)
        before, after = context(case).split(needle)
        kept = tokens[: max(length - 200 - size, 0)]
        assert before + after == word_lm.tokenizer.decode(kept)
        parts = [kept[:i] for i in range(int(len(kept) * depth) + 1)]
        place = next((part for part in parts[::-1] if part and part[-1] in ids), [])
        assert before == word_lm.tokenizer.decode(kept if depth == 1 else place)
        assert stops or depth == 1 or not before
        check_span(word_lm, case, case.needle_span, NEEDLES[0].real_needle)


def test_base_models_get_the_published_question_without_a_line_break():
    lm = as_lm(byte_level(True), template=None)
    for builder, gap in ((PublishedNiahBuilder, ""), (NiahBuilder, "\n")):
        case = builder(lm, HAYSTACKS).build(0, NEEDLES[0], 400, 1.0)
        assert case.prompt.split("Based on the content of the book")[0].endswith("\n") == bool(gap)


def test_answer_may_differ_in_case(llama):
    """One of the published needles begins its answer with a capital that the sentence lacks."""
    needle = Needle("It rains in Oxby because the hill stops the clouds.",
                    "Why does it rain in Oxby?", "Because the hill stops the clouds")
    case = NiahBuilder(llama, load_haystacks()).build(0, needle, 300, 0.5)
    text = llama.tokenizer.decode(case.input_ids[slice(*case.needle_span)])
    assert text.strip() == "because the hill stops the clouds"
