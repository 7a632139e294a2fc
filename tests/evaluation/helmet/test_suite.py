"""Controls: right answers score 100, others near chance, and no question is ever cut."""

from dataclasses import replace

import numpy as np
import pytest

from rmutils.core.errors import UserError
from rmutils.corpora.world.samples import TooShort
from rmutils.corpora.world.writing import Chronicle
from rmutils.evaluation.helmet.evaluation import score
from rmutils.evaluation.helmet.metrics import METRICS
from rmutils.evaluation.helmet.prompts import Demonstrated, EvaluateConfig, prompter_of, questions
from rmutils.evaluation.helmet.suite import CATEGORIES, DATASETS, SUITES
from rmutils.models.language_model import counter

CHANCE = {"choice": 25, "labels_coarse": 25, "labels_fine": 100 / 12,
          "labels_names": 100 / 12, "rerank": 15}
CHANCE |= {f"{name}_as_example": CHANCE[name] for name in (
    "labels_coarse", "labels_fine", "labels_names")}
"""Of data sets where it is not about 0; in `rerank` the documents have few numbers."""


@pytest.fixture(scope="module")
def count(teaching):
    return counter(teaching)


@pytest.fixture(params=DATASETS, scope="module")
def dataset(request):
    return DATASETS[request.param]


@pytest.fixture(scope="module")
def times(dataset):
    """How much longer than other texts RULER's are: its words take many tokens here."""
    return 4 if dataset.category == "RULER" else 1


@pytest.fixture(scope="module")
def drawn(dataset, count, times):
    """The questions to 16 texts of two lengths."""
    found = []
    for seed in range(16):
        found += dataset.make(Chronicle(f"controls {seed}"), (500, 900)[seed % 2] * times, count,
                              min(3, dataset.questions))
    return found


def mean(dataset, metric, pairs):
    return float(np.mean([score(dataset, metric, text, question) for text, question in pairs]))


def test_every_category_and_metric_is_there():
    assert [*dict.fromkeys(DATASETS[name].category for name in SUITES["helmet"])] == [*CATEGORIES]
    assert {metric for d in DATASETS.values() for metric in d.metrics} == set(METRICS)
    assert all(d.name == name for name, d in DATASETS.items())


def test_right_answers_score_100(dataset, drawn):
    """Also behind the prefix, and with another line after them where only the first one counts."""
    for metric in dataset.metrics:
        for question in drawn:
            assert score(dataset, metric, question.answer, question) == 100
            said = f"{dataset.begins(question)} {question.answer}"
            assert score(dataset, metric, said, question) == 100
            if dataset.readings == ("parsed",):
                assert score(dataset, metric, f"{question.answer}\nText: x", question) == 100


def test_short_answers_score_100_where_a_phrase_is_enough(dataset, drawn):
    for metric in {"substring_exact_match", "recall", "rougeL_f1", "answer_score",
                   "label_accuracy"} & {*dataset.metrics}:
        for question in drawn:
            assert score(dataset, metric, ", ".join(question.golds), question) == 100


def test_other_answers_score_near_chance(dataset, drawn):
    """The right answers to questions about another text: that of a shuffled context."""
    chance = CHANCE.get(dataset.name, 0)
    for metric in dataset.metrics:
        swapped = zip([q.answer for q in drawn[7:] + drawn[:7]], drawn, strict=True)
        assert mean(dataset, metric, swapped) < chance + 14
        if dataset.category not in ("Cite", "RULER"):  # any sentence; one question to each text
            neighbours = [(drawn[i - i % 3 + (i + 1) % 3].answer, question)
                          for i, question in enumerate(drawn)]
            assert mean(dataset, metric, neighbours) < chance + 14


def test_constant_answers_score_near_chance(dataset, drawn):
    chance = CHANCE.get(dataset.name, 0)
    for metric in dataset.metrics:
        for text in (drawn[0].answer, "A", "[1] > [2] > [3]", "I do not know.", "the the the"):
            assert mean(dataset, metric, [(text, q) for q in drawn[3:]]) < chance + 16, text
        assert mean(dataset, metric, [("", q) for q in drawn]) == 0


def test_a_text_said_again_is_no_answer(dataset, drawn):
    """Whoever repeats the whole text holds all values, but ranks, labels, cites and sums up
    nothing."""
    if dataset.category in ("Re-rank", "ICL", "Cite", "Summ") or dataset.name == "choice":
        for metric in {*dataset.metrics} - {"str_em"}:
            assert mean(dataset, metric, [(q.context, q) for q in drawn]) < 30, metric


@pytest.mark.parametrize("length, form", [
    (700, {}), (1000, {"shots": 0}), (2048, {"chat": True}), (2048, {"chat": False})])
def test_prompts_fit_and_are_whole(stranger, count, dataset, times, length, form):
    """Question, demonstrations and instruction are all there, and as much text as fits."""
    prompter = prompter_of(stranger, dataset, length * times, EvaluateConfig(**form), count)
    for ask in questions(prompter, 3):
        most = length * times - dataset.max_new_tokens
        assert len(ask.prompt) <= most
        text = stranger.tokenizer.decode(ask.prompt)
        instruction = dataset.instruction or prompter.opening + ask.question.before
        assert text.count(instruction) == 1 and prompter.opening in text
        assert ask.question.context in text and ask.question.after in text
        assert text.rstrip().endswith(dataset.begins(ask.question)) != prompter.chat
        examples = prompter.opening.removeprefix(dataset.instruction)
        assert examples.count(f"\n{dataset.prefix} ") == prompter.shots or not dataset.prefix
        assert prompter.chat == form.get("chat", dataset.chat)
        assert prompter.shots == form.get("shots", dataset.shots)
        if length == 2048 and dataset.category != "ICL":
            assert len(ask.prompt) > 0.9 * most


def test_truncation_cuts_the_end_of_the_text_only(stranger, count, dataset, times):
    """Texts that are much too long, at many lengths."""
    long, = dataset.make(Chronicle(1), 1500 * times, count, 1)
    for length in range(700 * times, 1500 * times, 97 * times):
        prompter = prompter_of(stranger, dataset, length, EvaluateConfig(), count)
        text = stranger.tokenizer.decode(prompter.fitted(long))
        start = prompter.opening + long.before
        cut = text[text.index(start) + len(start):].partition(long.after)[0]
        assert long.after in text and prompter.opening + long.before in text
        assert long.context.startswith(cut) and 0 < len(cut) < len(long.context)
        most = length - dataset.max_new_tokens
        assert most - 12 <= len(prompter.fitted(long)) <= most


def test_no_room_for_the_question(stranger, count):
    dataset = DATASETS["document_qa"]
    question, = dataset.make(Chronicle(1), 400, count, 1)
    prompter = prompter_of(stranger, dataset, 100, EvaluateConfig(), count)
    with pytest.raises(UserError, match="document_qa: question and demonstrations have"):
        prompter.fitted(question)
    with pytest.raises(UserError, match="does not fit into 100 tokens: take at least [2-9]"):
        questions(prompter, 1)


def test_demonstrations_are_others_than_the_questions(stranger, count, dataset, times):
    """Right by the same rules, in names and phrases of their own, and the same for all questions.
    """
    prompter = prompter_of(stranger, dataset, 1000 * times, EvaluateConfig(shots=2), count)
    opening = prompter.opening
    for cluster in range(5):
        for question in dataset.make(Chronicle(f"x {cluster}"), 500 * times, count, 3):
            names = {name for fact, _ in question.told for name in (fact.subject, fact.value)
                     if " " in name}
            assert not any(name in opening for name in names)
            assert question.before in opening  # the wording is the same
    seed = f"{prompter.seed} {dataset.name} 0"
    try:
        shown, = dataset.make(Demonstrated(seed, "train"), 1, count, 1)
    except TooShort as error:
        shown, = dataset.make(Demonstrated(seed, "train"), error.least + 24, count, 1)
    assert shown.after in opening
    said = opening.partition(f"{shown.after}\n{dataset.begins(shown)} ")[2].partition("\n\n")[0]
    for metric in dataset.metrics:
        assert score(dataset, metric, said, shown) == 100
    assert (shown.context in opening) == dataset.shown and ("[text]" in opening) != dataset.shown


def test_teaching_models_get_nothing_they_have_not_seen(teaching, count, dataset, times):
    prompter = prompter_of(teaching, dataset, 700 * times, EvaluateConfig(), count)
    for ask in questions(prompter, 2):
        assert ask.prompt == teaching.render(ask.question.prompt)
    other = prompter_of(teaching, dataset, 1200 * times, EvaluateConfig(shots=1, chat=False), count)
    for ask in questions(other, 2):
        text = teaching.tokenizer.decode(ask.prompt)
        assert text.endswith(f"\n{dataset.begins(ask.question)}")
        assert not dataset.instruction or dataset.instruction not in text
        shown = text.replace(ask.question.context, "")  # whose examples may be written alike
        assert shown.count(f"\n{dataset.prefix} ") == 1 or not dataset.prefix


def test_lines_end_answers_only_without_a_template(stranger, count):
    newline = stranger.tokenizer.get_vocab()["Ċ"]
    for name, chat, ends in (("rerank", False, True), ("rerank", True, False),
                             ("key_value", False, False)):
        prompter = prompter_of(stranger, DATASETS[name], 700, EvaluateConfig(chat=chat), count)
        assert (newline in prompter.stop_ids) == ends and stranger.stop_ids <= prompter.stop_ids


def test_questions_of_a_short_run_are_the_first_ones_of_a_long_run(teaching, count, dataset,
                                                                   times):
    prompter = prompter_of(teaching, dataset, 600 * times, EvaluateConfig(), count)
    few, many = questions(prompter, 4), questions(prompter, 13)
    assert many[:4] == few and len(many) == 13
    assert [ask.sample for ask in many] == [*range(13)]
    assert len({ask.cluster for ask in many}) > 1 and len({tuple(a.prompt) for a in many}) > 11
    other = replace(prompter, seed=43)
    assert questions(other, 4)[0].question != few[0].question


def test_configuration():
    assert EvaluateConfig(datasets=("Cite", "rerank")).datasets == (
        "rerank", "cite_sentences", "cite_list")
    assert EvaluateConfig().changed({"lengths": "2048,512,512"}).lengths == (512, 2048)
    with pytest.raises(UserError, match="called 'Citations', 'x'. Categories: Recall, RAG.*needle"):
        EvaluateConfig().changed({"datasets": "Citations,x"})


def test_what_a_model_cannot_do(teaching, tokenizer, llama):
    with pytest.raises(UserError, match="length 5000: the window of tiny-llama has 4096 tokens"):
        EvaluateConfig(lengths=(512, 5000)).check(teaching)
    with pytest.raises(UserError, match="has 4096 tokens, of which thoughts take 256"):
        EvaluateConfig(lengths=(4000,), thinking=True).check(teaching)
    bare = replace(llama, tokenizer=type(tokenizer)(tokenizer_object=tokenizer._tokenizer))
    assert not bare.chat
    with pytest.raises(UserError, match="random-llama has no chat template"):
        EvaluateConfig(chat=True, lengths=(512,)).check(bare)
    assert not prompter_of(bare, DATASETS["choice"], 512, EvaluateConfig(), counter(bare)).chat
