"""HELMET's configurations as its repository has them, and its result files as its code writes them.
"""

import json
import shlex
from pathlib import Path

import numpy as np
import pytest
import yaml

from rmutils.core.errors import UserError
from rmutils.evaluation.helmet import averages
from rmutils.evaluation.helmet.official import HELMET, LENGTHS, OFFICIAL, configuration, write
from rmutils.evaluation.helmet.official_results import collect, collect_stored
from tests.evaluation.helmet.helmet_files import MODEL, written

# Transcribed from princeton-nlp/HELMET, configs/*.yaml at commit 0e8a761.
PUBLISHED = {
    "Cite": {
        "input_max_length": "8192,16384,32768,65536,8192,16384,32768,65536",
        "datasets": "alce_asqa_30,alce_asqa_75,alce_asqa_165,alce_asqa_345,"
                    "alce_qampari_30,alce_qampari_75,alce_qampari_165,alce_qampari_345",
        "generation_max_length": "300,300,300,300,300,300,300,300",
        "test_files": ",".join(["data/alce/asqa_eval_gtr_top2000.json"] * 4
                               + ["data/alce/qampari_eval_gtr_top2000.json"] * 4),
        "demo_files": ",".join(["prompts/asqa_revised.json"] * 4
                               + ["prompts/qampari_revised.json"] * 4),
        "use_chat_template": True, "max_test_samples": 100, "shots": 2, "stop_new_line": False},
    "Summ": {
        "input_max_length": "8192,16384,32768,65536,8192,16384,32768,65536",
        "datasets": "infbench_sum_eng_6792,infbench_sum_eng_14984,infbench_sum_eng_31368,"
                    "infbench_sum_eng_64136,multi_lexsum_7492,multi_lexsum_15684,"
                    "multi_lexsum_32068,multi_lexsum_64836",
        "generation_max_length": "1200,1200,1200,1200,400,400,400,400",
        "test_files": ",,,,,,,", "demo_files": ",,,,,,,",
        "use_chat_template": True, "max_test_samples": 100, "shots": 2, "stop_new_line": False},
    "Re-rank": {
        "input_max_length": "8192,16384,32768,65536",
        "datasets": ",".join(["msmarco_rerank_psg"] * 4),
        "generation_max_length": "200,200,200,200",
        "test_files": ",".join(f"data/msmarco/test_reranking_data_k{k}_dep3.jsonl"
                               for k in (50, 130, 285, 600)),
        "demo_files": ",".join(["data/msmarco/test_reranking_data_k10_dep3.jsonl"] * 4),
        "use_chat_template": False, "max_test_samples": 100, "shots": 2, "stop_new_line": True},
}
LONG = {  # at 131,072 tokens: data sets, longest answers, first test file, last demonstrations
    "Recall": ("ruler_niah_mk_2,ruler_niah_mk_3,ruler_niah_mv,json_kv", "50,100,50,100",
               "data/ruler/niah_multikey_2/validation_131072.jsonl", ""),
    "RAG": ("kilt_nq,kilt_triviaqa,kilt_hotpotqa,kilt_popqa_3", "20,20,20,20",
            "data/kilt/nq-dev-multikilt_1000_k1000_dep6.jsonl",
            "data/kilt/popqa_test_1000_k3_dep6.jsonl"),
    "ICL": ("icl_trec_coarse_6600shot_balance,icl_trec_fine_6400shot_balance,"
            "icl_banking77_5900shot_balance,icl_clinic150_7050shot_balance,"
            "icl_nlu_8296shot_balance", "20,20,20,20,20", "", ""),
    "LongQA": ("narrativeqa_130772,infbench_qa_eng_130862,infbench_choice_eng_130862", "100,10,10",
               "", ""),
}


@pytest.mark.parametrize("category", PUBLISHED)
def test_short_configurations_are_the_published_ones(category):
    assert configuration(category, LENGTHS[:4]) == PUBLISHED[category]


@pytest.mark.parametrize("category", LONG)
def test_long_configurations_are_the_published_ones(category):
    found = configuration(category, [131072])
    data, answers, test, demo = LONG[category]
    assert (found["datasets"], found["generation_max_length"]) == (data, answers)
    assert found["test_files"].split(",")[0] == test and found["demo_files"].split(",")[-1] == demo
    assert found["max_test_samples"] == (500 if category == "ICL" else 100)


def test_files_and_commands(tmp_path):
    script = write("org/Some-Model", tmp_path / "a b", lengths=[8192], categories=["RAG", "Summ"],
                   chat=False, thinking=True)
    commands = [shlex.split(line) for line in script.read_text().splitlines()
                if line.startswith("python")]
    assert [c[1] for c in commands] == ["eval.py", "eval.py", "scripts/eval_gpt4_summ.py"]
    config = commands[0][commands[0].index("--config") + 1]
    assert yaml.safe_load(Path(config).read_text()) == configuration("RAG", [8192])
    assert commands[0][4:] == [
        "--model_name_or_path", "org/Some-Model", "--output_dir", "output/Some-Model", "--tag",
        "v1", "--seed", "42", "--use_chat_template", "False", "--thinking"]
    assert "rmutils collect output/Some-Model" in script.read_text()
    with pytest.raises(UserError, match="HELMET has no data of 2048 tokens. It has 8192"):
        write("m", tmp_path, lengths=[2048])


@pytest.fixture
def output(tmp_path):
    return written(tmp_path / "Some-Model")


def of(table, name):
    return table[table["dataset"] == name]


def test_results_become_the_same_table(output):
    table, model = collect(output)
    assert model == MODEL and {*table["dataset"]} == {*OFFICIAL} and {*table["length"]} == {8192}
    nq = of(table, "nq")
    raw = json.loads(next(output.glob("kilt_nq*42.json")).read_text())["data"]
    assert nq["score"].tolist() == [100 * item["substring_exact_match"] for item in raw]
    assert nq["cluster"].tolist() == [0, 0, 1, 1, 2, 2] and nq["position"].tolist()[:2] == [0, 0.5]
    assert nq["response"].tolist()[0] == "said 0" and nq["prompt_tokens"].tolist()[0] == 8000
    assert of(table, "infbench_choice")["score"].isin([0, 100]).all()
    assert of(table, "narrativeqa")["score"].tolist()[1:] == pytest.approx([200 / 3] * 5)
    assert of(table, "multi_lexsum")["score"].tolist()[1:] == [25] * 5
    assert of(table, "narrativeqa")["unscored"].tolist() == [True] + [False] * 5
    assert of(table, "alce_asqa")["score"].tolist() == [10, 20, 30]


@pytest.mark.parametrize("length", [8192, 65536])
def test_room_for_thoughts_is_no_part_of_the_length(tmp_path, length):
    table, _ = collect(written(tmp_path / "thinks", length=length, thinking=True))
    assert {*table["length"]} == {length} and {*table["dataset"]} == {*OFFICIAL}


def test_nothing_scored_yet(output):
    for path in output.iterdir():
        if not path.name.startswith("narrativeqa") or "gpt4eval" in path.name:
            path.unlink()
    with pytest.raises(UserError, match="Nothing in .*Some-Model has been scored yet"):
        collect(output)


def test_averages_are_helmets_own(output):
    found = averages(collect(output)[0], HELMET).set_index("name")
    assert found.loc["Cite", "value"] == 20 and np.isnan(found.loc["Cite", "low"])
    assert found.loc["Summ", "value"] == pytest.approx(25) and found.loc["Summ", "unscored"] == 2
    categories = found[found["level"] == "category"]
    assert len(categories) == 7 and found.loc["overall", "missing"] == ""
    assert found.loc["overall", "value"] == pytest.approx(categories["value"].mean())


def test_what_gpt4_has_not_graded_is_missing(output):
    for path in output.glob("*gpt4eval_o.json"):
        path.unlink()
    next(output.glob("alce_asqa*.score")).unlink()
    found = averages(collect(output)[0], HELMET).set_index("name")
    assert found.loc["overall", "missing"] == "alce_asqa, narrativeqa, Summ"
    assert found.loc["LongQA", "missing"] == "narrativeqa"


def damaged(output, pattern, change):
    path = next(output.glob(pattern))
    result = json.loads(path.read_text())
    change(result)
    path.write_text(json.dumps(result))
    return path.name


@pytest.mark.parametrize(("pattern", "change", "message"), [
    ("json_kv*42.json", lambda r: r.pop("metrics"), "is no result file of HELMET"),
    ("json_kv*42.json", lambda r: r["args"].pop("datasets"), "another version.*no datasets"),
    ("json_kv*42.json", lambda r: r["args"].update(datasets="mrcr"), "no data set 'mrcr'"),
    ("json_kv*42.json", lambda r: r["data"].pop(), "damaged: 5 samples, but 6 values of"),
    ("json_kv*42.json", lambda r: r["data"][3].pop("substring_exact_match"),
     "another version.*no substring_exact_match"),
])
def test_files_of_another_form_are_refused_by_name(output, pattern, change, message):
    name = damaged(output, pattern, change)
    with pytest.raises(UserError, match=f"{name}.*{message}"):
        collect(output)


def test_an_f1_above_one_is_averaged_as_helmet_does(output):
    damaged(output, "multi_lexsum*gpt4eval_o.json",
            lambda r: r["data"][1]["gpt-4-scores"].update(f1=1.25))
    scores = of(collect(output)[0], "multi_lexsum")["score"]
    assert scores.tolist()[1:] == [125] + [25] * 4
    damaged(output, "json_kv*42.json", lambda r: r["data"][3].update(substring_exact_match=1.286))
    with pytest.raises(UserError, match="128.6, expected 0 to 100"):
        collect(output)


def test_files_that_are_cut_short_are_refused_by_name(output):
    for pattern in ("msmarco*42.json", "alce_qampari*.score", "narrativeqa*gpt4eval_o.json"):
        path = next(output.glob(pattern))
        whole = path.read_text()
        path.write_text(whole[: len(whole) // 2])
        with pytest.raises(UserError, match=f"{path.name} is cut short"):
            collect(output)
        path.write_text(whole)
    collect(output)


def test_folders_that_are_not_one_models(output, tmp_path):
    with pytest.raises(UserError, match="nowhere: no such folder"):
        collect(tmp_path / "nowhere")
    with pytest.raises(UserError, match="holds no result files"):
        collect(tmp_path)
    name = damaged(output, "icl_nlu*42.json", lambda r: r["args"].update(model_name_or_path="x"))
    with pytest.raises(UserError, match="several models: org/Some-Model, x"):
        collect(output)
    other = (output / name).read_text().replace('"x"', json.dumps(MODEL))
    (output / name).write_text(other)
    (output / "copy.json").write_text(other)
    with pytest.raises(UserError, match="both about nlu at 8192 tokens"):
        collect(output)


def test_results_are_stored(output, cache):
    table, artifact = collect_stored(output)
    assert artifact.problems() == [] and collect_stored(output)[1] == artifact
    assert artifact.manifest["facts"]["model"] == MODEL and not table.empty
