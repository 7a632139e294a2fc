"""Scores from one run, the question's and the causal one, against eager attention and loops."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rmutils import DetectConfig, load_model, register_attention
from rmutils.core.errors import NotStored, UserError
from rmutils.heads import detection
from rmutils.heads.detection import build_cases, detect, detect_stored
from rmutils.heads.one_run import TOGETHER, answer_steps
from rmutils.heads.patching import without_needle
from rmutils.heads.score_kinds import SCORES

WRITING = "attention", "dla", "locos"
GRID = DetectConfig(lengths=(192, 220), depths=(0.0, 1.0), needles=2, max_new_tokens=20)


def of(score, grid=GRID):
    return grid.changed({"score": score})


def eager(lm, ids):
    """Attention of all layers, (heads, rows, keys) each, and the values."""
    values, model = [], lm.model
    hooks = [layer.self_attn.v_proj.register_forward_hook(lambda *args: values.append(args[2][0]))
             for layer in model.model.layers]
    model.set_attn_implementation("eager")
    rows = model(torch.tensor([ids]), output_attentions=True).attentions
    model.set_attn_implementation("sdpa")
    for hook in hooks:
        hook.remove()
    return [row[0] for row in rows], values


@torch.no_grad()
def slow_scores(lm, case, tokens):
    """Every key by itself: its weight, and what its value adds to the logit of the token."""
    model = lm.model
    rows, values = eager(lm, [*case.input_ids, *tokens[:-1]])
    written = []
    hooks = [layer.self_attn.o_proj.register_forward_hook(lambda *args: written.append(args[2][0]))
             for layer in model.model.layers]
    model(torch.tensor([[*case.input_ids, *tokens[:-1]]]))
    for hook in hooks:
        hook.remove()
    layers, heads = lm.shape
    size, (start, end) = model.config.head_dim, case.needle_span
    wanted = [*case.input_ids[start:end]]
    first = next(i for i in range(len(tokens)) if [*tokens[i : i + len(wanted)]] == wanted)
    found = {kind: np.zeros((layers, heads)) for kind in WRITING}
    for step in range(first, first + len(wanted)):
        row = len(case.input_ids) - 1 + step
        for i in range(layers):
            unembedding = model.lm_head.weight[tokens[step]]
            if lm.family == "olmo3":  # norms all that attention writes
                unembedding = unembedding * model.model.layers[i].post_attention_layernorm.weight
                unembedding = unembedding / written[i][row].pow(2).mean().sqrt()
            for h in range(heads):
                share = heads // model.config.num_key_value_heads
                value = values[i][: row + 1, h // share * size :][:, :size]
                weight = rows[i][h, row, : row + 1]
                output = model.model.layers[i].self_attn.o_proj.weight[:, h * size : (h + 1) * size]
                phi = weight * (value @ output.T @ unembedding)
                others = [j for j in range(row + 1) if not start <= j < end]
                less = len(wanted) / len(others)
                for kind, part in (("attention", weight), ("locos", phi)):
                    found[kind][i, h] += float(part[start:end].sum() - less * part[others].sum())
                found["dla"][i, h] += float(phi.sum())
    anchor = [max(float(rows[i][h, len(case.input_ids) - k, start:end].sum())
                  for k in range(1, 9)) for i, h in np.ndindex(layers, heads)]
    return {kind: total / len(wanted) for kind, total in found.items()} | {
        "anchor": np.reshape(anchor, (layers, heads))}


@torch.no_grad()
def slow_query(lm, case):
    """Two whole texts."""
    (start, end), asked = case.inserted_span, []
    for question in (case.needle.question, "N/A"):
        prompt = question.join(case.prompt.rsplit(case.needle.question, 1))
        ids = lm.tokenizer(prompt, add_special_tokens=not lm.chat)["input_ids"]
        rows, _ = eager(lm, ids)
        asked.append(np.stack([row[:, case.context_span[1] :, start:end].mean(1) for row in rows]))
    found = np.zeros(lm.shape)
    for head in np.ndindex(*lm.shape):
        each = torch.tensor(asked[0][head] - asked[1][head])
        found[head] = sum(float(x) for x in each if x > each.mean() - 2 * each.std())
    return found


@torch.no_grad()
def slow_patching(lm, case, tokens, heads):
    """One whole text for each head, whose output is exchanged in a few rows."""
    steps = answer_steps(case, tokens, lm.tokenizer.decode)
    rows = [len(case.input_ids) - 1 + step for step in steps]
    size, seen = lm.model.config.head_dim, {}

    def odds(prompt, layer=0, head=None):
        """Log-probability of the answer, one head as it was seen; with None, heads are seen."""
        def hook(module, given):
            if head is None:
                seen[layer] = given[0].clone()
            else:
                part = slice(head * size, (head + 1) * size)
                given[0][0, rows, part] = clean[0, rows, part]

        hook = lm.model.model.layers[layer].self_attn.o_proj.register_forward_pre_hook(hook)
        logits = lm.model(torch.tensor([[*prompt, *tokens]])).logits[0].log_softmax(-1)
        hook.remove()
        return sum(float(logits[row, tokens[step]]) for row, step in zip(rows, steps, strict=True))

    found = []
    for layer, head in heads:
        odds(case.input_ids, layer)
        clean = seen[layer]
        found.append(odds(without_needle(case), layer, head) - odds(without_needle(case)))
    return found


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-olmo3"])
def test_scores_are_those_of_loops(name):
    """Families, sliding windows and grouped queries; rows of several lengths in a batch."""
    lm = load_model(name, device="cpu")
    assert lm.model.config.num_key_value_heads < lm.shape[1]
    cases, kinds = build_cases(lm, GRID), {name: SCORES[name](lm, of(name)) for name in TOGETHER}
    answers = {case.id: (case, answer) for case, answer, _ in kinds["locos"].answers(cases, None)}
    for case, answer in [answers[cases[0].id], answers[cases[-1].id]]:
        slow = slow_scores(lm, case, answer.tokens.tolist())
        for kind, want in slow.items():
            assert np.abs(want).max() > 0.05
            np.testing.assert_allclose(kinds[kind].score(case, answer), want, rtol=1e-5, atol=1e-5)
    plain = {case.id: answer for case, answer, _ in kinds["copy"].answers(cases, None)}
    for case, answer in answers.values():
        assert answer.tokens.tolist() == plain[case.id].tokens.tolist()
        np.testing.assert_array_equal(answer.positions, plain[case.id].positions)
    query = SCORES["query"](lm, of("query"))
    for case, answer, _ in [*query.answers(cases, None)][::4]:
        np.testing.assert_allclose(query.score(case, answer), slow_query(lm, case), atol=1e-5)
    patching = SCORES["patching"](lm, of("patching"))
    (case, answer, _), *_ = patching.answers(cases[:1], None)
    found = patching.score(case, answer)
    heads = [divmod(int(i), lm.shape[1]) for i in np.argsort(-np.abs(found).ravel())[:3]]
    np.testing.assert_allclose([found[head] for head in heads],
                               slow_patching(lm, case, answer.tokens.tolist(), heads), atol=1e-4)
    assert max(found[head] for head in heads) > 0.1


def test_one_run_is_stored_for_all_its_scores(llama, cache, monkeypatch):
    grid = GRID.changed({"lengths": "240", "max_new_tokens": "6"})
    locos, made = detect_stored(llama, of("locos", grid))
    assert made.name.startswith("scores/") and locos.score == "locos" and "locos" in repr(locos)
    want = {score: detect(llama, of(score, grid)) for score in TOGETHER}
    monkeypatch.setattr(detection, "_answer", None)
    for score in TOGETHER:
        found, artifact = detect_stored(llama, of(score, grid))
        assert artifact == made and found.score == score
        np.testing.assert_allclose(found.runs, want[score].runs, atol=1e-6)
        assert found.cases["success"].equals(want[score].cases["success"])
    assert found.cases["success"].all() and not locos.cases["success"].all()
    with pytest.raises(UserError, match="is one of the score 'copy'"):
        DetectConfig(score="dla", definition="wu")


def test_copy_scores_are_read_from_runs_before_contributions_were_corrected(
        llama, cache, monkeypatch):
    grid = GRID.changed({"lengths": "240", "max_new_tokens": "6"})
    monkeypatch.setattr(detection, "contributions_version", lambda family: {})
    _, made = detect_stored(llama, of("dla", grid))
    monkeypatch.setattr(detection, "contributions_version", lambda family: {"contributions": "2"})
    assert detect_stored(llama, of("copy", grid), compute="never")[1] == made
    with pytest.raises(NotStored):
        detect_stored(llama, of("dla", grid), compute="never")


def test_steps_that_write_the_answer():
    """By tokens, else by text, else all of them."""
    words = dict(enumerate(["eat", " a", " plum", " today", "ea", "t", "We"]))
    case = SimpleNamespace(input_ids=[3, 0, 1, 2, 3], needle_span=(1, 4),
                           needle=SimpleNamespace(real_needle="eat a plum"))
    steps = [answer_steps(case, said, lambda ids: "".join(map(words.get, ids)))
             for said in ([6, 0, 1, 2], [6, 4, 5, 1, 2, 3], [6, 3], [])]
    assert steps == [[1, 2, 3], [1, 2, 3, 4], [0, 1], []]


def test_an_answer_within_another_word_is_not_the_answer():
    words = dict(enumerate([" t", "hat", " is a", " ha", "t"]))
    case = SimpleNamespace(input_ids=[9], needle_span=(0, 1),
                           needle=SimpleNamespace(real_needle="hat"))
    said = [0, 1, 2, 3, 4]  # " that is a hat"
    assert answer_steps(case, said, lambda ids: "".join(map(words.get, ids))) == [3, 4]


@pytest.mark.parametrize("score", sorted({*SCORES} - {"copy"}))
def test_what_cannot_have_such_a_score_is_told_before_anything_runs(llama, score):
    config = of(score)
    with pytest.raises(UserError, match="cannot be measured under a variant"):
        [*SCORES[score](llama, config).answers([], lambda ids: None)]

    @register_attention(f"other {score}")
    def other(*tensors, **how):
        raise AssertionError("it runs")

    llama.model.set_attn_implementation(f"other {score}")
    with pytest.raises(UserError, match="the attention of random-llama is not the plain one"):
        detect(llama, config)
    llama.model.set_attn_implementation("sdpa")
    llama.model.get_output_embeddings = lambda: None
    with pytest.raises(UserError, match="has no output matrix"):
        detect(llama, config)
    del llama.model.base_model.layers[2].self_attn.o_proj
    with pytest.raises(UserError, match="lacks an attention with an output projection"):
        detect(llama, config)


def test_copying_asks_for_an_output_projection_only(llama):
    """It needs no output matrix, and any attention that is watched will do."""
    grid = GRID.changed({"lengths": "200", "max_new_tokens": "2"})
    llama.model.get_output_embeddings = lambda: None
    assert len(detect(llama, grid).cases) == 4
    del llama.model.base_model.layers[2].self_attn.o_proj
    with pytest.raises(UserError, match="lacks an attention with an output projection"):
        detect(llama, grid)


def test_a_place_without_needle_is_as_long(llama):
    for case in build_cases(llama, GRID.changed({"lengths": "400"})):
        ids, (start, end) = without_needle(case), case.inserted_span
        assert len(ids) == len(case.input_ids) and ids[:start] == [*case.input_ids[:start]]
        assert ids[end:] == [*case.input_ids[end:]] != ids
        around = llama.tokenizer.decode(ids[start:end])
        assert case.needle.real_needle not in around and around in case.prompt
    middle = SimpleNamespace(input_ids=(1, 2, 3, 4, 5), inserted_span=(2, 3), context_span=(0, 5))
    assert without_needle(middle) == [1, 2, 5, 4, 5]  # of two sides of equal length, the second
    bare = SimpleNamespace(input_ids=(1, 2, 3), inserted_span=(0, 2), context_span=(0, 2), length=3)
    with pytest.raises(UserError, match="nothing stands beside the needle"):
        without_needle(bare)


def test_nothing_said_is_nothing_written(llama):
    """An answer that stops at once scores 0, beside others and alone."""
    kind = SCORES["dla"](llama, of("dla"))
    kind.stop_ids = lambda: {*range(len(llama.tokenizer))}
    for case, answer, _ in kind.answers(build_cases(llama, GRID), None):
        assert not len(answer.tokens) and (kind.score(case, answer) == 0).all()
        assert answer.anchor.shape == (8, *llama.shape)
