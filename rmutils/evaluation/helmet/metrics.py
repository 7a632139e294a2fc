"""HELMET's metrics: functions of a response and a sample, each from 0 to 1.

An empty response has what the metric gives an empty text, which is 0 everywhere.

Where HELMET asks another model (T5 for citations, GPT-4o for answers and summaries), a rule decides
here, as all facts are known. A sentence **states a fact** of the text if it names subject and
value; of a fact that is asked for, the value is enough where it names nobody else. It is
**supported** by some documents if it states a fact and these documents tell all that it states.

`GradingJudge` asks a model after all. The paper (appendix A): "For HELMET, we follow the original
setting and utilize gpt-4o-2024-05-13 for evaluation". The grades are HELMET's, the wording is ours.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache

from rmutils.core.config import digest
from rmutils.core.errors import UserError
from rmutils.core.extras import needed
from rmutils.core.registry import Registry
from rmutils.core.validation import parse_json
from rmutils.corpora.world.facts import Fact
from rmutils.corpora.world.writing import Question
from rmutils.evaluation.answers import repetition_rate
from rmutils.heads.answering import rouge_scorer
from rmutils.preference.judges import ServerJudge

Metric = Callable[[str, Question], float]
METRICS: Registry[Metric] = Registry("metric", "rmutils.metrics")
"""Name -> metric; other packages register their own."""
NEEDS = {"ndcg@10": "ir_measures"}
"""Name -> the library that it needs, which only an extra of this package brings."""
_PUNCTUATION = str.maketrans("", "", string.punctuation)
CITED = 3  # citations of a sentence that count, from the first one on, as in ALCE
SHORT = 5  # a sentence with fewer characters is none, as in ALCE: "1." is not
REPETITIVE = 0.3
"""Share of spans of four words said before from which a text is not fluent. Ours; HELMET asks
GPT-4o for 0 ("incoherent, repetitive, or incomplete") or 1. A sentence said twice has more, a list
of different facts about one subject has less."""
CORRECT = 3  # HELMET's highest grade of an answer


def fluency(text: str) -> float:
    """1 for words without much repetition, sense or not, else 0; stands in for GPT-4o."""
    return float(bool(re.search(r"\w", text)) and repetition_rate(text) < REPETITIVE)


@METRICS.register("answer_score")
def answer_score(response: str, sample: Question) -> float:
    """HELMET's grade of a free answer, fluency (0 or 1) times correctness (0 to 3), over 3."""
    stated = [facts_in(sentence, sample) for sentence in sentences(response)]
    found = {fact for facts in stated for fact in facts} & {*sample.asked}
    if not found:
        return 0.0
    beside = any(not {*facts} & {*sample.asked} for facts in stated)
    grade = 1 if len(found) < len(sample.asked) else CORRECT - 1 if beside else CORRECT
    return fluency(response) * grade / CORRECT


@METRICS.register("key_point_f1")
def key_point_f1(response: str, sample: Question) -> float:
    """HELMET's score of a summary: fluency times the F1 of key points."""
    return fluency(response) * f1_of_key_points(response, sample)


def f1_of_key_points(response: str, sample: Question) -> float:
    """The same without fluency."""
    stated = [{*facts_in(sentence, sample)} & {*sample.asked} for sentence in sentences(response)]
    precision = sum(map(bool, stated)) / max(len(stated), 1)
    recall = len(set().union(*stated)) / len(sample.asked)
    return 2 * precision * recall / (precision + recall or 1)


@METRICS.register("citation_recall")
def citation_recall(response: str, sample: Question) -> float:
    """Share of sentences that the documents cited in them support (ALCE)."""
    return _citations(_long(response), sample)[0]


@METRICS.register("citation_precision")
def citation_precision(response: str, sample: Question) -> float:
    """Share of citations that are needed (ALCE)."""
    return _citations(_long(response), sample)[1]


@METRICS.register("list_citation_recall")
def list_citation_recall(response: str, sample: Question) -> float:
    """As `citation_recall`, where the response is a list and each item answers the question."""
    return _citations(_claims(response, sample), sample)[0]


@METRICS.register("list_citation_precision")
def list_citation_precision(response: str, sample: Question) -> float:
    """As `citation_precision`, where the response is a list and each item answers the question."""
    return _citations(_claims(response, sample), sample)[1]


def _citations(claims: Sequence[str], sample: Question) -> tuple[float, float]:
    supported = needed = total = 0
    for claim in claims:
        cited = [int(number) for number in re.findall(r"\[(\d+)", claim)]
        if not cited or any(not 1 <= number <= sample.documents for number in cited):
            continue
        cited = cited[:CITED]
        total += len(cited)
        facts = facts_in(without_citations(claim), sample)
        if not _tell(cited, facts, sample):
            continue
        supported += 1
        needed += sum(
            _tell([number], facts, sample)
            or not _tell([n for j, n in enumerate(cited) if j != i], facts, sample)
            for i, number in enumerate(cited))
    return supported / max(len(claims), 1), needed / max(total, 1)


def _tell(documents: Iterable[int], facts: Sequence[Fact], sample: Question) -> bool:
    """Return whether some documents tell all these facts, of which there is at least one."""
    told = {fact for fact, number in sample.told if number in documents}
    return bool(facts) and told.issuperset(facts)


def _long(response: str) -> list[str]:
    return [sentence for sentence in sentences(response) if len(sentence) >= SHORT]


def _claims(response: str, sample: Question) -> list[str]:
    question = sample.after.strip()
    return [f"{question} {item}" for item in items(response)]


def items(response: str) -> list[str]:
    """The parts of a list, between its commas."""
    parts = re.sub(r"\n+", " ", response).rstrip(" .,").split(",")
    return [part.strip() for part in parts if part.strip()]


def sentences(response: str) -> list[str]:
    """The sentences of a text, by their punctuation."""
    return [part for part in re.split(r"(?<=[.!?])\s+", re.sub(r"\n+", " ", response).strip())
            if part]


def without_citations(text: str) -> str:
    """A text without "[3]"."""
    return re.sub(r" ?\[\d+", "", text).replace(" |", "").replace("]", "")


def facts_in(sentence: str, sample: Question) -> list[Fact]:
    """The facts of the context that a sentence states."""
    said = _words(sentence)
    named = {fact.subject for fact, _ in sample.told if _words(fact.subject) in said}
    nobody = named <= {fact.value for fact in sample.asked}
    return [fact for fact, _ in sample.told if _words(fact.value) in said
            and (fact.subject in named or nobody and fact in sample.asked)]


@lru_cache(maxsize=50_000)
def _words(text: str) -> str:
    """Words in lower case without articles, with a space before and after each."""
    words = [word for word in re.findall(r"\w+", text.lower()) if word not in ("a", "an", "the")]
    return f" {' '.join(words)} "


def normalize(text: str) -> str:
    """SQuAD's form: lower case, no punctuation, no articles, single spaces."""
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", _bare(text)).split())


def _bare(text: str) -> str:
    """Lower case, no punctuation, single spaces."""
    return " ".join(text.lower().translate(_PUNCTUATION).split())


def parse(response: str, prefix: str) -> str:
    """Return what follows the prefix ("Answer:") on its line; without one, the first line."""
    found = re.search(rf"{re.escape(prefix)}(.*)", response, re.IGNORECASE)
    line = found[1].strip() if found else response.strip().partition("\n")[0]
    return re.sub(rf"^{re.escape(prefix)}", "", line, flags=re.IGNORECASE).strip()


@METRICS.register("substring_exact_match")
def substring_exact_match(response: str, sample: Question) -> float:
    """1 if the response holds one of the golds, both in SQuAD's form."""
    said = normalize(response)
    return float(any(normalize(gold) in said for gold in sample.golds))


@METRICS.register("recall")
def recall(response: str, sample: Question) -> float:
    """Share of the golds that the response holds, letter by letter but for their case (RULER)."""
    return sum(gold.lower() in response.lower() for gold in sample.golds) / len(sample.golds)


@METRICS.register("label_accuracy")
def label_accuracy(response: str, sample: Question) -> float:
    """1 if the response is the label, both in SQuAD's form."""
    return float(normalize(response) == normalize(sample.golds[0]))


@METRICS.register("choice_exact_match")
def choice_exact_match(response: str, sample: Question) -> float:
    """1 if the response is the letter, whatever stands around it, or has it with its option."""
    letter, option = sample.golds
    return float(_bare(response) in (_bare(letter), _bare(option))
                 or option.lower() in response.lower())


def ranking(response: str) -> dict[str, int]:
    """Document -> score, highest first, from the longest chain of numbers with ">" between."""
    text = re.sub(r"[\[\]:]", "", response).lower().replace("id", "")
    chains = [match[0] for match in re.finditer(r"\d+(?:\s*>\s*\d+)*", text)]
    ranks = re.findall(r"\d+", max([*chains, ""], key=len))
    return {number: len(ranks) - ranks.index(number) for number in ranks}


@METRICS.register("ndcg@10")
def ndcg(response: str, sample: Question) -> float:
    """NDCG@10, with the grade of a document as its gain, as in trec_eval."""
    relevant = {"q": {number: int(grade) for number, _, grade in
                      (gold.partition(":") for gold in sample.golds)}}
    measure = needed(NEEDS["ndcg@10"]).nDCG @ 10
    return float(measure.calc_aggregate(relevant, {"q": ranking(response)}))


@METRICS.register("str_em")
def str_em(response: str, sample: Question) -> float:
    """Share of the golds that the response without its citations holds, in SQuAD's form (ALCE)."""
    said = normalize(without_citations(response))
    return sum(normalize(gold) in said for gold in sample.golds) / len(sample.golds)


@METRICS.register("recall_top5")
def recall_top5(response: str, sample: Question) -> float:
    """Return the share of the golds that the response, a list, contains; five are enough."""
    said = {normalize(item) for item in items(without_citations(response))}
    return min(5, sum(normalize(gold) in said for gold in sample.golds)) / min(5, len(sample.golds))


@METRICS.register("rougeL_f1")
def rouge_l_f1(response: str, sample: Question) -> float:
    """ROUGE-L F1 to the best gold, of the whole response or of what it adds to the question."""
    asked = set(normalize(sample.after).split())

    def added(text: str) -> str:
        return " ".join(word for word in normalize(text).split() if word not in asked)

    return max((rouge_scorer("rougeL").score(form(gold), form(response))["rougeL"].fmeasure
                for gold in sample.golds for form in (str, added)), default=0.0)


ANSWER = """\
Grade an answer to a question about a text that you do not see. The right answer is given.

Fluency: 0 if the answer is incoherent, repeats itself, or breaks off; 1 if it reads well.
Correctness: 0 if the answer does not agree with the right answer; 1 if it agrees in part; 2 if it \
agrees in full and also says something that has nothing to do with the question; 3 if it agrees in \
full and says nothing beside the point, however long or short it is.

Question: {question}
Right answer: {right}
Answer: {answer}

Reply with the grades and nothing else, in this form: {{"fluency": 1, "correctness": 2}}"""
SUMMARY = """\
Does the text below read well? Grade it 0 if it is incoherent, repeats itself even in other words, \
breaks off before it has said anything, or is no language at all; else 1. A last sentence that was \
cut off does no harm.

Text: {answer}

Reply with the grade and nothing else, in this form: {{"fluency": 1}}"""
MOST = {"fluency": 1, "correctness": CORRECT}


class GradingJudge:
    """Grades the metrics for which HELMET asks GPT-4o; key points stay the knowledge base's."""

    def __init__(self, server: ServerJudge):
        self.server, self.trouble = server, ""  # why no more samples are scored
        self.metrics: dict[str, Callable[[str, Question], float | None]] = {
            "answer_score": self._answer, "key_point_f1": self._summary}
        self.identity = digest(["grading judge", 1, server.name, ANSWER, SUMMARY])

    def _answer(self, response: str, sample: Question) -> float | None:
        grades = self._grades(ANSWER.format(question=sample.after.strip(), right=sample.answer,
                                            answer=response), "fluency", "correctness")
        return grades and grades["fluency"] * grades["correctness"] / CORRECT

    def _summary(self, response: str, sample: Question) -> float | None:
        grades = self._grades(SUMMARY.format(answer=response), "fluency")
        return grades and grades["fluency"] * f1_of_key_points(response, sample)

    def _grades(self, question: str, *names: str) -> dict[str, int] | None:
        if self.trouble:
            return None
        try:
            return self.server.ask(question, lambda reply: read_grades(reply, *names))
        except UserError as error:
            self.trouble = str(error)
            return None


def read_grades(reply: str, *names: str) -> dict[str, int] | None:
    """The last JSON object of a reply, if it has whole grades within their scales; else None."""
    for text in reversed(re.findall(r"\{[^{}]*\}", reply)):
        try:
            found = parse_json(text)
        except ValueError:
            continue
        grades = {name: found.get(name) for name in names}
        if all(type(g) is int and 0 <= g <= MOST[name] for name, g in grades.items()):
            return grades
        return None
    return None
