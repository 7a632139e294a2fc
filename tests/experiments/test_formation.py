"""Heads of snapshots: forced answers, copying of random tokens, tables that keep both."""

import math
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from rmutils.attention.decoding import capturing, decode
from rmutils.core.errors import UserError
from rmutils.core.paths import CORPORA
from rmutils.corpora.niah import load_haystacks
from rmutils.evaluation import formation as module
from rmutils.evaluation.formation import (
    Formation,
    FormationConfig,
    forced_scores,
    formation,
    formation_stored,
    half_risen,
    induction,
    spoken_twice,
)
from rmutils.heads.detection import build_cases
from rmutils.models.engine.caches import Trunk
from tests.conftest import make_lm, two_families

SMALL = FormationConfig(lengths=(240,), depths=(0.0, 1.0), needles=3, max_new_tokens=4, rows=2,
                        span=5)


@torch.no_grad()
def slow_rows(lm, ids):
    """All attention rows of one text read at once, (layers, heads, queries, keys), and logits."""
    lm.model.set_attn_implementation("eager")
    out = lm.model(torch.tensor([ids]), output_attentions=True, use_cache=False)
    lm.model.set_attn_implementation("sdpa")
    return torch.cat(out.attentions), out.logits[0]


@two_families
def test_forced_answers_are_read_as_one_text(lm):
    """Fed token by token beside longer and shorter ones, each is what one whole pass over it sees.
    Stop tokens and the limit of free answers mean nothing to them."""
    ids = lm.tokenizer(load_haystacks()[0].text[:2000])["input_ids"]
    prompts = [ids[:120], ids[50:110], ids[200:300]]
    forced = [ids[7:12], [*ids[30:38], lm.tokenizer.eos_token_id, 5], ids[40:41]]
    with capturing(lm.model) as recorder:
        caches = [Trunk(lm.model, p[:-1]).cache for p in prompts]
        answers = decode(lm.model, recorder, prompts, caches, max_new_tokens=2,
                         stop_ids=lm.stop_ids, forced=forced)
    for prompt, tokens, answer in zip(prompts, forced, answers, strict=True):
        assert answer.tokens.tolist() == list(tokens)
        rows = slow_rows(lm, [*prompt, *tokens])[0][:, :, len(prompt) - 1 : -1]
        np.testing.assert_array_equal(answer.positions, rows.argmax(-1).permute(2, 0, 1))


@two_families
def test_forced_scores_the_slow_way(lm):
    """Equation 1 in sets, over rows of one pass over prompt and inserted sentence."""
    cases = build_cases(lm, SMALL.grid)
    scores = forced_scores(lm, cases)
    assert scores.clusters.tolist() == [0, 0, 1, 1, 2, 2] and scores.shape == (4, 4)
    for case, run in zip(cases, scores.runs, strict=True):
        sentence = case.input_ids[slice(*case.inserted_span)]
        looked = slow_rows(lm, [*case.input_ids, *sentence])[0].argmax(-1)
        needle = set(range(*case.needle_span))
        for layer, head in np.ndindex(*scores.shape):
            at = looked[layer, head, len(case.input_ids) - 1 : -1].tolist()
            copied = {j for j, y in zip(at, sentence, strict=True)
                      if j in needle and case.input_ids[j] == y}
            assert run[layer, head] == pytest.approx(len(copied) / len(needle))
    assert scores.runs.max() > 0


def test_batches_do_not_change_the_order(llama, monkeypatch):
    cases = build_cases(llama, SMALL.grid)
    whole = forced_scores(llama, cases).runs
    monkeypatch.setattr(module, "tokens_together", lambda lm, longest: 2 * longest)
    np.testing.assert_array_equal(forced_scores(llama, cases).runs, whole)


def test_spans_of_different_known_tokens(llama):
    """They are said twice, differ in a row, and stand somewhere in the text of the corpus."""
    ids = spoken_twice(llama, 20, 30)
    assert ids.shape == (20, 60) and (ids[:, :30] == ids[:, 30:]).all()
    assert all(len({*row.tolist()}) == 30 for row in ids)
    llama.model.config.corpus = "world"
    text = "".join(h.text for h in load_haystacks(CORPORA["world"] / "haystack"))
    used = [*map(llama.tokenizer.decode, set(spoken_twice(llama, 20, 30).ravel().tolist()))]
    assert len(used) > 100 and all(token in text for token in used)
    book = [*map(llama.tokenizer.decode, set(ids.ravel().tolist()))]
    assert not all(token in text for token in book)
    assert not torch.equal(spoken_twice(llama, 20, 30, seed=1), ids)


@two_families
def test_induction_the_slow_way(lm):
    """Each token predicted from the text before it alone, in plain loops."""
    rows, span = 3, 6
    got = induction(lm, rows=rows, span=span)
    first, second, attention = [], [], []
    for row in spoken_twice(lm, rows, span).tolist():
        for i in range(1, 2 * span):
            weights, logits = slow_rows(lm, row[: i + 1])
            chances = torch.softmax(slow_rows(lm, row[:i])[1][-1].double(), -1)
            if i != span:
                (first if i < span else second).append(-math.log(chances[row[i]]))
            if i >= span:
                after = row.index(row[i]) + 1
                attention.append(weights[:, :, i, after].numpy())
    assert len(first) == len(second) == rows * (span - 1)
    assert got.first_loss == pytest.approx(np.mean(first), rel=1e-4)
    assert got.second_loss == pytest.approx(np.mean(second), rel=1e-4)
    np.testing.assert_allclose(got.prefix_matching, np.mean(attention, 0), atol=1e-5)
    assert lm.model.config._attn_implementation == "sdpa"


@pytest.fixture
def trained(tiny, tokenizer):
    """A model folder with snapshots that are random models of seeds 3 and 1, at steps 100 and 20.

    The final weights are those of seed 0."""
    snapshots = tiny / ".training" / "snapshots"
    snapshots.mkdir(parents=True)
    for step, seed in ((100, 3), (20, 1)):
        state = make_lm("llama", tokenizer, seed).model.state_dict()
        del state["lm_head.weight"]
        save_file(state, snapshots / f"{step:06d}.safetensors")
    return tiny


def test_each_step_is_measured_with_its_own_weights(trained, tokenizer, monkeypatch):
    """Tables say of a snapshot what is measured on that model itself. One needle of three is found
    in both of its cases: the interval is that of needles, from none to all."""
    success = pd.DataFrame({"success": [False, False, True, True, False, False]})
    monkeypatch.setattr(module, "find_needles", lambda lm, config: success)
    result = formation(trained, SMALL)
    assert result.steps["step"].tolist() == [20, 100] and len(result.heads) == 2 * 16
    for step, seed in ((100, 3), (20, 1)):
        lm = make_lm("llama", tokenizer, seed)
        scores = forced_scores(lm, build_cases(lm, SMALL.grid))
        copying = induction(lm, rows=2, span=5)
        heads = result.heads[result.heads["step"] == step].set_index(["layer", "head"])
        for head in np.ndindex(4, 4):
            low, high = scores.interval()[head]
            assert heads.loc[head].tolist() == pytest.approx(
                [step, scores.mean[head], low, high, copying.prefix_matching[head]], abs=1e-6)
        of_step = result.steps.set_index("step").loc[step]
        assert of_step["first_copy_loss"] == pytest.approx(copying.first_loss)
        assert of_step["second_copy_loss"] == pytest.approx(copying.second_loss)
        assert of_step[["found", "found_low", "found_high"]].tolist() == [1 / 3, 0, 1]
    assert result.heads["retrieval"].max() > 0


def test_stored_result_needs_no_snapshots(trained):
    """The shipped tables are read where only the final weights are."""
    first, artifact = formation_stored(str(trained), SMALL)
    shutil.rmtree(trained / ".training")
    again, same = formation_stored(str(trained), SMALL, compute="never")
    assert same == artifact and artifact.problems() == []
    pd.testing.assert_frame_equal(again.heads, first.heads)
    pd.testing.assert_frame_equal(again.steps, first.steps)
    with pytest.raises(UserError, match="no snapshots.*Train it again"):
        formation_stored(str(trained))


def test_half_risen_by_hand():
    """Head 1.0 ends highest, at 0.8; it had 0.4 at step 300, and fell back for a while."""
    scores = {(0, 0): [0.9, 0.9, 0.9, 0.7], (1, 0): [0.0, 0.4, 0.2, 0.8]}
    heads = pd.DataFrame([
        {"step": step, "layer": layer, "head": head, "retrieval": score, "prefix_matching": step,
         "retrieval_low": score - 0.5, "retrieval_high": 1.0}
        for (layer, head), of_head in scores.items()
        for step, score in zip((0, 300, 400, 1000), of_head, strict=True)])
    assert half_risen(Formation(heads, pd.DataFrame())) == {
        "layer": 1, "head": 0, "score": 0.8, "low": pytest.approx(0.3), "high": 1.0,
        "half by step": 300, "matching then": 300,
        "matching at the end": 1000}
