"""A stopped run goes on from its journal, which is of no use to another model, nor to the same one
with masked heads."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from rmutils.attention.ms_poe import MsPoe
from rmutils.attention.variants import Plain
from rmutils.book.chapters.failure_modes import FailureConfig, failure_modes
from rmutils.book.chapters.is_it_causal.experiment import LeadersConfig, leaders_by_length
from rmutils.book.chapters.is_it_causal.real_exchanges import RealExchangeConfig, exchanged_sets
from rmutils.book.chapters.masking_sweep import experiment as masking_sweep
from rmutils.book.chapters.masking_sweep.experiment import SweepConfig, sweep
from rmutils.book.chapters.memory_by_heads import MemoryConfig, memory_needles
from rmutils.book.chapters.redirect_heads.experiment import RedirectConfig, redirected_answers
from rmutils.book.chapters.share_attention.layer_choice import RecallConfig, recall
from rmutils.book.experiments.masked_needles import MaskedNeedlesConfig, masked_needles
from rmutils.book.experiments.run_costs import CostsConfig, costs
from rmutils.book.experiments.under_variants import TextsConfig, VariantConfig, measure
from rmutils.book.experiments.variant_questions import DocumentsConfig
from rmutils.core.errors import UserError
from rmutils.evaluation.abilities.evaluate_abilities import GeneralConfig, evaluate_general
from rmutils.evaluation.abilities.mt_bench import MTBenchConfig, Question, mt_bench
from rmutils.evaluation.helmet import EvaluateConfig, evaluate
from rmutils.heads import DetectConfig, HeadScores, detect, mask_heads
from rmutils.heads.masking import scaled_outputs
from rmutils.models import LanguageModel, load_model
from rmutils.models.engine.implementations import GROUPED, using
from rmutils.models.loading import ModelRef
from rmutils.preference.responses import ResponseConfig, Transformers, respond
from rmutils.preference.sources import synthesize

GRID = DetectConfig(lengths=(256,), depths=(0.5,), needles=2, max_new_tokens=12)
ASKED = ["Where is the key?", "Name a town."]
JUDGE = SimpleNamespace(identity="judge", at_once=1, ask=lambda asked, read: 5.0)
RUNS: dict[str, Callable[[LanguageModel, Path], object]] = {
    "detect": lambda lm, path: detect(lm, GRID, journal=path).cases.drop(columns="seconds"),
    "respond": lambda lm, path: respond(
        lm, ASKED, ResponseConfig(temperature=0, max_new_tokens=8), path),
    "evaluate": lambda lm, path: evaluate(lm, EvaluateConfig(
        datasets=("labels_coarse",), lengths=(300,), samples=2), journal=path),
    "abilities": lambda lm, path: _abilities(lm, path),
    "mt-bench": lambda lm, path: mt_bench(
        lm, [Question(name, "math", ("What is 2 + 3?",)) for name in "12"], JUDGE,
        MTBenchConfig(max_new_tokens=6), journal=path),
    "synthesize": lambda lm, path: pd.DataFrame(
        [one for one, _ in zip(synthesize(lm, 1, 0, path), range(2), strict=False)]),
    "variants": lambda lm, path: measure(lm, VariantConfig(
        needles=None, documents=None, texts=TextsConfig(count=2)), journal=path)["texts"],
    "recall": lambda lm, path: recall(lm, RecallConfig(needles=GRID, p=(0.9,)), path)["recall"],
    "leaders": lambda lm, path: leaders_by_length(
        lm, LeadersConfig(cases=GRID, heads=((3, 7),)), journal=path).table,
    "real exchanges": lambda lm, path: exchanged_sets(
        lm, HeadScores(np.arange(64).reshape(1, 4, 16) / 500, "m"), RealExchangeConfig(
            detect=GRID, cases=GRID, shares=(0.05,), draws=1, seed=0), journal=path),
    "masked needles": lambda lm, path: masked_needles(lm, MaskedNeedlesConfig(
        detect=GRID, counts=(2,), curve=(1,), same_layers=1, anywhere=0, every_position=0,
        asked=GRID.changed({"needles": None}), sets=("literal",), skipped=3, needles=2),
        journal=path).answers,
    "memory": lambda lm, path: memory_needles(lm, MemoryConfig(
        detect=GRID, scores=("copy",), shares=(0.5,), skipped=3, needles=2, sinks=4, recent=24,
        asked=GRID.changed({"needles": None, "needle_set": "literal"})), journal=path),
    "redirect": lambda lm, path: redirected_answers(lm, RedirectConfig(
        detect=GRID, scores=("copy",), shares=(0.1,), strengths=(5,), share=0.1, strength=5,
        same_layers=1, anywhere=0, pairs=2, variants=("two",), length=300, max_new_tokens=8),
        journal=path).answers,
}
FACTORS = dict.fromkeys(
    ("leaders", "real exchanges", "masked needles", "memory", "redirect"), 0.7)
"""The factors of runs that only look at answers that are found."""
OTHERS: dict[str, Callable[[LanguageModel, Path], object]] = {
    "documents": lambda lm, path: measure(lm, VariantConfig(
        variant=MsPoe(first_layer=1, order="position_aware"), needles=None, texts=None,
        documents=DocumentsConfig(lengths=(256,), places=(0, 1), questions=2)),
        journal=path)["documents"],
    "costs": lambda lm, path: costs(lm, CostsConfig(
        length=160, rounds=2, steps=2, variants={"plain": Plain()}), path)["costs"][
            ["variant", "prefill_work", "kept"]],
    "failures": lambda lm, path: failure_modes(
        lm, {"retrieval": [[(3, 7)]], "non-retrieval": [[(1, 0)], [(0, 0)]]},
        FailureConfig(lengths=(240,), depths=1, draws=2, prompts=2, max_new_tokens=4),
        path.parent).table,
    "sweep": lambda lm, path: sweep(
        lm, HeadScores(np.arange(64).reshape(1, 4, 16) / 500, "m"), SweepConfig(
            counts=(1,), taus=(0.125,), draws=2, length=160, needles=2, samples=2, short=2,
            speeches=1, max_new_tokens=4), journal=path).answers,
}


def _abilities(lm, path):
    found = evaluate_general(lm, GeneralConfig(
        samples=3, tasks=("short instructions",), passages=2, passage_tokens=20),
        base=lm, journal=path)
    return pd.concat([found.samples, found.drift])


@pytest.fixture(scope="module")
def tiny():
    return load_model("tiny-llama", device="cpu")


@pytest.fixture
def read(tiny):
    """How many tokens the model reads, call by call."""
    seen = []
    hook = tiny.model.base_model.register_forward_pre_hook(
        lambda module, given, named: seen.append((given or [named["input_ids"]])[0].numel()),
        with_kwargs=True)
    yield seen
    hook.remove()


@pytest.mark.parametrize("name", RUNS | OTHERS)
def test_a_journal(tiny, tmp_path, name, read, monkeypatch):
    """A run that is killed after half of it, in the middle of a line, goes on: what is finished is
    not asked again, and the result is that of a run that nothing stops. The same model with other
    outputs finds nothing in it."""
    monkeypatch.setattr(masking_sweep, "TASKS", ("needle",))
    monkeypatch.setattr(Transformers, "together", 1)  # what is answered together is asked together
    run, path, before = (RUNS | OTHERS)[name], tmp_path / "journal", {}
    whole, asked = run(tiny, path), sum(read)
    if name != "synthesize":  # which writes more turns than are taken
        for file in tmp_path.iterdir():
            before[file] = lines = file.read_bytes().splitlines(keepends=True)
            file.write_bytes(b"".join(lines[: len(lines) // 2]) + lines[len(lines) // 2][:9])
        read.clear()
        pd.testing.assert_frame_equal(run(tiny, path), whole)
        assert sum(read) < asked or max(map(len, before.values())) == 1
        for file, lines in before.items():
            now = file.read_bytes().splitlines(keepends=True)
            assert len(now) == len(lines) and now[: len(lines) // 2] == lines[: len(lines) // 2]
        read.clear()
        pd.testing.assert_frame_equal(run(tiny, path), whole)
        assert not read
    if name in RUNS:
        with scaled_outputs(tiny, [*np.ndindex(*tiny.shape)], FACTORS.get(name, 0.0)):
            scaled = run(tiny, None)
            assert not scaled.equals(whole)
            pd.testing.assert_frame_equal(run(tiny, path), scaled)
        pd.testing.assert_frame_equal(run(tiny, path), whole)


def test_masks_needles_and_other_models(tiny, tmp_path):
    """The case that was wrong: 1.0 in place of 0.0."""
    path, heads = tmp_path / "journal", detect(tiny, GRID).select(top_k=10)
    scores = detect(tiny, GRID, journal=path)
    with mask_heads(tiny, heads):
        masked = detect(tiny, GRID, journal=path)
    assert (scores.success_rate.value, masked.success_rate.value) == (1.0, 0.0)
    other = GRID.changed({"needle_set": "literal"})
    assert detect(tiny, other, journal=path).cases["response"].tolist() == detect(
        tiny, other).cases["response"].tolist()
    qwen = load_model("tiny-qwen3", device="cpu")
    np.testing.assert_array_equal(detect(qwen, GRID, journal=path).runs, detect(qwen, GRID).runs)
    assert tiny.state == tiny.identity
    with using(tiny.model, GROUPED):
        assert tiny.state != tiny.identity


CHANGES = {  # how researchers change weights in place; version counters miss the first
    "data": lambda weight: weight.data[:, :32].zero_(),
    "no_grad": lambda weight: weight.detach().mul_(2),
    "rows": lambda weight: weight.data.copy_(weight.data[[8, *range(1, 8), 0, *range(9, 128)]]),
    "swapped": lambda weight: weight.data.copy_(weight.data[:, torch.arange(512).view(-1, 2).flip(1)
                                                            .flatten()]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_weights_changed_in_place_are_noticed(tiny, change, tmp_path):
    weight = tiny.model.model.layers[3].self_attn.o_proj.weight
    before, whole = weight.detach().clone(), tiny.state
    try:
        CHANGES[change](weight)
        changed = tiny.state
        assert changed not in (whole, tiny.identity)
        with mask_heads(tiny, [(0, 1)]):  # restores what it found
            masked = tiny.state
            with mask_heads(tiny, [(0, 2)]):
                assert tiny.state not in (changed, masked)
            assert tiny.state == masked != changed
        assert tiny.state == changed == ModelRef(tiny).identity
        with pytest.raises(UserError, match="changed in memory.*export_masked"):
            Transformers(tiny, named="tiny-llama", workers=2).elsewhere()
    finally:
        weight.data.copy_(before)
    assert tiny.state == whole == tiny.identity


def test_a_masked_model_does_not_find_the_results_of_the_whole_one(llama):
    whole = ModelRef(llama).identity
    with mask_heads(llama, [(0, 1)]):
        assert ModelRef(llama).identity != whole
    assert ModelRef(llama).identity == whole
