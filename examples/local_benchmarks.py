"""LongBench, Zero-SCROLLS and MMLU from files of yours, as data sets of `rmutils evaluate`.

    RMUTILS_BENCHMARKS=FOLDER rmutils --plugin examples/local_benchmarks.py \\
        evaluate MODEL --datasets LongBench --lengths 4096

FOLDER holds `longbench/*.jsonl` (`input`, `context`, `answers`), `zero_scrolls/*.jsonl` (`input`,
`output`, and where document and query stand in it), and `mmlu/*.csv` (question, four choices, the
letter, without a head), each as published. Names end in the beginning of the file's SHA-256, so
that other files make other results. Questions are drawn with replacement, and of a text that is
too long the middle is left out, as LongBench does. Wordings are ours where there are none in the
files, so scores are not those of a leaderboard.
"""

import csv
import hashlib
import json
import os
from collections import Counter
from pathlib import Path

from rmutils import Question, register_dataset
from rmutils.evaluation.helmet.metrics import METRICS, normalize

SUMMARIES = {"gov_report", "qmsum", "multi_news", "summ_screen_fd", "squality"}
"""Files whose answers are scored by ROUGE-L; of all others by F1 of words."""


@METRICS.register("word_f1")
def word_f1(response, sample):
    """F1 of the words of the response and of the best gold, in SQuAD's form."""
    def f1(gold):
        said, right = (Counter(normalize(text).split()) for text in (response, gold))
        both = sum((said & right).values())
        return 2 * both / (said.total() + right.total()) if both else 0.0
    return max(map(f1, sample.golds))


def of_longbench(row):
    """Before, context, after, golds."""
    return "", row["context"], f"\n\nQuestion: {row['input']}\n", row["answers"]


def of_zero_scrolls(row):
    """The same, cut from one text by its indices."""
    text, first, last = row["input"], row["document_start_index"], row["document_end_index"]
    return text[:first], text[first:last], text[last:], [row["output"]]


def of_mmlu(row):
    """The letter and the choice that it stands for."""
    question, *choices, letter = row
    listed = "".join(f"\n{name}. {one}" for name, one in zip("ABCD", choices, strict=True))
    return "", "", f"{question}{listed}\n", [letter, choices["ABCD".index(letter)]]


FORMS = {"longbench": ("LongBench", of_longbench), "mmlu": ("MMLU", of_mmlu),
         "zero_scrolls": ("Zero-SCROLLS", of_zero_scrolls)}


def shortened(question, length, count):
    """Leave out the middle of the context until the question has at most `length` tokens."""
    before, context, after, golds = question
    words = context.split(" ")
    room = length - count(before + after)
    while len(words) > 1 and (used := count(" ".join(words))) > room:
        kept = max(1, min(len(words) - 1, int(len(words) * room / used)))
        words = words[: (kept + 1) // 2] + words[len(words) - kept // 2 :]
    return Question("local", before, golds[0], context=" ".join(words), after=after,
                    golds=tuple(golds))


def register(file, category, read):
    """Make a file a data set of its benchmark."""
    text = file.read_text(encoding="utf-8")
    rows = ([*csv.reader(text.splitlines())] if file.suffix == ".csv" else
            [json.loads(line) for line in text.splitlines() if line.strip()])
    metric = ("choice_exact_match" if file.suffix == ".csv" else
              "rougeL_f1" if file.stem in SUMMARIES else "word_f1")
    name = f"{file.stem}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"

    @register_dataset(name, category, (metric,), "Answer the question about the text.",
                      stands_for=f"{category}, {file.stem}", shots=0, questions=1,
                      max_new_tokens=256 if metric == "rougeL_f1" else 32)
    def make(world, length, count, questions):
        return [shortened(read(world.random.choice(rows)), length, count)]


for folder, (benchmark, form) in FORMS.items():
    for found in sorted(Path(os.environ.get("RMUTILS_BENCHMARKS", "."), folder).glob("*.[jc]s*")):
        register(found, benchmark, form)
