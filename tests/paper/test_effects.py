"""Measured quantities: from hand-made results, against sums by hand."""

from itertools import product
from operator import attrgetter
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from rmutils.book.chapters import failure_modes, general_abilities
from rmutils.book.chapters.data_and_training import findings as pair_effects
from rmutils.book.chapters.data_and_training.findings import half_learned_change_beyond_same_layers
from rmutils.book.chapters.failure_modes import (
    FailureModes,
    failures_added,
    failures_added_beyond_others,
    failures_added_by_others,
    failures_added_by_same_layers,
)
from rmutils.book.chapters.general_abilities import general_change, general_scores_of
from rmutils.book.chapters.main_tables import task_effects
from rmutils.book.chapters.main_tables.task_effects import (
    AUTHORS,
    FEWER_PAIRS,
    HIGHER_THRESHOLD,
    OTHERS_PAIRS,
    OWN,
    THINKING,
    _scores,
    blind_cells,
    category_gain,
    category_gain_beyond,
    gain,
    gain_at,
    scores_of,
)
from rmutils.book.chapters.masking_sweep import findings as masking_sweep
from rmutils.book.chapters.masking_sweep import larger_sweeps
from rmutils.book.chapters.masking_sweep.experiment import Sweep
from rmutils.book.chapters.masking_sweep.larger_sweeps import LargerSweep
from rmutils.book.chapters.score_distribution import findings as sparsity_effects
from rmutils.book.chapters.training_effect import findings
from rmutils.book.claims.claim_list import MEASURED, load_claims
from rmutils.book.experiments import planned_runs as planned
from rmutils.book.experiments.planned_runs import planned_runs, trainings
from rmutils.book.verdicts import QUANTITIES, CannotShow
from rmutils.core.errors import NotStored
from rmutils.heads import HeadScores
from rmutils.heads.masking import MATCHED

ARTIFACT = SimpleNamespace(name="stored-1")
RNG = np.random.default_rng(0)


def scores(means, needles=4, model="m", success=None) -> HeadScores:
    """The same scores for every needle; heads in rows of four."""
    success = np.ones(needles, bool) if success is None else success
    runs = np.tile(np.reshape(means, (-1, 4)), (success.sum(), 1, 1)).astype(float)
    cases = pd.DataFrame({"case": range(needles), "needle": range(needles), "success": success})
    return HeadScores(runs, model, np.arange(needles)[success], cases)


@pytest.fixture
def detection(monkeypatch):
    """256 heads: 8 at 0.2, 8 at 0.06, the rest at 0.01; two of the four needles lack the latter."""
    found = scores([0.2] * 8 + [0.06] * 8 + [0.01] * 240)
    found.runs[:2, 2:4] = 0
    for module in (masking_sweep, larger_sweeps, sparsity_effects):
        monkeypatch.setattr(module, "scored", lambda model, compute: (found, ARTIFACT))
    return found


def test_heads(detection):
    assert sparsity_effects.share_of_retrieval_heads("tiny-llama").value == 8 / 256  # tau is 0.1
    both = sparsity_effects.share_of_retrieval_heads("tiny-qwen3")  # of half the needles 0.03
    assert (both.value, both.low, both.high) == (8 / 256, 8 / 256, 16 / 256)
    top = 8 * 0.2 + 8 * 0.03 + 10 * 0.01
    held = sparsity_effects.scores_held_by_top_tenth("m")  # 26 of 256
    assert held.value == pytest.approx(top / (8 * 0.2 + 8 * 0.03 + 240 * 0.01))
    assert held.low < held.value < held.high and held.artifacts == ("stored-1",)
    few = sparsity_effects.retrieval_heads_from_few_needles("m")
    assert (few.value, few.low, few.high) == (1, 1, 1)  # three needles always show the same eight
    assert few.note == "over all 4 choices; the worst finds 100%"


@pytest.fixture
def swept(monkeypatch, detection):
    """Ten needles and two questions. Without retrieval heads, needles from the fourth on are lost
    (8 heads; with 4, from the ninth on); without others, one in each draw."""
    def rows(policy, draw, count, right):
        return [{"policy": policy, "draw": draw, "count": count, "task": task, "sample": sample,
                 "cluster": sample, "correct": right(sample) if task == "haystack" else
                 policy == "whole"} for task, many in (("haystack", 10), ("rerank", 2))
                for sample in range(many)]

    answers = rows("whole", 0, 0, lambda i: True)
    answers += rows("retrieval", 0, 4, lambda i: i < 8) + rows("retrieval", 0, 8, lambda i: i < 3)
    answers += rows("retrieval", 0, 64, lambda i: False)
    for draw in range(2):
        answers += rows("non-retrieval", draw, 8, lambda i, draw=draw: i != draw)
    speech = [{"policy": policy, "draw": 0, "count": count, "task": "speech", "sample": i,
               "cluster": i, "repetition": value + i / 100}
              for policy, count, value in (
                  ("whole", 0, 0.1), ("retrieval", 4, 0.1), ("retrieval", 8, 0.1),
                  ("retrieval", 64, 0.4)) for i in range(5)]
    sweep = Sweep(pd.DataFrame(), pd.DataFrame(answers), pd.DataFrame(speech))
    monkeypatch.setattr(masking_sweep, "sweep_stored", lambda *args, compute: (sweep, ARTIFACT))
    monkeypatch.setattr(masking_sweep, "larger_sweep", lambda model: LargerSweep(
        sweep, detection, 8, ARTIFACT))


def test_masking(swept):
    """Eight heads reach 0.1. 40 of 1,024 are 10 of 256: the nearest number is 8."""
    beyond = masking_sweep.needles_lost_beyond_others("m")
    assert beyond.value == pytest.approx(0.9 - 0.3) and 0 < beyond.low < 0.6 < beyond.high <= 1
    assert masking_sweep.answers_lost_at_tau("m", "haystack").value == pytest.approx(0.7)
    assert masking_sweep.answers_lost("m", "haystack", 40).value == pytest.approx(0.7)
    assert masking_sweep.answers_lost("m", "haystack", 250).value == 1
    assert masking_sweep.answers_left("m", "haystack", 16).value == pytest.approx(0.8)
    assert masking_sweep.needles_lost_by_more_heads("m", 40).value == pytest.approx(0.8 - 0.3)
    all_lost = masking_sweep.answers_left("m", "tasks", 40)  # of two: no rule of three
    assert (all_lost.value, all_lost.low, all_lost.high) == (0, 0, 1)
    assert masking_sweep.repetition_added_at_most("m").value == pytest.approx(0.3)
    near = masking_sweep.repetition_added_at_tau("m")  # at 4, 8 and 64
    assert near.value == pytest.approx((0 + 0 + 0.3) / 3) and near.low < 0 < 0.3 < near.high
    assert (beyond.clusters, near.clusters, all_lost.clusters) == (10, 5, 2)
    assert not beyond.blocked  # the whole model finds all needles, so it can lose them
    with pytest.raises(CannotShow, match="no by heart are within the model's reach"):
        masking_sweep.answers_lost_at_tau("m", "by heart")


def test_masking_beside_others_of_the_same_layers(monkeypatch, swept):
    """Of 10 needles, 3 are left without retrieval heads, and 5 and 7 without others; the
    first eight heads fill two layers, so none of their own are left."""
    sweep, _ = masking_sweep.sweep_stored("m", None, compute="never")
    rows = sweep.answers[(sweep.answers["policy"] == "whole")]
    masked = [rows.assign(policy=MATCHED, draw=draw, count=8,
                          correct=(rows["sample"] < left) & (rows["task"] == "haystack"))
              for draw, left in enumerate((5, 7))]
    both = sweep.beside(Sweep(pd.DataFrame(), pd.concat([rows, *masked]), sweep.speech))
    scores = masking_sweep.scored("m", compute="never")[0]
    monkeypatch.setattr(masking_sweep, "shown_sweep", lambda model: (
        both, scores, [ARTIFACT, SimpleNamespace(name="stored-2")]))
    found = masking_sweep.needles_lost_beyond_same_layers("smollm2-135m")
    assert found.value == pytest.approx(0.6 - 0.3) and found.low < 0.3 < found.high
    assert found.artifacts == ("stored-1", "stored-2")
    assert found.note.startswith("8 of the 8 others come from another layer")


def test_failures(monkeypatch):
    """Ten prompts: the whole model passes nine, without retrieval heads two, without others nine
    and seven."""
    passed = {("nothing", 0): 9, ("retrieval", 0): 2, ("non-retrieval", 0): 9,
              ("non-retrieval", 1): 7}
    table = pd.DataFrame([{"kind": "entity name", "prompt": i, "masked": masked, "draw": draw,
                           "passed": i < count} for (masked, draw), count in passed.items()
                          for i in range(10)])
    table["text"] = [f"name {i}" for i in table["prompt"]]
    table = pd.concat([table, table.assign(kind="format constraint")])
    prompts = tuple(SimpleNamespace(text=f"name {i}") for i in range(10))
    monkeypatch.setattr(
        failure_modes, "planned_failures", lambda model: (
            FailureModes(prompts, table), [ARTIFACT.name]))
    monkeypatch.setattr(failure_modes, "OUTCOMES", {
        "entity name": ("copied", "missing"), "format constraint": ("kept", "lost")})
    monkeypatch.setattr(failure_modes, "outcome", lambda prompt, text: (
        "copied" if text == prompt.text else "missing"))
    effects = [f("m", "entity name") for f in (
        failures_added, failures_added_by_others,
        failures_added_beyond_others)]
    assert [e.value for e in effects] == pytest.approx([0.7, 0.1, 0.6])
    # Copying is the task, and a response to another prompt fails: nothing stands in the way.
    assert [(e.clusters, e.blocked) for e in effects] == [(10, "")] * 3
    same_layers = table[(table["kind"] == "entity name") & (table["masked"] == "nothing")].assign(
        masked=MATCHED, passed=lambda rows: rows["prompt"] < 4)
    monkeypatch.setattr(failure_modes, "planned_failures", lambda model: (
        FailureModes(prompts, table).beside(FailureModes(prompts, same_layers)),
        [ARTIFACT.name, "stored-2"]))
    matched = failures_added_by_same_layers("m", "entity name")
    assert matched.value == pytest.approx(0.9 - 0.4) and matched.artifacts == (
        ARTIFACT.name, "stored-2")
    monkeypatch.setattr(failure_modes, "outcome", lambda prompt, text: (
        "kept" if text == prompt.text else "lost"))
    assert "repeats the prompt passes 100%" in failures_added(
        "m", "format constraint").blocked
    monkeypatch.setattr(failure_modes, "outcome", lambda prompt, text: (
        "copied" if text != prompt.text else "lost"))
    assert "no better than blind guessing (90.0 of 100 against 100.0)" in failures_added(
        "m", "entity name").blocked


@pytest.fixture
def cleared():
    """Nothing is remembered, before and after."""
    remembered = trainings, _scores, blind_cells
    for function in remembered:
        function.cache_clear()
    yield
    for function in remembered:
        function.cache_clear()


@pytest.fixture
def runs(monkeypatch, cleared):
    """Two heads of four retrieve. RetMask adds 0.1 to them (0.3 with the second seed of two), and
    0.02 to the others; the other strategy adds 0.05 and nothing."""
    before = scores([0.8, 0.6, 0.1, 0.1])
    gains = {("retmask", 0): (0.1, 0.02), ("retmask", 1): (0.3, 0.02),
             ("non-retrieval-mask", 0): (0.05, 0), ("non-retrieval-mask", 1): (0.05, 0)}
    stored = {key: SimpleNamespace(
        before=before, training=f"train-{key[0]}-{key[1]}", artifact=SimpleNamespace(
            name=f"{key[0]}-{key[1]}", manifest={"config": {"tau": 0.5, "seed": key[1]}}),
        after=scores(before.mean.ravel() + np.repeat(gain, 2), model="after",
                     success=np.arange(4) > key[1] - 1))  # the second seed loses a needle
        for key, gain in gains.items()}

    def stored_runs(model, configs):
        usual = {"instructions": 512, "synthesizer": None, "source": "world", "tau": None,
                 "recipe.learning_rate": 1e-4}
        asked = [(config.strategy, config.seed, *(
            word for name, value in usual.items() if attrgetter(name)(config) != value
            for word in (name, attrgetter(name)(config)))) for config in configs]
        return ([stored[key] for key in asked if key in stored],
                [f"rmutils retmask {key}" for key in asked if key not in stored])

    monkeypatch.setattr(planned, "stored_runs", stored_runs)
    monkeypatch.setattr(planned, "planned_runs", lambda model: [
        config for config in planned_runs("tiny-llama") if config.seed < 2])


def test_training(runs):
    change = findings.retrieval_heads_change("m")
    # Two trainings, 0.1 and 0.3; one of them twice lies 0.1 away. Student's t for the normal's
    # quantile, from printed tables, and the bias of a standard deviation.
    away = 0.1 * np.sqrt(2) * 12.7062 / 1.95996
    assert change.value == pytest.approx(0.2) and (change.low, change.high) == pytest.approx(
        (0.2 - away, 1), rel=1e-4)  # no change of a share exceeds 1
    assert change.artifacts == ("retmask-0", "retmask-1")
    assert (change.clusters, change.note, change.blind) == (4, "2 seeds", "")
    assert findings.retrieval_heads_change("m", "non-retrieval-mask").value == pytest.approx(
        0.05)
    assert findings.retrieval_heads_change_beyond_others("m").value == pytest.approx(0.18)
    assert findings.mean_score_change("m").value == pytest.approx(0.11 / 0.4)
    assert findings.selective_change("m").value == pytest.approx(0.2 / 0.3 - 0.02 / 0.9)
    beyond = findings.retrieval_heads_change_beyond("m", "non-retrieval-mask")
    assert beyond.value == pytest.approx(0.15) and len(beyond.artifacts) == 4
    assert findings.needles_found_change("m").value == pytest.approx(-1 / 8)
    with pytest.raises(NotStored, match=r"2 of the 2 runs of sft .*`rmutils retmask \('sft', 0\)`"):
        trainings("m", "sft")


DATASETS = {"Recall": ("a", "b"), "Cite": ("c",), "ICL": ("d",)}


def evaluated(offsets: dict[tuple[str, int], float], cite: float = 0) -> pd.DataFrame:
    """Scores by strategy and seed: noise, plus an offset (another one in Cite, twice at length 2).
    Cite has two metrics."""
    rows = []
    for (strategy, seed), offset in offsets.items():
        for category, names in DATASETS.items():
            for name, length, sample in product(names, (1, 2), range(12)):
                added = (cite if strategy == "retmask" and category == "Cite" else offset) * length
                rows += [{"strategy": strategy, "seed": seed, "category": category,
                          "dataset": name, "length": length, "sample": sample,
                          "cluster": sample // 3, "metric": metric,
                          "score": 30 + 5 * RNG.random() + added}
                         for metric in range(1 + (category == "Cite"))]
    return pd.DataFrame(rows)


def average(table: pd.DataFrame, strategy: str, **chosen) -> float:
    """As HELMET, step by step: metrics, samples, data sets, categories; then lengths and seeds."""
    for column, value in (chosen | {"strategy": strategy}).items():
        table = table[table[column] == value]
    for column in ("metric", "sample", "dataset", "category", "length", "seed"):
        rest = [name for name in ("seed", "length", "category", "dataset", "sample", "metric")
                if name != column and name in table]
        table = table.groupby(rest)["score"].mean().reset_index() if rest else table
    return float(table["score"].mean())


@pytest.fixture
def table(monkeypatch):
    tables = {"m": evaluated({("before", 0): 0, ("retmask", 0): 3, ("retmask", 1): 5,
                              ("sft", 0): -1, ("sft", 1): -1}, cite=8),
              "other": evaluated({("before", 0): 0, ("retmask", 0): 1, ("retmask", 1): 1}, 1)}

    def of_strategy(model, strategy, config):
        rows = tables[model][tables[model]["strategy"] == strategy]
        return (pd.concat([task_effects.samples_of(part).assign(strategy=strategy, seed=seed)
                           for seed, part in rows.groupby("seed")]), (f"{model}, {strategy}",))

    monkeypatch.setattr(task_effects, "_scores", of_strategy)
    cells = {(category, length): "" for category in DATASETS for length in (1, 2)}
    monkeypatch.setattr(task_effects, "blind_cells", lambda model, config=None: cells)
    return tables["m"], cells


def test_long_context_against_plain_means(monkeypatch, table):
    table, _ = table

    def gain(strategy="retmask", base="before", **chosen):
        return average(table, strategy, **chosen) - average(table, base, **chosen)

    ours = task_effects
    assert ours.gain("m").value == pytest.approx(gain())
    assert ours.gain("m", "sft").value == pytest.approx(gain("sft"))
    assert ours.gain_at("m", 1).value == pytest.approx(gain(length=1))
    monkeypatch.setattr(ours, "corpus_of", lambda model: "world")
    monkeypatch.setitem(ours.EVALUATIONS, "world", SimpleNamespace(lengths=(1, 2)))
    assert ours.gain_at_longest("m").value == pytest.approx(gain(length=2))
    assert ours.lead("m", "sft").value == pytest.approx(gain(base="sft"))
    assert ours.lead_at("m", "sft", 2).value == pytest.approx(gain(base="sft", length=2))
    assert ours.lead_in("m", "sft", "Cite").value == pytest.approx(
        gain(base="sft", category="Cite"))
    assert ours.category_gain("m", "Cite").value == pytest.approx(gain(category="Cite"))
    assert ours.relative_category_gain("m", "Cite").value == pytest.approx(
        gain(category="Cite") / average(table, "before", category="Cite"))
    assert ours.category_gain_beyond("m", "Cite", "ICL").value == pytest.approx(
        (gain(category="Cite") + gain(category="ICL")) / 2 - gain(category="Recall"))
    assert ours.gain_beyond("m", "other").value == pytest.approx(
        gain() - ours.gain("other").value)
    assert ours.gain_beyond("m", "other").artifacts == (
        "m, retmask", "m, before", "other, retmask", "other, before")
    for effect in (ours.gain("m"), ours.relative_category_gain("m", "Cite"),
                   ours.category_gain_beyond("m", "Cite"), ours.gain_beyond("m", "other")):
        assert effect.low < effect.value < effect.high


def test_only_what_could_have_moved_counts(table):
    """Cite is blind at one length, ICL at both; the average is over what is left."""
    table, cells = table
    cells[("Cite", 1)] = cells[("ICL", 1)] = cells[("ICL", 2)] = "no room"
    kept = table[(table["category"] == "Recall")
                 | (table["category"] == "Cite") & (table["length"] == 2)]
    found = gain("m")
    assert found.value == pytest.approx(
        np.mean([average(kept, "retmask", category=c) - average(kept, "before", category=c)
                 for c in ("Recall", "Cite")]))
    # Recall has two data sets of four texts, Cite one.
    assert (found.clusters, found.note) == (12, "Recall, Cite (2 tokens); 2 seeds")
    with pytest.raises(CannotShow, match="no room"):
        category_gain("m", "ICL")
    with pytest.raises(CannotShow, match="only Recall could have moved"):
        gain_at("m", 1)
    with pytest.raises(CannotShow, match="neither ICL could"):
        category_gain_beyond("m", "ICL")


def test_which_cells_could_have_moved(monkeypatch, cleared):
    """Means over data sets: Cite stands 10 above the better baseline, RAG 2; Re-rank is constant.
    """
    rows = [("Cite", "a", 9, 10, 30.0, 1.0, 12.0, "x", 1), ("Cite", "b", 9, 10, 10.0, 9.0, 8.0,
            "x", 1), ("RAG", "c", 9, 10, 12.0, 10.0, 0.0, "y", 2),
            ("Re-rank", "d", 9, 10, 19.0, 19.0, 19.0, "[2] > [1]", 10)]
    table = pd.DataFrame(rows, columns=["category", "dataset", "length", "questions", "score",
                                        "shuffled", "constant", "commonest", "times"])
    monkeypatch.setattr(task_effects, "corpus_of", lambda model: "book")
    monkeypatch.setattr(task_effects, "baselines_stored", lambda model, config: (table, ARTIFACT))
    found = blind_cells("m")
    assert found["Cite", 9] == ""
    assert found["RAG", 9] == (
        "RAG at 9 tokens: hardly better than blind guessing (12.0 of 100 against 10.0)")
    assert "answers '[2] > [1]' to 100%" in found["Re-rank", 9]


def test_where_long_context_scores_come_from(monkeypatch, runs, cleared):
    """The model itself before, and each training by its name; as the corpus says."""
    asked = []

    def evaluate_stored(name, config, compute):
        asked.append((name, config.lengths, compute))
        if name == "train-retmask-1":
            raise NotStored(f"Make it: `rmutils evaluate {name}`.")
        table = pd.DataFrame([{"category": "Cite", "dataset": "c", "length": 9, "sample": 3,
                               "cluster": 1, "metric": metric, "score": score, "response": "x"}
                              for metric, score in (("a", 10.0), ("b", 20.0))])
        return table, SimpleNamespace(name=f"e {name}")

    monkeypatch.setattr(task_effects, "evaluate_stored", evaluate_stored)
    monkeypatch.setattr(task_effects, "corpus_of", lambda model: "book")
    table, names = scores_of("m", ("before", "non-retrieval-mask"))
    assert table.to_dict("list") == {
        "stratum": ["Cite"] * 3, "cluster": ["c 1"] * 3, "sample": ["c 9 3"] * 3, "length": [9] * 3,
        "score": [15.0] * 3, "strategy": ["before"] + ["non-retrieval-mask"] * 2, "seed": [0, 0, 1]}
    assert names == ("e m", "e train-non-retrieval-mask-0", "e train-non-retrieval-mask-1")
    assert asked[0] == ("m", (1024, 2048), "never")
    with pytest.raises(NotStored, match="rmutils evaluate train-retmask-1"):
        scores_of("m", ("retmask", "before"))
    with pytest.raises(NotStored, match="2 of the 2 runs of retmask .*'instructions', 18"):
        scores_of("m", [FEWER_PAIRS])
    monkeypatch.setitem(AUTHORS, "m", {"synthesizer": "another"})
    with pytest.raises(NotStored, match="2 of the 2 runs of retmask .*'synthesizer', 'another'"):
        scores_of("m", [OTHERS_PAIRS])
    with pytest.raises(NotStored, match="2 of the 2 runs of retmask .*256, 'source', 'self'"):
        scores_of("m", [f"retmask, {OWN}"])
    with pytest.raises(NotStored, match="2 of the 2 runs of retmask .*'tau', 0.1"):
        scores_of("m", [HIGHER_THRESHOLD])
    with pytest.raises(NotStored, match="2 of the 2 runs of .*recipe.learning_rate', 0.005"):
        scores_of("m", ["retmask, 50 times the rate"])
    table, names = scores_of("m", ("before",), THINKING)
    assert asked[-1] == ("m", (512, 1024), "never")


def test_where_general_scores_come_from(monkeypatch, runs):
    def stored(name, config, base, compute):
        if name == "gone":
            raise NotStored("")
        return (SimpleNamespace(samples=pd.DataFrame({"score": [2.0]})),
                SimpleNamespace(name=f"g {name} {base}"))

    monkeypatch.setattr(general_abilities, "evaluate_general_stored", stored)
    monkeypatch.setattr(general_abilities, "planned_abilities", lambda model: None)
    table, names = general_scores_of("m")
    assert table[["strategy", "seed"]].to_numpy().tolist() == [
        ["before", 0], ["retmask", 0], ["retmask", 1]]
    assert names == ("g m None", "g train-retmask-0 m", "g train-retmask-1 m")
    with pytest.raises(NotStored, match="`rmutils abilities gone --trainings`"):
        general_scores_of("gone")


def test_rejected_answers_beside_chosen_ones(monkeypatch):
    """The same instruction in two seeds is one piece of evidence."""
    sides = ("a b c d " * 3, "a b c d e f g h i j k l")
    pairs = pd.DataFrame({"id": ["x", "y"], "chosen": sides[::-1], "rejected": sides,
                          "chosen_tokens": [2, 9], "rejected_tokens": [5, 6]})
    runs = [SimpleNamespace(pairs=pairs.assign(rejected_tokens=pairs["rejected_tokens"] + seed),
                            artifact=SimpleNamespace(name=f"r{seed}", manifest={
                                "config": {"seed": seed}})) for seed in (0, 2)]
    monkeypatch.setattr(pair_effects, "trainings", lambda model, strategy: runs)
    longer, repeats = pair_effects.rejected_longer("m"), pair_effects.rejected_repeats("m")
    assert longer.value == pytest.approx((3 - 3 + 5 - 1) / 4)
    assert longer.low < longer.value < longer.high
    assert (repeats.value, repeats.clusters) == (pytest.approx(0), 2)
    assert longer.note == "4 pairs of 2 seeds" and longer.artifacts == ("r0", "r2")


def test_half_learned_heads_beside_others_of_the_same_layers(monkeypatch):
    """Scores differ by a twentieth on the model asked for; until all runs are stored it waits."""
    cases = pd.DataFrame([
        {"model": model, "arm": arm, "seed": seed, "needle": needle, "length": 9, "depth": 0.5,
         "success": True, "retrieval": 0.5 - 0.05 * (arm == "retmask" and model == "m")
         + (seed + needle) / 1000 * (arm == "retmask")}
        for model, arm, seed, needle in product(
            "mn", ("retmask", MATCHED + "-mask"), range(7), range(5))])
    found = SimpleNamespace(cases=cases, done=14, planned=14)
    monkeypatch.setattr(pair_effects.half, "half_learned", lambda: found)
    pair_effects.half_learned.cache_clear()
    effect = half_learned_change_beyond_same_layers("m")
    assert effect.value == pytest.approx(-0.05 + 0.005) and effect.low < effect.value < effect.high
    assert (effect.clusters, effect.note) == (5, "interval over needles and 7 seeds")
    found.done = 13
    pair_effects.half_learned.cache_clear()
    with pytest.raises(NotStored, match="compute_half auto"):
        half_learned_change_beyond_same_layers("m")


@pytest.fixture
def designed(monkeypatch):
    """Twelve models on a line; their gains are known to half a point."""
    x = np.linspace(0.2, 0.9, 12)
    gains = 10 * x + np.tile([0.3, -0.3], 6)
    table = pd.DataFrame({"sparsity": x, "gain": gains, "gain_low": gains - 0.5,
                          "gain_high": gains + 0.5})
    monkeypatch.setattr(sparsity_effects, "designs", lambda: dict.fromkeys("abcdefghijkl"))
    monkeypatch.setattr(sparsity_effects, "design_stored", lambda name, compute: SimpleNamespace(
        artifact=SimpleNamespace(name=compute)))
    monkeypatch.setattr(sparsity_effects, "points", lambda found, statistic: table)
    return table


def test_correlation_over_designed_models(designed):
    found = sparsity_effects.gain_over_designed_sparsity("gini")
    assert found.value == pytest.approx(np.corrcoef(designed["sparsity"], designed["gain"])[0, 1])
    assert found.low < found.value < found.high and not found.blocked
    assert (found.clusters, found.artifacts) == (12, ("never",) * 12)
    designed[["gain_low", "gain_high"]] += np.array([-20, 20])  # now they do not differ
    assert "do not differ more than chance" in sparsity_effects.gain_over_designed_sparsity(
        "gini").blocked


def test_correlation_at_equal_size(monkeypatch, designed):
    """It waits for all planned runs, and for eight designs."""
    found = SimpleNamespace(done={"retmask": 5}, planned={"retmask": 6}, artifacts=[ARTIFACT])
    table = designed.assign(error=0.25)
    monkeypatch.setattr(sparsity_effects, "sparsity_and_gain", lambda: found)
    monkeypatch.setattr(sparsity_effects, "gains_by_design", lambda result, statistic: table)
    with pytest.raises(NotStored, match="compute_sparsity auto"):
        sparsity_effects.gain_over_sparsity_at_equal_size("hoyer")
    found.done = found.planned
    effect = sparsity_effects.gain_over_sparsity_at_equal_size("hoyer")
    assert effect.value == sparsity_effects.gain_over_designed_sparsity("gini").value
    assert not effect.blocked and effect.artifacts == (ARTIFACT.name,)
    table = table.head(7)
    with pytest.raises(CannotShow, match="over 7 designs"):
        sparsity_effects.gain_over_sparsity_at_equal_size("hoyer")


def test_correlation_over_models(monkeypatch):
    """Four models have no say; eight have one."""
    lists = {f"m{i}": [9] * (i + 1) + [1] * (15 - i) for i in range(8)}
    monkeypatch.setattr(sparsity_effects, "gain", lambda model: SimpleNamespace(
        value=float(model[1]), low=float(model[1]) - 0.1, high=float(model[1]) + 0.1,
        artifacts=(model,)))
    monkeypatch.setattr(sparsity_effects, "scored", lambda model, compute: (
        scores(lists[model]), ARTIFACT))
    sparse = [sparsity_effects.gini(np.array(lists[model])) for model in lists]
    found = sparsity_effects.gain_over_sparsity(*lists)
    assert found.value == pytest.approx(np.corrcoef(sparse, range(8))[0, 1])
    assert found.artifacts == (*lists, *["stored-1"] * 8) and not found.blocked
    with pytest.raises(CannotShow, match="a correlation over 4 models"):
        sparsity_effects.gain_over_sparsity(*list(lists)[:4])


def test_general_abilities(monkeypatch):
    """Tasks count alike, though one has more questions; one at chance does not count, and one at
    the ceiling does: it can fall."""
    rows = [{"strategy": strategy, "seed": 0, "task": task, "sample": i,
             "score": level + i + (strategy == "retmask") * change}
            for strategy in ("before", "retmask") for task, level, count, change in (
                ("code", 50, 5, 2), ("formats", 50, 15, -8), ("letters", 25, 2, 40),
                ("arithmetic", 97, 3, -3))
            for i in range(count)]
    monkeypatch.setattr(
        general_abilities, "general_scores_of", lambda model: (pd.DataFrame(rows), ("g",)))
    monkeypatch.setattr(general_abilities, "corpus_of", lambda model: "book")
    found = general_change("m")
    assert (found.value, found.low, found.high) == pytest.approx((-3, -3, -3))
    assert (found.clusters, found.note) == (
        23, "3 of 4 tasks: code, formats, arithmetic; one training")


def test_published_scores():
    """Counted by hand in the files: 33 of 1,024 heads at 0.1 or above with all copies, and 35 if
    each of the 59 distinct runs counts once."""
    found = sparsity_effects.published_share_of_heads("Llama-3.1-8B-Instruct")
    assert (found.value, found.clusters) == (35 / 1024, 59)
    assert found.low < 33 / 1024 < found.value < found.high
    assert "283 of the 342 published runs equal another one" in found.note and "3.2%" in found.note
    assert "5 independent" in sparsity_effects.published_share_of_heads("Olmo-3-7B-Think").blocked
    held = sparsity_effects.published_scores_held_by_top_tenth("Olmo-3-7B-Think")
    assert 0.5 < held.value < 1


def test_every_quantity_decides_a_claim():
    """Each says what it is, comes from a module that claims name, and is used."""
    assert {known.measure.__module__ for known in QUANTITIES.values()} == {
        module.__name__ for module in MEASURED}
    assert all(known.words for known in QUANTITIES.values())
    assert {measure.quantity for claim in load_claims() for measure in claim.measures} == {
        *QUANTITIES}
