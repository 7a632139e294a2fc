"""Evaluations: what is asked and kept; neither order nor sharing changes an answer."""

import json
import shlex

import numpy as np
import pandas as pd
import pytest
import torch

from rmutils.attention import variants
from rmutils.core.errors import NotStored, UserError
from rmutils.core.results import Artifact
from rmutils.evaluation.helmet import EvaluateConfig, evaluate, evaluate_stored
from rmutils.evaluation.helmet import evaluation as module
from rmutils.evaluation.helmet import evaluation as stored
from rmutils.evaluation.helmet.averages import averages
from rmutils.evaluation.helmet.metrics import GradingJudge
from rmutils.evaluation.helmet.prompts import prompter_of, questions
from rmutils.evaluation.helmet.suite import DATASETS
from rmutils.models import REGISTRY, identify, load_model, loading, trained
from rmutils.models.language_model import counter
from rmutils.preference.judges import ServerJudge
from tests.evaluation.helmet.test_metrics import CITED

SMALL = EvaluateConfig(datasets=("document_qa", "labels_coarse", "free_answer"), lengths=(300,),
                       samples=6)


@pytest.fixture
def oracle(monkeypatch):
    """Every answer is the right one, behind a thought if there is room for one."""
    right = {}

    def listening(prompter, samples):
        asked = questions(prompter, samples)
        right.update({tuple(ask.prompt): ask.question.answer for ask in asked})
        return asked

    def generate(lm, prompts, *, max_new_tokens, done, **options):
        for i, prompt in enumerate(prompts):
            text = right[tuple(prompt)]
            if max_new_tokens > 200:
                text = f"<think>\nNo: {text[::-1]}\n</think>\n\n{text}"
            done(i, lm.tokenizer(text, add_special_tokens=False)["input_ids"])

    monkeypatch.setattr(module, "questions", listening)
    monkeypatch.setattr(variants, "generate", generate)


@pytest.mark.parametrize("form", [{}, {"chat": False}, {"chat": True}, {"thinking": True}])
def test_an_oracle_scores_100(stranger, oracle, form):
    table = evaluate(stranger, EvaluateConfig(samples=6, lengths=(800,), **form))
    assert (table["score"] == 100).all() and not table["unscored"].any()
    assert {*table["dataset"]} == {*EvaluateConfig().datasets}
    assert not table["response"].str.contains("think|No:").any()
    rows = sum(6 * len(DATASETS[name].metrics) for name in EvaluateConfig().datasets)
    assert len(table) == rows == len(table.drop_duplicates(["dataset", "metric", "sample"]))


def test_a_text_for_each_question(teaching):
    """`per_text` bounds the questions about one text, never raises their number."""
    for name in ("document_qa", "labels_coarse"):
        asked = {n: questions(prompter_of(
            teaching, DATASETS[name], 300, EvaluateConfig(per_text=n), counter(teaching)), 12)
            for n in (None, 1, 2, 99)}
        assert [ask.cluster for ask in asked[1]] == [*range(12)]
        assert len({ask.question.context for ask in asked[1]}) == 12
        assert max(pd.Series([ask.cluster for ask in asked[2]]).value_counts()) == 2
        assert asked[99] == asked[None]
    assert EvaluateConfig(per_text=1).digest() != EvaluateConfig().digest()


def test_few_samples_are_spread_over_texts(teaching):
    """Ten used to be about one text in ICL, and about two elsewhere, so had no interval."""
    config = EvaluateConfig(datasets=("labels_coarse", "document_qa"), lengths=(300,), samples=10)
    found = evaluate(teaching, config)
    assert (found.groupby("dataset")["cluster"].nunique() == 10).all()
    means = averages(found).query("level == 'data set'")
    assert means["texts"].tolist() == [10, 10] and np.isfinite(means["low"]).all()
    # The texts are those of ever, and each is asked about what came first.
    before = evaluate(teaching, config.changed({"samples": "50"}))
    first = before.groupby(["dataset", "cluster"]).head(1).groupby("dataset").head(5)
    same = found.groupby("dataset").head(5).reset_index(drop=True)
    for column in ("cluster", "score", "response"):
        assert first[column].tolist() == same[column].tolist()


def test_samples_that_are_stored_are_as_ever():
    """`spread` is part of the identity where it is in force, and nowhere else."""
    few, many = EvaluateConfig(samples=19), EvaluateConfig(samples=20)
    assert few.identity()["spread"] and "spread" not in many.identity()
    assert few.digest() == few.changed({"spread": "true"}).digest()
    assert many.digest() == many.changed({"spread": "false"}).digest()
    assert many.digest() != many.changed({"spread": "true"}).digest()
    assert "spread" not in few.changed({"spread": "false"}).identity()
    assert "spread" not in few.changed({"per_text": "1"}).identity()
    assert EvaluateConfig.model_validate(few.identity()) == few.changed({"spread": "true"})


def test_rows_say_what_was_asked(teaching):
    table = evaluate(teaching, SMALL)
    for name in SMALL.datasets:
        dataset, part = DATASETS[name], table[table["dataset"] == name]
        asked = questions(prompter_of(teaching, dataset, 300, SMALL, counter(teaching)), 6)
        assert part["sample"].tolist() == [*range(6)]
        assert part["cluster"].tolist() == [ask.cluster for ask in asked]
        assert part["prompt_tokens"].tolist() == [len(ask.prompt) for ask in asked]
        depths = [ask.question.depth for ask in asked]
        np.testing.assert_array_equal(part["position"], depths)
        assert {*part["category"]} == {dataset.category}
        assert part["position"].notna().all() == (name != "labels_coarse")
    assert table["score"].between(0, 100).all() and table["score"].max() == 100


@torch.inference_mode()
def slowly(lm, prompt, count):
    """The whole prompt is read anew for each token, alone."""
    said = []
    while len(said) < count:
        token = lm.model(torch.tensor([[*prompt, *said]])).logits[0, -1].argmax().item()
        if token in lm.stop_ids:
            break
        said.append(token)
    return lm.tokenizer.decode(said, skip_special_tokens=True).strip()


def test_shared_texts_and_order_change_no_answer(teaching):
    """Each answer is that of slow reading; fewer data sets and samples change none."""
    table = evaluate(teaching, SMALL)
    for name in SMALL.datasets:
        dataset = DATASETS[name]
        asked = questions(prompter_of(teaching, dataset, 300, SMALL, counter(teaching)), 6)
        responses = table.loc[table["dataset"] == name, "response"].tolist()
        assert responses[:3] == [slowly(teaching, ask.prompt, dataset.max_new_tokens)
                                 for ask in asked[:3]]
    few = evaluate(teaching, SMALL.changed({"datasets": ["free_answer"], "samples": 4}))
    same = table.query("dataset == 'free_answer' and sample < 4").reset_index(drop=True)
    pd.testing.assert_frame_equal(few, same)


def test_what_does_not_fit_is_said_before_anything_runs(teaching, stranger, monkeypatch):
    monkeypatch.setattr(variants, "generate", lambda *args, **kwargs: pytest.fail("asked"))
    with pytest.raises(UserError, match="rerank does not fit into 400 tokens: take at least"):
        evaluate(stranger, EvaluateConfig(lengths=(400,), datasets=("needle_rivals", "rerank")))
    with pytest.raises(UserError, match="the window of tiny-llama has 4096"):
        evaluate(teaching, EvaluateConfig(lengths=(512, 8192)))


def test_stored_and_read(teaching, cache):
    with pytest.raises(NotStored) as missing:
        evaluate_stored("tiny-llama", SMALL, compute="never")
    table, artifact = evaluate_stored("tiny-llama", SMALL)
    assert artifact.problems() == [] and artifact.manifest["facts"] == {"answers": 18,
                                                                        "unscored": 0}
    read, same = evaluate_stored(teaching, SMALL, compute="never")
    assert same == artifact
    pd.testing.assert_frame_equal(read, table)
    pd.testing.assert_frame_equal(table, evaluate(teaching, SMALL))
    words = shlex.split(str(missing.value).split("`")[1])
    assert words[:3] == ["rmutils", "evaluate", "tiny-llama"]
    options = dict(zip(words[3::2], words[4::2], strict=True))
    assert EvaluateConfig().changed({k[2:]: v for k, v in options.items()}) == SMALL


class Server(ServerJudge):
    """Replies from a list, the last one again and again."""

    def __init__(self, *replies):
        super().__init__("http://127.0.0.1:9", "judge")
        self.replies, self.asked = list(replies), []

    def reply(self, question, temperature):
        self.asked.append(question)
        reply = self.replies[0] if len(self.replies) == 1 else self.replies.pop(0)
        if isinstance(reply, BaseException):
            raise reply
        return reply


JUDGED = SMALL.changed({"datasets": ["document_qa", "free_answer"], "samples": 3})


def test_a_judge_grades(stranger, oracle, tmp_path):
    """Its grades are kept; rules score what HELMET has no model grade."""
    config = JUDGED.changed({"lengths": [500]})
    server = Server('I say {"fluency": 1, "correctness": 2}', 'so {"fluency": 0, "correctness": 3}',
                    '{"fluency": 1, "correctness": 3}')
    table = evaluate(stranger, config, journal=tmp_path / "j", judge=GradingJudge(server))
    scores = table.groupby("dataset")["score"].apply(list)
    assert scores["free_answer"] == pytest.approx([200 / 3, 0, 100])
    assert scores["document_qa"] == [100] * 3
    answer = table.query("dataset == 'free_answer' and sample == 0")["response"].item()
    assert f"Right answer: {answer}\nAnswer: {answer}" in server.asked[0]
    prompter = prompter_of(stranger, DATASETS["free_answer"], 500, config, counter(stranger))
    asked = [ask.question.after.strip() for ask in questions(prompter, 3)]
    assert all(f"Question: {a}\n" in text for a, text in zip(asked, server.asked, strict=True))
    silent = Server("nothing")
    again = evaluate(stranger, config, journal=tmp_path / "j", judge=GradingJudge(silent))
    pd.testing.assert_frame_equal(again, table)
    assert silent.asked == []


def test_a_judge_tells_how_a_summary_reads():
    """Its key points are counted here; who judges, by which words, is part of a result's name."""
    judge = GradingJudge(Server('{"fluency": 1}', '{"fluency": 0}', "nothing"))
    grades = [judge.metrics["key_point_f1"]("Alan Abbeck lives in Foxmoor.", CITED)
              for _ in range(3)]
    assert grades == [pytest.approx(2 / 3), 0, None]
    assert "\nText: Alan Abbeck lives in Foxmoor.\n" in judge.server.asked[0]
    other = Server()
    other.name = "another judge"
    assert judge.identity == GradingJudge(Server()).identity != GradingJudge(other).identity


@pytest.mark.parametrize("reply", [
    "no grade", "", '{"fluency": 1}', '{"fluency": 2, "correctness": 3}',
    '{"fluency": 1, "correctness": 4}', '{"fluency": 1, "correctness": "3"}',
    '{"fluency": true, "correctness": 1}', '{"fluency": 1, "correctness": 3',
    UserError("the judge is down")])
def test_nonsense_and_silence_are_unscored(stranger, oracle, tmp_path, reply):
    """Never 0, and asked again in the next run."""
    config = JUDGED.changed({"lengths": [500]})
    judge = GradingJudge(Server(reply))
    table = evaluate(stranger, config, journal=tmp_path / "j", judge=judge)
    free = table[table["dataset"] == "free_answer"]
    assert free["score"].isna().all() and free["unscored"].all()
    assert not table.loc[table["dataset"] == "document_qa", "unscored"].any()
    assert bool(judge.trouble) == isinstance(reply, UserError)
    assert len(judge.server.asked) == (1 if judge.trouble else 9)  # three times each
    good = GradingJudge(Server('{"fluency": 1, "correctness": 3}'))
    table = evaluate(stranger, config, journal=tmp_path / "j", judge=good)
    assert (table["score"] == 100).all() and len(good.server.asked) == 3


def test_without_its_judge_nothing_is_stored(cache, stranger, oracle, monkeypatch):
    """And once the judge is there, the model is not asked again."""
    config = JUDGED.changed({"lengths": [500]})
    silent = GradingJudge(Server(UserError("the judge is down.")))
    with pytest.raises(UserError, match="the judge is down.*the same command goes on"):
        evaluate_stored(stranger, config, judge=silent)
    asked = []
    monkeypatch.setattr(variants, "generate", lambda lm, prompts, **_: asked.extend(prompts))
    good = GradingJudge(Server('{"fluency": 1, "correctness": 3}'))
    assert (evaluate_stored(stranger, config, judge=good)[0]["score"] == 100).all()
    assert asked == []


def test_empty_answers_are_not_shown_to_a_judge(stranger, monkeypatch):
    def silent(lm, prompts, *, done, **options):
        for i in range(len(prompts)):
            done(i, [])

    monkeypatch.setattr(variants, "generate", silent)
    server = Server('{"fluency": 1, "correctness": 3}')
    table = evaluate(stranger, JUDGED.changed({"lengths": [500]}), judge=GradingJudge(server))
    assert (table["score"] == 0).all() and server.asked == []


def test_trained_models_by_the_name_of_their_training(cache, teaching, monkeypatch):
    """Read by the name where there are no weights; loaded by it where there are."""
    name = "train-0123456789abcdef"
    with pytest.raises(UserError, match=f"the weights of {name} are not stored"):
        load_model(name)
    for seed, training in enumerate(("train-0000000000000000", name), 2):
        run = cache / "artifacts" / f"retmask-000000000000000{seed}"
        run.mkdir(parents=True)
        (run / "run.json").write_text(json.dumps({"training": training}))
        (run / "manifest.json").write_text(
            json.dumps({"command": f"rmutils retmask x -p seed {seed}"}))
    with pytest.raises(UserError, match="`rmutils retmask x -p seed 3 --compute always` trains"):
        load_model(name)
    folder = cache / "artifacts" / name
    teaching.model.save_pretrained(folder)
    teaching.tokenizer.save_pretrained(folder)
    (folder / "training.json").write_text(json.dumps({"model": "tiny-llama"}))
    monkeypatch.setattr(trained, "find", lambda key: Artifact(folder))
    with monkeypatch.context() as patch:  # as on a GPU, where folders are read in half precision
        known = loading._default_dtype
        patch.setattr(loading, "_default_dtype", lambda name, device: (
            known(name, device) if name in REGISTRY else torch.bfloat16))
        lm = load_model(name)
    assert lm.model.dtype == torch.float32
    assert lm.name == lm.identity == name == identify(name) and lm.corpus == "world"
    config = EvaluateConfig(datasets=("choice",), lengths=(300,), samples=2)
    table = evaluate(lm, config)
    pd.testing.assert_frame_equal(table, evaluate(teaching, config))


CONFIG = EvaluateConfig(datasets=("document_qa", "labels_coarse", "key_value"),
                        lengths=(300, 400), samples=3)


def test_no_worker_is_without_work(cache, monkeypatch):
    """A single data set is answered by this process, two by two others of the four."""
    asked = []
    monkeypatch.setattr(stored, "evaluate_side_by_side", lambda *given: asked.append(given[3])
                        or evaluate(load_model("tiny-llama"), given[1], journal=given[2]))
    for names in (("key_value",), ("key_value", "labels_coarse")):
        config = CONFIG.changed({"datasets": names, "lengths": (300,), "samples": 1})
        table, _ = stored.evaluate_stored("tiny-llama", config, workers=4)
        assert {*table["dataset"]} == {*names}
    assert asked == [2]
