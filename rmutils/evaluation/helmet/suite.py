"""The data sets of the evaluation: a registry, and what stands for HELMET's seven categories."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeVar

from rmutils.core.registry import Registry
from rmutils.core.validation import checked
from rmutils.corpora.ruler import TASKS
from rmutils.corpora.world import document_questions as documents
from rmutils.corpora.world import text_questions as texts
from rmutils.corpora.world.samples import Count
from rmutils.corpora.world.writing import Chronicle, Question

CATEGORIES = ("Recall", "RAG", "Re-rank", "ICL", "Cite", "LongQA", "Summ")
"""HELMET's, in the order of its tables."""
Reading = Literal["raw", "parsed"]
Make = Callable[[Chronicle, int, Count, int], list[Question]]
"""(world, most tokens of the user turn, count, number of questions) -> questions about one text."""
T = TypeVar("T", bound=Make)


@dataclass(frozen=True)
class Dataset:
    name: str
    category: str  # one of `CATEGORIES`, or another one
    stands_for: str  # HELMET's data sets that it stands for, and what differs
    make: Make  # makes questions about one text: see `Make`
    metrics: tuple[str, ...]  # names in `rmutils.evaluation.helmet.metrics.METRICS`
    instruction: str  # for models that were not trained on these tasks; empty: none
    # Begins the answer: it ends the prompt where there is no chat template, and the parser looks
    # for it.
    prefix: str = "Answer:"
    # Longest answer: room for every right one in whole sentences, as teaching models write. HELMET
    # gives 10 to 1,200 tokens.
    max_new_tokens: int = 32
    chat: bool = False  # whether HELMET uses the chat template
    shots: int = 2  # demonstrations in HELMET
    # A demonstration has its text, which is as short as the task allows; else "[text]", as in
    # HELMET's LongQA and Summ.
    shown: bool = False
    # of the response, "raw" and "parsed": the score is the better one
    readings: tuple[Reading, ...] = ("raw", "parsed")
    # the answer ends with its first line where there is no chat template
    newline_ends: bool = False
    questions: int = 5  # most questions about one text
    short: bool = False  # a phrase is a right answer: demonstrations answer with the golds alone

    def begins(self, question: Question) -> str:
        """Return how the answer to a question begins."""
        return question.prefix or self.prefix


DATASETS: Registry[Dataset] = Registry("data set", "rmutils.datasets")
"""Name -> data set: the suite's, category by category, RULER's, and those of other packages."""


@checked
def register_dataset(name: str, category: str, metrics: tuple[str, ...], instruction: str,
                     stands_for: str = "", **settings: Any) -> Callable[[T], T]:
    """Return a decorator that adds a data set to the evaluation.

    `EvaluateConfig(datasets=(name,))` asks for it; the suite stays as it is.

    The decorated function returns the questions about one text, a list of `Question`. It is called
    with a source of random texts (`world.random` is its `random.Random`), the most tokens that a
    question and its text may have, a function that counts the tokens of a text, and the number of
    questions.

    Parameters
    ----------
    name, category : str
        As tables show them.
    metrics : tuple of str
        Metrics of HELMET, such as `substring_exact_match`, `recall` or `rougeL_f1`. One of your own
        is registered with `METRICS.register` of `rmutils.evaluation.helmet.metrics`.
    instruction : str
        Begins the prompt of models that were not trained on these tasks.
    stands_for : str
        What it stands for, for readers.
    **settings
        Further fields of `rmutils.evaluation.helmet.suite.Dataset`: `max_new_tokens`, `shots`, ...

    Examples
    --------
    >>> from rmutils import EvaluateConfig, Question, evaluate, register_dataset
    >>> @register_dataset("hosts", "My own", ("recall",), "Answer the question.", shots=0)
    ... def hosts(world, length, count, questions):
    ...     who = world.random.choice(["Halto Rustar", "Pelto Prawick"])
    ...     return [Question("host", f"The host of the Vovane race is {who}.", who, golds=(who,),
    ...                      after=" Who is the host of the Vovane race?")]
    >>> config = EvaluateConfig(datasets=("hosts",), lengths=(100,), samples=2)
    >>> table = evaluate("tiny-llama", config)
    >>> table[["dataset", "length", "sample", "metric"]].values.tolist()
    [['hosts', 100, 0, 'recall'], ['hosts', 100, 1, 'recall']]
    """
    def register(make: T) -> T:
        DATASETS.add(name, Dataset(name, category, stands_for, make, metrics, instruction,
                                   **settings))
        return make
    return register


_SHORTLY = "Write a concise and short answer, in the following format:\nAnswer: [answer]"
_DOCUMENTS = f"Use the given documents to answer the question. {_SHORTLY}"
_LABEL = ('Use the examples to give the text its label. Only output "Label: [label]" and nothing '
          "else.")
_CITE = ("Use only the given documents to answer, and cite them with their numbers in square "
         "brackets.")

_SUITE = (
    Dataset(
        "needle_rivals", "Recall",
        "RULER NIAH multikey-2 and -3: one needle among others that are easily taken for it. They "
        "are half of the text, not all of it; values are phrases, not numbers or UUIDs.",
        texts.needles_among_rivals, ("recall",),
        "A fact is hidden within the following text. Memorize it. You will be asked about it.",
        prefix="The answer mentioned in the text is", shots=0, readings=("raw",), short=True),
    Dataset(
        "needle_values", "Recall",
        "RULER NIAH multivalue: all values of one key. Here two to four different properties of "
        "one subject.",
        texts.several_values, ("recall",),
        "Some facts are hidden within the following text. Memorize them. You will be asked about "
        "them.", prefix="The answers mentioned in the text are", shots=0, readings=("raw",),
        max_new_tokens=72, short=True),
    Dataset(
        "key_value", "Recall",
        "JSON KV: the value of a key. Codes and phrases in lines, not UUIDs in JSON.",
        texts.codes, ("substring_exact_match",),
        "Give the value that belongs to the key in the list below.", prefix="Value:",
        max_new_tokens=24, short=True),
    Dataset(
        "document_qa", "RAG",
        "NQ, TriviaQA and PopQA: a question to many documents, of which one holds the answer, at a "
        "uniformly drawn place. The other documents are not ranked by a retriever.",
        documents.document_questions, ("substring_exact_match",), _DOCUMENTS,
        shown=True, newline_ends=True, short=True),
    Dataset(
        "document_hops", "RAG",
        "HotpotQA: the answer takes two documents.",
        documents.document_hops, ("substring_exact_match",), _DOCUMENTS,
        shown=True, newline_ends=True, short=True),
    Dataset(
        "rerank", "Re-rank",
        "MS MARCO: documents ranked by relevance, NDCG@10. Grades are 0 to 2 where MS MARCO has 0 "
        "to 3, and only documents with a grade above 0 are asked for.",
        documents.rankings, ("ndcg@10",),
        "You are given a list of numbered documents. Rank those that help to answer the question, "
        "from the most helpful one to the least, in the following format:\n"
        "Ranking: [3] > [1] > [2]",
        prefix="Ranking:", shown=True, readings=("raw",), newline_ends=True),
    Dataset(
        "labels_coarse", "ICL",
        "TREC coarse: four classes in place of six. Labels mean nothing by themselves, as in "
        "HELMET; some are made-up words.",
        documents.coarse_labels, ("label_accuracy",), _LABEL, prefix="Label:", shots=0,
        max_new_tokens=12, readings=("parsed",), newline_ends=True, questions=10),
    Dataset(
        "labels_fine", "ICL",
        "TREC fine: twelve classes in place of 50.",
        documents.fine_labels, ("label_accuracy",), _LABEL, prefix="Label:", shots=0,
        max_new_tokens=12, readings=("parsed",), newline_ends=True, questions=10),
    Dataset(
        "labels_names", "ICL",
        "Banking77, CLINC150 and NLU, where single words tell the class: twelve classes, each of "
        "the texts about one person, in place of 68 to 151.",
        documents.name_labels, ("label_accuracy",), _LABEL, prefix="Label:", shots=0,
        max_new_tokens=12, readings=("parsed",), newline_ends=True, questions=10),
    Dataset(
        "cite_sentences", "Cite",
        "ASQA: one to three short answers with citations. They are asked for one by one; ASQA has "
        "one ambiguous question. Support is known, not judged by a model.",
        documents.document_citations, ("str_em", "citation_recall", "citation_precision"),
        f"{_CITE} Write a sentence for each answer.", max_new_tokens=80, chat=True,
        shown=True, readings=("raw",)),
    Dataset(
        "cite_list", "Cite",
        "QAMPARI: a list of all answers with citations. Two or three answers or a few more, where "
        "QAMPARI has five at least.",
        documents.listings,
        ("recall_top5", "list_citation_recall", "list_citation_precision"),
        f"{_CITE} Give a list of answers and nothing else, in the following format:\n"
        "[answer 1] [1], [answer 2] [2]", max_new_tokens=64, chat=True, shown=True,
        readings=("raw",)),
    Dataset(
        "free_answer", "LongQA",
        "NarrativeQA: a free answer, graded for fluency and correctness by rules in place of "
        "GPT-4o, or by a judge.",
        texts.free_answers, ("answer_score",),
        f"You are given a text and a question. {_SHORTLY}", chat=True, readings=("parsed",),
        short=True),
    Dataset(
        "text_hops", "LongQA",
        "InfiniteBench QA: a short answer by ROUGE-L F1. Here it takes two or three facts.",
        texts.chains, ("rougeL_f1",),
        f"You are given a text and a question. {_SHORTLY}", chat=True, short=True),
    Dataset(
        "choice", "LongQA",
        "InfiniteBench MC: one letter of four. An answer with no letter in it is wrong, as in "
        "HELMET, whatever it says.",
        texts.choices, ("choice_exact_match",),
        "You are given a text and a question with several choices. Answer with a single letter (A, "
        "B, C or D) and nothing else.", chat=True, max_new_tokens=16),
    Dataset(
        "summary", "Summ",
        "Multi-LexSum and InfiniteBench Sum: fluency times F1 of key points, by rules in place of "
        "GPT-4o. What the text says about one subject, not the whole text.",
        texts.summaries, ("key_point_f1",),
        "You are given a text. Summarize what it says about what is asked for. Write one sentence "
        "for each fact.", prefix="Summary:", chat=True, max_new_tokens=112, readings=("raw",)),
)
_BY_NAME = {d.name: d for d in _SUITE}
_WITHOUT_PLACEHOLDERS = (
    *(replace(_BY_NAME[f"labels_{kind}"], name=f"labels_{kind}_as_example",
              make=partial(make, form=documents.AS_EXAMPLE),
              instruction="Use the examples to give the last text its label. Output its label and "
                          "nothing else.")
      for kind, make in (("coarse", documents.coarse_labels), ("fine", documents.fine_labels),
                         ("names", documents.name_labels))),
    replace(_BY_NAME["cite_list"], name="cite_list_plain",
            instruction=f"{_CITE} Give the answers and nothing else, separated by commas, each "
                        "with the number of its document after it."),
)
"""Data sets whose instruction no model can take literally: Qwen2.5-Coder answered `[label]`, and
`[Orin Korund [1]`. The text to be labelled is written like the examples, as in HELMET."""
_RULER = tuple(
    Dataset(task.name, "RULER", task.stands_for, task.make, ("recall",), "", task.prefix,
            task.max_new_tokens, shots=task.shots, shown=True, readings=("raw",), questions=1)
    for task in TASKS)
for _d in (*_SUITE, *_WITHOUT_PLACEHOLDERS, *_RULER):
    DATASETS.add(_d.name, _d)

SUITES = {"helmet": (
    "needle_rivals", "needle_values", "key_value", "document_qa", "document_hops", "rerank",
    "labels_coarse", "labels_fine", "labels_names", "cite_sentences", "cite_list", "free_answer",
    "text_hops", "choice", "summary")}
SUITES["plain"] = tuple(
    next((d.name for d in _WITHOUT_PLACEHOLDERS if d.name.startswith(name)), name)
    for name in SUITES["helmet"])
"""Data sets that are asked together, by name; `plain` has no placeholders in its instructions, for
models that were not trained on these tasks. Stored evaluations are of these very ones: a data set
that is added to `DATASETS` joins no suite, and a longer suite is another one, with another name."""
SUITE = {category: tuple(d.name for d in _SUITE
                         if d.category == category and d.name in SUITES["helmet"])
         for category in CATEGORIES}
"""HELMET's categories -> the data sets of the suite `helmet`."""
