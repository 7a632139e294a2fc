"""Benchmarks from a local folder, on small files of their form."""

import json
import runpy
from random import Random
from types import SimpleNamespace

import pytest

from rmutils.core.paths import ROOT
from rmutils.evaluation.helmet.evaluation import EvaluateConfig, evaluate
from rmutils.evaluation.helmet.metrics import METRICS
from rmutils.evaluation.helmet.suite import DATASETS

PLUGIN = ROOT / "examples" / "local_benchmarks.py"
TEXT = " ".join(f"word{i}" for i in range(300))


@pytest.fixture
def loaded(tmp_path, monkeypatch, forgotten):
    def write(name, text):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")

    write("longbench/hotpotqa.jsonl", json.dumps({
        "input": "Who rules?", "context": TEXT, "answers": ["the Red Queen", "Alice"],
        "length": 300, "dataset": "hotpotqa", "language": "en", "all_classes": None, "_id": "1"}))
    scroll = f"You are given a report.\n\n{TEXT}\n\nSummary:"
    start = scroll.index("word0")
    write("zero_scrolls/gov_report.jsonl", json.dumps({
        "id": "1", "pid": "1_0", "input": scroll, "output": "A short summary.",
        "document_start_index": start, "document_end_index": start + len(TEXT),
        "query_start_index": start + len(TEXT), "query_end_index": len(scroll)}))
    write("mmlu/high_school_european_history_test.csv", '"When, then?",1848,1871,1914,1945,C\n')
    monkeypatch.setenv("RMUTILS_BENCHMARKS", str(tmp_path))
    before = {*DATASETS}
    runpy.run_path(str(PLUGIN))
    return {name.rpartition("-")[0]: DATASETS[name] for name in DATASETS if name not in before}


def asked(dataset, length):
    return dataset.make(SimpleNamespace(random=Random(0)), length, lambda text: len(text.split()),
                        1)[0]


def test_files_become_data_sets(loaded):
    assert {name: (one.category, one.metrics) for name, one in loaded.items()} == {
        "hotpotqa": ("LongBench", ("word_f1",)), "gov_report": ("Zero-SCROLLS", ("rougeL_f1",)),
        "high_school_european_history_test": ("MMLU", ("choice_exact_match",))}
    whole, cut = asked(loaded["hotpotqa"], 999), asked(loaded["hotpotqa"], 103)
    assert whole.prompt == f"{TEXT}\n\nQuestion: Who rules?\n"
    assert len(cut.prompt.split()) <= 103 < len(cut.prompt.split()) + 4
    assert cut.context.startswith("word0 word1 ") and cut.context.endswith(" word298 word299")
    report = asked(loaded["gov_report"], 999)
    assert report.before == "You are given a report.\n\n" and report.after == "\n\nSummary:"
    assert report.context == TEXT and report.golds == ("A short summary.",)
    history = asked(loaded["high_school_european_history_test"], 99)
    assert history.prompt == "When, then?\nA. 1848\nB. 1871\nC. 1914\nD. 1945\n"
    assert history.golds == ("C", "1914")


def test_words_in_common_with_the_best_gold(loaded):
    f1 = METRICS["word_f1"]
    gold = SimpleNamespace(golds=("the Red Queen", "Alice"))
    assert f1("Alice!", gold) == 1  # case and punctuation do not count
    assert f1("a red king", gold) == pytest.approx(2 * 1 / (2 + 2))  # nor do articles
    assert f1("nobody", gold) == 0 == f1("", gold)


def test_a_model_is_asked(loaded, tiny):
    name = next(one.name for one in loaded.values() if one.category == "LongBench")
    table = evaluate(str(tiny), EvaluateConfig(datasets=(name,), lengths=(200,), samples=2))
    assert table["metric"].tolist() == ["word_f1"] * 2
