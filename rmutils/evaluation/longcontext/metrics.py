"""HELMET's metrics as functions of a response and a sample, each from 0 to 1.

An empty response has what the metric gives an empty text, which is 0 everywhere.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable
from functools import cache

import ir_measures
from rouge_score.rouge_scorer import RougeScorer

from rmutils.corpora.world.questions import Question
from rmutils.evaluation.longcontext import statements

Metric = Callable[[str, Question], float]
NDCG = ir_measures.nDCG @ 10
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize(text: str) -> str:
    """SQuAD's form: lower case, no punctuation, no articles, single spaces."""
    bare = re.sub(r"\b(a|an|the)\b", " ", text.lower().translate(_PUNCTUATION))
    return " ".join(bare.split())


def parse(response: str, prefix: str) -> str:
    """What follows the prefix ("Answer:") on its line; without one, the first line."""
    found = re.search(rf"{re.escape(prefix)}(.*)", response, re.IGNORECASE)
    line = found[1].strip() if found else response.strip().partition("\n")[0]
    return re.sub(rf"^{re.escape(prefix)}", "", line, flags=re.IGNORECASE).strip()


def substring_exact_match(response: str, sample: Question) -> float:
    """1 if the response holds one of the golds, both in SQuAD's form."""
    said = normalize(response)
    return float(any(normalize(gold) in said for gold in sample.golds))


def recall(response: str, sample: Question) -> float:
    """Share of the golds that the response holds, letter by letter but for their case (RULER)."""
    return sum(gold.lower() in response.lower() for gold in sample.golds) / len(sample.golds)


def label_accuracy(response: str, sample: Question) -> float:
    """1 if the response is the label, both in SQuAD's form."""
    return float(normalize(response) == normalize(sample.golds[0]))


def choice_exact_match(response: str, sample: Question) -> float:
    """1 if the response is the letter, or holds "B. " with the right option.

    HELMET compares letters in SQuAD's form, in which an A is an article and vanishes, so that an
    empty response is right wherever the letter is A. Here it is wrong.
    """
    letter, option = sample.golds
    return float(response.strip(" .():*\n").lower() in (letter.lower(), option.lower())
                 or option.lower() in response.lower())


def ranking(response: str) -> dict[str, int]:
    """Document -> score, highest first, from the longest chain of numbers with ">" between."""
    text = re.sub(r"[\[\]:]", "", response).lower().replace("id", "")
    chains = [match[0] for match in re.finditer(r"\d+(?:\s*>\s*\d+)*", text)]
    ranks = re.findall(r"\d+", max(chains, key=len, default=""))
    return {number: len(ranks) - ranks.index(number) for number in ranks}


def ndcg(response: str, sample: Question) -> float:
    """NDCG@10, with the grade of a document as its gain, as in trec_eval."""
    relevant = {"q": {number: int(grade) for number, _, grade in
                      (gold.partition(":") for gold in sample.golds)}}
    return NDCG.calc_aggregate(relevant, {"q": ranking(response)}) if ranking(response) else 0.0


def str_em(response: str, sample: Question) -> float:
    """Share of the golds that the response without its citations holds, in SQuAD's form (ALCE)."""
    said = normalize(statements.without_citations(response))
    return sum(normalize(gold) in said for gold in sample.golds) / len(sample.golds)


def recall_top5(response: str, sample: Question) -> float:
    """Of the golds, how many are items of the response, which is a list; five are enough."""
    said = {normalize(item) for item in statements.items(statements.without_citations(response))}
    return min(5, sum(normalize(gold) in said for gold in sample.golds)) / min(5, len(sample.golds))


def rouge_l_f1(response: str, sample: Question) -> float:
    """ROUGE-L F1 to the best gold, of the whole response or of what it adds to the question.

    HELMET takes the whole response. A teaching model answers in whole sentences, most of whose
    words are the question's ("The mayor of Foxmoor is Alan Branbeck."): what is left without these
    words, and without articles, counts as its short answer.
    """
    asked = set(normalize(sample.after).split())

    def added(text: str) -> str:
        return " ".join(word for word in normalize(text).split() if word not in asked)

    return max((_rouge().score(form(gold), form(response))["rougeL"].fmeasure
                for gold in sample.golds for form in (str, added)), default=0.0)


@cache
def _rouge() -> RougeScorer:
    return RougeScorer(["rougeL"], use_stemmer=True)


METRICS: dict[str, Metric] = {
    "substring_exact_match": substring_exact_match, "recall": recall,
    "label_accuracy": label_accuracy, "choice_exact_match": choice_exact_match,
    "ndcg@10": ndcg, "str_em": str_em, "recall_top5": recall_top5, "rougeL_f1": rouge_l_f1,
    "citation_recall": statements.citation_recall,
    "citation_precision": statements.citation_precision,
    "list_citation_recall": statements.list_citation_recall,
    "list_citation_precision": statements.list_citation_precision,
    "answer_score": statements.answer_score, "key_point_f1": statements.key_point_f1,
}
"""Name -> metric."""
