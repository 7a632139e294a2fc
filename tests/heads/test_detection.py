"""Detection against a slow, obvious implementation, and against kills."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rmutils.attention.decoding import Answer, capturing, decode
from rmutils.core import files
from rmutils.core.errors import UserError
from rmutils.core.paths import CORPORA, HAYSTACK, NEEDLES
from rmutils.corpora.niah import NiahBuilder, load_haystacks, load_needles
from rmutils.heads import DetectConfig, HeadScores, detect, detection, success_rate
from rmutils.heads.answering import _parts, batched, tokens_together
from rmutils.heads.copy_score import copy_counts
from rmutils.heads.detection import inputs_of
from rmutils.heads.score_kinds import kind_of, register_score
from rmutils.models.engine import caches as prefixes
from rmutils.models.engine.caches import Trunk, common_prefix
from tests.conftest import make_lm

GRID = DetectConfig(lengths=(240, 480), depths=(0.0, 0.6, 1.0), needles=3, max_new_tokens=6)


@torch.no_grad()
def slow_answer(lm, prompt, steps):
    """Read everything again for each token, keep every attention row, look at the last."""
    lm.model.set_attn_implementation("eager")
    ids, tokens, looked = list(prompt), [], []
    for _ in range(steps):
        out = lm.model(torch.tensor([ids]), output_attentions=True, use_cache=False)
        rows = [layer[0, :, -1] for layer in out.attentions]  # (heads, keys) of each layer
        looked.append(np.array([[int(head.argmax()) for head in row] for row in rows]))
        tokens.append(int(out.logits[0, -1].argmax()))
        ids.append(tokens[-1])
    lm.model.set_attn_implementation("sdpa")
    return tokens, np.stack(looked)


def slow_counts(tokens, looked, prompt, span, repeats):
    """Equation 1's numerator with Python's sets (or the published code's running sum)."""
    layers, heads = looked.shape[1:]
    counts = np.zeros((layers, heads), dtype=int)
    for layer in range(layers):
        for head in range(heads):
            retrieved = [looked[t, layer, head] for t, token in enumerate(tokens)
                         if looked[t, layer, head] < len(prompt)
                         and prompt[looked[t, layer, head]] == token]
            inside = [j for j in retrieved if j in range(*span)]
            counts[layer, head] = len(inside) if repeats else len(set(inside))
    return counts


def cases_of(lm):
    builder = NiahBuilder(lm, load_haystacks()[:1])
    return builder.grid(load_needles()[:3], GRID.lengths, GRID.depths)


def test_same_tokens_and_rows_as_the_slow_way(lm):
    """Shared prefixes, caches, padding, batches and windows change nothing."""
    cases = cases_of(lm)
    prompts = [c.input_ids for c in cases]
    with capturing(lm.model) as recorder:
        deepest = max(cases, key=lambda c: c.inserted_span[0])
        trunk = Trunk(lm.model, deepest.input_ids[: deepest.inserted_span[0]])
        answers = decode(lm.model, recorder, prompts, [trunk.read(p) for p in prompts],
                         max_new_tokens=6, stop_ids=set())
    assert max(common_prefix(trunk.ids, p) for p in prompts) > 100  # prefixes are really shared
    hits = 0
    for prompt, answer in zip(prompts, answers, strict=True):
        tokens, looked = slow_answer(lm, prompt, 6)
        assert answer.tokens.tolist() == tokens
        np.testing.assert_array_equal(answer.positions, looked)
        for repeats in (False, True):
            span = (0, len(prompt))  # a random model never finds the needle: score all copies
            want = slow_counts(tokens, looked, prompt, span, repeats)
            np.testing.assert_array_equal(copy_counts(answer, prompt, span, repeats=repeats), want)
            hits += want.sum()
    assert hits > 0


def test_what_follows_a_needle_is_read_once(llama, monkeypatch):
    """Needles at one place of texts of several lengths: the longest text is read, of the others
    only the question. Answers are those of the slow way, each case's once."""
    read, prefill = [], prefixes._prefill
    monkeypatch.setattr(prefixes, "_prefill", lambda model, parts, cache: (
        read.extend(map(len, parts)), prefill(model, parts, cache)))
    builder = NiahBuilder(llama, load_haystacks()[:1])
    cases = builder.grid(load_needles()[:2], (240, 300, 480), (0.0, 0.6, 1.0))
    answered = {case.id: answer for case, answer, _ in batched(
        llama, cases, max_new_tokens=6, stop_ids=set())}
    first = [case for case in cases if case.depth == 0]
    assert len({(case.needle_index, case.inserted_span[0]) for case in first}) == 2
    question = len(first[0].input_ids) - common_prefix(first[0].input_ids, first[1].input_ids)
    others = [case for case in cases if case.depth > 0]
    deepest = max(case.inserted_span[0] for case in others)
    assert sum(read) <= 2 * (480 + 3 * question) + deepest + sum(
        len(case.input_ids) - case.inserted_span[0] for case in others)
    assert len(answered) == len(cases)
    for case in cases:
        tokens, looked = slow_answer(llama, case.input_ids, 6)
        assert answered[case.id].tokens.tolist() == tokens
        np.testing.assert_array_equal(answered[case.id].positions, looked)


def test_batches_hold_so_many_tokens_or_two_of_the_longest(llama):
    asked = [tokens_together(llama, n) for n in (320, 2560, 2561, 5120, 5121, 9000)]
    assert asked == [5120, 5120, 5122, 10240, 5121, 9000]
    other, first = (1,), (0,)
    cases = [(first, SimpleNamespace(input_ids=range(n)))
             for n in (1000,) * 3 + (3000,) * 3 + (5000, 1000, 1000)]
    for tokens, sizes in ((5120, [3, 1, 1, 1, 1, 2]), (10_000, [3, 3, 2, 1]),
                          (12_000, [4, 2, 2, 1])):
        parts = list(_parts(cases, tokens))
        assert [len(part) for part in parts] == sizes
        assert [case for part in parts for case in part] == cases
    mixed = [(begin, SimpleNamespace(input_ids=range(1000))) for begin in [first] * 2 + [other] * 5]
    assert [len(part) for part in _parts(mixed, 5120)] == [4, 3], "room for a second trunk"


def test_counts_by_hand():
    """Prompt A B A C, needle B A C; head 0 copies A twice and C once, head 1 looks elsewhere."""
    prompt, span = [7, 8, 7, 9], (1, 4)
    positions = np.array([[[2, 0]], [[2, 0]], [[3, 1]]])  # (T=3, 1 layer, 2 heads)
    answer = Answer(np.array([7, 7, 9]), positions)
    np.testing.assert_array_equal(copy_counts(answer, prompt, span), [[2, 0]])
    np.testing.assert_array_equal(copy_counts(answer, prompt, span, repeats=True), [[3, 0]])


@pytest.fixture
def every_case_counts(monkeypatch):
    """Let answers of random models count as successes, so that there is something to collect."""
    monkeypatch.setattr(detection, "SUCCESS_ROUGE", -1.0)


def test_an_answer_that_never_counts_is_refused(llama, tmp_path):
    """ROUGE drops all but a to z and digits, so that the published code never finds a Japanese
    answer; nobody finds one without letters."""
    file = tmp_path / "needles.jsonl"
    file.write_text(json.dumps({"needle": "\u9375\u306f\u7f36\u306e\u4e2d", "question": "?",
                                "real_needle": "\u7f36\u306e\u4e2d"}))
    grid = GRID.changed({"needle_file": file, "needles": 1})
    with pytest.raises(UserError, match="can never count as found: wu counts ROUGE-1.*Choose"):
        detect(llama, grid.changed({"definition": "wu"}))
    with pytest.raises(UserError, match="can never count as found: it has no letter"):
        detect(llama, GRID.changed({"needles": [("It is ?!", "What?", "?!")]}))
    detection.material(grid, "book")


def test_a_needle_twice_is_refused(llama):
    """It would count as two in every interval."""
    one, other = detection.material(GRID, "book")[1][:2]
    with pytest.raises(UserError, match="needle 3 is needle 1 again"):
        detect(llama, GRID.changed({"needles": [one, other, one]}))


def test_needles_are_those_of_the_models_corpus(llama):
    """A case's prompt is taken from the world if the configuration says so."""
    book = detection.build_cases(llama, GRID)
    llama.model.config.corpus = "world"
    world = detection.build_cases(llama, GRID)
    folder = CORPORA["world"]
    assert [c.needle for c in world[::6]] == load_needles(folder / "needles")[:3]
    assert [c.haystack for c in world[::6]] == ["00", "01", "02"]
    own = GRID.model_copy(update={"haystack": HAYSTACK, "needle_file": NEEDLES})
    assert detection.build_cases(llama, own) == book != world


def test_no_needle_found_is_a_result(llama):
    scores = detect(llama, GRID)
    assert len(scores.cases) == len(detection.build_cases(llama, GRID))
    assert scores.cases["response"].str.len().any() and success_rate(llama, GRID) == 0
    with pytest.raises(UserError, match="no successful run"):
        scores.ranking()


def test_window_is_checked_with_both_numbers(llama):
    with pytest.raises(UserError, match=r"1000 tokens plus 50.*1050.*1024"):
        detect(llama, DetectConfig(lengths=(1000,)))


def test_published_definition_runs(llama, every_case_counts):
    """Length 0 is in the published grid: the context is then the needle alone."""
    config = DetectConfig(lengths=(0, 400), depths=(0.0, 1.0), needles=2, max_new_tokens=4,
                          definition="wu")
    scores = detect(llama, config)
    assert isinstance(scores, HeadScores) and len(scores.cases) == 8


def test_published_definition_makes_copies(llama, every_case_counts):
    """Four of five depths are one: their maps are equal, also to those of cases run one by one, and
    the kind says so. Results of the version before, with real depths, are not found."""
    config = DetectConfig(lengths=(350, 400), depths=(0.0, 0.2, 0.5, 0.8, 1.0), needles=2,
                          max_new_tokens=6, definition="wu")
    scores = detect(llama, config)
    for _, places in scores.cases.groupby(["needle", "length"])["needle_start"]:
        assert places.map(places.value_counts()).tolist() == [4, 4, 4, 4, 1]
    kind = kind_of(config)(llama, config)
    for row, case in enumerate(detection.build_cases(llama, config)):
        (_, answer, _), = kind.answers([case], None)
        np.testing.assert_array_equal(kind.score(case, answer), scores.runs[row])
    assert "20 cases have 8 different places" in kind.told(scores.cases)
    assert not kind.told(scores.cases[scores.cases["depth"] > 0.5])
    assert inputs_of("weights", config, "book")["score"] == "wu 2"
    assert "score" not in inputs_of("weights", GRID, "book")


SHORT = DetectConfig(lengths=(256,), depths=(0.5,), needles=1, max_new_tokens=2)


@pytest.mark.parametrize("kind", ["nemotron", "stablelm"])
def test_layers_that_hand_no_recorder_on_are_told(kind, tokenizer):
    with pytest.raises(UserError, match="cannot be watched"):
        detect(make_lm(kind, tokenizer), SHORT)


def test_an_attention_that_wants_contiguous_outputs(tokenizer):
    """AFMoE looks at what attention returns by `view`."""
    assert detect(make_lm("afmoe", tokenizer), SHORT).shape == (4, 4)


@pytest.mark.parametrize("score", ["dla", "patching"])
def test_heads_of_two_sizes_are_told(score, tokenizer):
    lm = make_lm("gemma4_text", tokenizer, global_head_dim=16, vocab_size_per_layer_input=64,
                 num_hidden_layers=6)
    with pytest.raises(UserError, match="differ in size from layer to layer"):
        detect(lm, SHORT.changed({"score": score}))


@pytest.mark.parametrize("found", [0.5, None, np.ones((2, 4)), np.ones((4, 4)) * 1j])
def test_a_score_of_ones_own_has_a_number_for_each_head(found, llama):
    name = f"own-{np.shape(found)}-{np.asarray(found).dtype}"
    register_score(name)(lambda case, answer: found)
    with pytest.raises(UserError, match="not numbers of the shape"):
        detect(llama, SHORT.changed({"score": name}))


def test_what_a_result_depends_on_follows_its_files(tmp_path, monkeypatch):
    """Haystack and needles are kept in memory, but only while their files stay as they are."""
    monkeypatch.setattr(files, "FRESH", -1)
    text, needles = tmp_path / "a.txt", tmp_path / "needles.jsonl"
    config = GRID.changed({"haystack": tmp_path, "needle_file": needles, "needles": None})
    lines = NEEDLES.read_text().splitlines()
    seen = []
    for words, said in (("one", lines[:1]), ("two", lines[:1]), ("two", lines[:2])):
        text.write_text(words)
        needles.write_text("\n".join(said))
        seen.append(inputs_of("weights", config, "book"))
        assert seen[-1] == inputs_of("weights", config, "book")
        assert len(detection.material(config, "book")[1]) == len(said)
    assert seen[0]["haystack"] != seen[1]["haystack"] == seen[2]["haystack"]
    assert seen[0]["needles"] == seen[1]["needles"] != seen[2]["needles"]
    detection.material(config, "book")[1].clear()
    assert inputs_of("weights", config, "book") == seen[2]
