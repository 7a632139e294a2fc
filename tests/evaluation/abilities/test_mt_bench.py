"""MT-Bench with a judge behind a real server, which rates some answers and not others."""

import json
import re
import threading

import pandas as pd
import pytest
from typer.testing import CliRunner

from rmutils.__main__ import app
from rmutils.book.chapters.general_abilities import ability_table
from rmutils.book.jobs.jobs import STAGES
from rmutils.book.jobs.plan import plan, read
from rmutils.book.jobs.plan import write as write_plan
from rmutils.book.jobs.published_experiments import CHECKPOINTS
from rmutils.book.jobs.studies import PaperConfig, paper
from rmutils.book.jobs.study_costs import estimate_paper
from rmutils.core import results
from rmutils.core.errors import UserError
from rmutils.evaluation.abilities.mt_bench import (
    MTBenchConfig,
    Question,
    mt_bench,
    mt_bench_stored,
    read_questions,
)
from rmutils.evaluation.answers import answer
from rmutils.models import load_model
from rmutils.preference import judges
from rmutils.preference.judges import ServerJudge
from tests.servers import Answering, serving

SMALL = MTBenchConfig(max_new_tokens=4)
QUESTIONS = [
    Question("81", "writing", ("Write {a}\u2028line.", "Make it shorter.")),
    Question("111", "math", ("What is 2 + 3?", "And 3 + 3?"), ("5", "6")),
    Question("97", "odd", ("Say nothing that can be rated.",)),
]


def write(path):
    path.write_text("".join(json.dumps({
        "question_id": int(q.id), "category": q.category, "turns": q.turns,
        **({"reference": q.references} if q.references else {})}, ensure_ascii=False) + "\n"
        for q in QUESTIONS))


class Handler(Answering):
    """Rates with the number of user turns; has no rating for one of the questions."""

    def do_POST(self):  # noqa: N802
        question = self.posted()["messages"][0]["content"]
        with self.server.lock:
            self.server.log.append(question)
        self.says("Hm." if "nothing that can be rated" in question else
                  f"[[{len(re.findall('^User: ', question, re.MULTILINE)) + 4}]]")


@pytest.fixture
def judge(monkeypatch):
    monkeypatch.setattr("rmutils.core.server.PAUSE", 0.0)
    with serving(Handler, lock=threading.Lock(), log=[]) as server:
        judge = ServerJudge(server.address, "some-judge")
        judge.log = server.log
        yield judge


def test_the_judge_sees_no_thoughts(judge, monkeypatch):
    lm = load_model("tiny-llama")
    monkeypatch.setattr(lm.tokenizer, "decode", lambda *_, **__: "<think>Or Foxmoor?</think> Ada")
    table = mt_bench(lm, QUESTIONS[:1], judge, SMALL)
    assert table["response"].tolist() == ["Ada", "Ada"]
    assert len(judge.log) == 2 and not any("Foxmoor" in question for question in judge.log)


def test_turn_by_turn(lm, judge):
    found = mt_bench(lm, QUESTIONS, judge, SMALL)
    assert list(zip(found["sample"], found["turn"], strict=True)) == [
        (0, 1), (0, 2), (1, 1), (1, 2), (2, 1)]
    assert found["kind"].tolist() == ["writing"] * 2 + ["math"] * 2 + ["odd"]
    assert found["score"].tolist()[:4] == [50, 60, 50, 60]
    # greedy answers of the category math, the second one knowing the first
    said, messages = [], []
    for turn in QUESTIONS[1].turns:
        messages.append({"role": "user", "content": turn})
        prompt = lm.tokenizer.apply_chat_template(messages, add_generation_prompt=True,
                                                  return_dict=False)
        said += answer(lm, [prompt], max_new_tokens=4)
        messages.append({"role": "assistant", "content": said[-1]})
    assert found["response"].tolist()[2:4] == said
    # the judge sees the conversation so far, and the right answer to its last question
    second, = (q for q in judge.log if "And 3 + 3?" in q)
    assert f"User: What is 2 + 3?\n\nAssistant: {said[0]}\n\nUser: And 3 + 3?" in second
    assert "<answer>\n6\n</answer>" in second and "<answer>\n5" not in second
    assert all("<answer>" not in q for q in judge.log if "{a} line" in q)


def test_what_has_no_rating_is_counted_and_not_bad(llama, judge):
    found = mt_bench(llama, QUESTIONS, judge, SMALL)
    assert pd.isna(found["score"].iloc[-1])
    row, = ability_table(found).itertuples()
    assert (row.samples, row.unscored, row.value) == (4, 1, 55)
    table = ability_table(found[found["kind"] == "odd"])
    assert table["samples"].tolist() == [0] and pd.isna(table["value"]).all()
    assert judge.log.count(judge.log[-1]) <= judges.ATTEMPTS


def test_sampled_answers_come_from_the_seed(llama, judge):
    first, same, other = (mt_bench(llama, QUESTIONS[:1], judge, SMALL.changed({"seed": seed}))
                          for seed in (0, 0, 1))
    assert first["response"].tolist() == same["response"].tolist() != other["response"].tolist()


def test_in_the_papers_study(judge, tmp_path, cache):
    """After training, and of published weights. A job asks what the command asks, at a price."""
    write(tmp_path / "question.jsonl")
    whole = PaperConfig().changed({"models": "qwen3-8b", "places": "Table 1"})
    config = whole.changed({"mt_bench.questions": str(tmp_path / "question.jsonl"),
                            "mt_bench.judge": judge.url, "mt_bench.judge_model": judge.name})
    without, jobs = plan(paper(whole)), plan(paper(config))
    asked = {name: job for name, job in jobs.items() if name not in without}
    assert [(job.model, job.run and job.run.strategy) for job in asked.values()] == [
        ("qwen3-8b", None), ("qwen3-8b", "retmask"), (CHECKPOINTS["qwen3-8b"], None)]
    assert read(write_plan(jobs, tmp_path)) == jobs
    costs = estimate_paper(config).costs
    assert all("5 prompts" in costs[name].why for name in asked)

    before, *_ = asked.values()
    assert before.evaluation.answers == MTBenchConfig(max_new_tokens=32768, thinking=True)
    short = before.evaluation.changed({"answers": SMALL})
    job = before.model_copy(update={"model": "tiny-llama", "evaluation": short})
    told = STAGES["evaluate"](job, {}, "auto", 1)
    words = ["abilities", "tiny-llama", "--mt-bench", str(tmp_path / "question.jsonl"), "--judge",
             judge.url, "--judge-model", judge.name, "-p", "max_new_tokens", "4", "--json"]
    found = CliRunner().invoke(app, [*words, "--compute", "never"])
    asked_by_command = results.find(json.loads(found.stdout)["artifact"])
    assert [asked_by_command.key] == told["artifacts"]
    with pytest.raises(UserError, match="questions and judge need each other"):
        PaperConfig().changed({"mt_bench.judge": judge.url})
    with pytest.raises(UserError, match="no such file"):
        paper(config.changed({"mt_bench.questions": str(tmp_path / "none.jsonl")}))


def test_questions_from_a_file_and_stored_ratings(llama, judge, tmp_path, cache):
    path = tmp_path / "question.jsonl"
    with pytest.raises(UserError, match="no such file. The questions of MT-Bench are in FastChat"):
        read_questions(path)
    write(path)
    assert read_questions(path) == QUESTIONS
    found, artifact = mt_bench_stored(llama, path, judge, SMALL, command="x")
    assert artifact.manifest["facts"] == {"answers": 5, "unscored": 1}
    asked = len(judge.log)
    again, _ = mt_bench_stored(llama, path, judge, SMALL, compute="never", command="x")
    pd.testing.assert_frame_equal(again, found)
    assert len(judge.log) == asked
    with pytest.raises(UserError, match="Make it: `y`"):
        mt_bench_stored(llama, path, ServerJudge(judge.url, "another"), SMALL, compute="never",
                        command="y")
    path.write_text(path.read_text() + '{"question_id": 1}\n')
    with pytest.raises(UserError, match=r"question.jsonl, line 4: expected an object with"):
        read_questions(path)


def test_a_judge_that_is_down(llama):
    with pytest.raises(UserError, match="cannot be reached"):
        mt_bench(llama, QUESTIONS[:1], ServerJudge("http://127.0.0.1:9"), SMALL)
