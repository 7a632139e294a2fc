"""Answers that end at their stop token, whatever stands beside them in the batch; and drafts, which
change how many passes it takes, and nothing else."""

import numpy as np
import pytest

from rmutils.attention.decoding import ArgMaxRecorder, capturing, decode
from rmutils.corpora.niah import load_haystacks
from rmutils.heads.detection import DetectConfig, build_cases
from rmutils.heads.score_kinds import kind_of
from rmutils.models import load_model
from rmutils.models.engine import drafts
from rmutils.models.engine.caches import Trunk
from tests.conftest import two_families
from tests.heads.test_detection import slow_answer

STEPS = 8


@pytest.fixture
def prompts(llama):
    """Four prompts of different lengths."""
    ids = llama.tokenizer(load_haystacks()[0].text[:2000])["input_ids"]
    return [ids[:120], ids[50:110], ids[200:300], ids[7:150]]


def answer(lm, prompts, stop_ids, recorder_type=ArgMaxRecorder):
    trunk = Trunk(lm.model, prompts[0][:40])
    with capturing(lm.model):
        return decode(lm.model, recorder_type(), prompts, [trunk.read(p) for p in prompts],
                      max_new_tokens=STEPS, stop_ids=stop_ids)


def test_answers_are_cut_at_their_own_stop(llama, prompts):
    """Some end early, the others go on as if alone."""
    free = answer(llama, prompts, set())
    stop = int(free[1].tokens[2])
    cut = answer(llama, prompts, {stop})
    lengths = []
    for full, short in zip(free, cut, strict=True):
        tokens = full.tokens.tolist()
        end = tokens.index(stop) if stop in tokens else STEPS
        assert short.tokens.tolist() == tokens[:end]
        np.testing.assert_array_equal(short.positions, full.positions[:end])
        lengths.append(end)
    assert len(set(lengths)) > 1 and lengths[1] <= 2


def test_no_step_after_all_have_stopped(llama, prompts):
    """An answer whose first token is the stop token is empty, and costs one step."""
    steps = []

    class Counting(ArgMaxRecorder):
        def take(self):
            steps.append(1)
            return super().take()

    first = {int(a.tokens[0]) for a in answer(llama, prompts, set())}
    empty = answer(llama, prompts, first, Counting)
    assert [a.tokens.size for a in empty] == [0] * 4 and len(steps) == 1
    assert empty[0].positions.shape == (0, 4, 4)


@pytest.fixture
def passes(monkeypatch):
    """The tokens that each row wrote in each pass, and the widths of the passes."""
    found, accept, take = ([], []), drafts.Row.accept, ArgMaxRecorder.take

    def counted(row, *args):
        before = row.said
        accept(row, *args)
        found[0][-1].append(row.said - before)

    monkeypatch.setattr(drafts.Row, "accept", counted)
    monkeypatch.setattr(ArgMaxRecorder, "take", lambda self: (
        found[0].append([]), found[1].append(self.rows), take(self))[-1])
    return found


@pytest.mark.parametrize("least", [1, 2])
def test_a_draft_is_what_followed_the_longest_and_latest_like_end(least):
    rng = np.random.default_rng(0)
    for size in (1, 2, 5, 30):
        for letters in (2, 3, 9):
            text = rng.integers(letters, size=size)
            like = [next((k for k in range(end) if text[end - 1 - k] != text[-1 - k]), end)
                    for end in range(1, size)]
            best = max(range(len(like)), key=lambda i: (like[i], i), default=None)
            want = [] if not like or like[best] < least else text[best + 1 :][:4].tolist()
            assert drafts.draft(text, 4, least).tolist() == want
            assert not drafts.draft(text, 0, least).size


def test_passes_get_narrow_where_drafts_fail():
    pace = drafts.Pace(8)
    windows = [(pace.wrote(tokens), pace.window, pace.least)[1:] for tokens in [1] * 5 + [9] * 3]
    assert windows[0] == (8, 1) and windows[4] == (2, 2) and windows[-1] == (8, 1)


@two_families
def test_drafts_half_wrong_change_nothing(lm, monkeypatch, passes):
    """Rows accept different numbers, and what was read in vain leaves no trace: tokens and rows are
    those of a model that reads everything again, also with a stop, and the last step, inside a
    draft. A forced answer takes one pass."""
    ids = lm.tokenizer(load_haystacks()[0].text[:900])["input_ids"]
    prompts, steps = [ids[:60], ids[20:65], ids[100:180]], 12
    slow = {len(prompt): slow_answer(lm, prompt, steps) for prompt in prompts}
    rng = np.random.default_rng(1)

    def half_right(text, most, least):
        size = max(n for n in slow if n <= len(text) and [*text[:n]] in prompts)
        ahead = slow[size][0][len(text) - size :][: max(most, 0)]
        return np.array([token if rng.random() < 0.7 else token + 1 for token in ahead], dtype=int)

    def check(answers, ends=(steps,) * 3):
        for (tokens, looked), answer, end in zip(slow.values(), answers, ends, strict=True):
            assert answer.tokens.tolist() == tokens[:end]
            np.testing.assert_array_equal(answer.positions, looked[:end])

    def answers(**how):
        with capturing(lm.model) as recorder:
            trunk = Trunk(lm.model, prompts[0][:40])
            return decode(lm.model, recorder, prompts, [trunk.read(p) for p in prompts], **how)

    monkeypatch.setattr(drafts, "draft", half_right)
    check(answers(max_new_tokens=steps))
    wrote, widths = passes
    assert len(wrote) < steps and any(len({*row}) > 1 for row in wrote) and max(widths) > 3
    stop = slow[len(prompts[1])][0][6]
    check(answers(max_new_tokens=steps, stop_ids={stop}), [
        [*tokens, stop].index(stop) for tokens, _ in slow.values()])
    wrote.clear()
    ends = 5, 12, 3
    given = [tokens[:end] for (tokens, _), end in zip(slow.values(), ends, strict=True)]
    check(answers(forced=given), ends)
    assert wrote == [[*ends]]
    monkeypatch.setattr(drafts, "draft", lambda text, *_: text[:0])
    widths.clear()
    check(answers(max_new_tokens=steps))
    assert widths == [1] * steps, "an empty draft is a step"


@pytest.mark.parametrize(("name", "definition"), [
    ("tiny-llama", "paper"), ("tiny-olmo3", "paper"), ("tiny-qwen3", "wu")])
def test_needles_are_found_in_fewer_passes(name, definition, monkeypatch, passes):
    """Models that copy: the same answers and rows as step by step. The windows of Olmo 3 have 64
    tokens; `wu` ends with the fiftieth."""
    lm = load_model(name, device="cpu")
    config = DetectConfig(lengths=(192, 256), depths=(0.0,), needles=3, definition=definition)

    def answered():
        passes[0].clear()
        cases = build_cases(lm, config)
        return {case.id: answer for case, answer, _ in kind_of(config)(lm, config).answers(
            cases, None)}, len(passes[0])

    drafted, few = answered()
    monkeypatch.setattr(drafts, "DRAFT", 0)
    plain, many = answered()
    assert few < (0.85 if definition == "paper" else 1) * many
    for case, answer in plain.items():
        assert drafted[case].tokens.tolist() == answer.tokens.tolist()
        np.testing.assert_array_equal(drafted[case].positions, answer.positions)
