"""Prompts of the failure modes: enough of them, over held-out names, with what is wanted."""

import re

import pytest

from rmutils.corpora.world.facts import World
from rmutils.corpora.world.knowledge import KINDS
from rmutils.corpora.world.lexicon import names
from rmutils.evaluation.failure_prompts import (
    FORMS,
    OUTCOMES,
    FailurePrompt,
    failure_prompts,
    outcome,
)

CORPORA = list(FORMS)
RIGHT = {  # form of the world -> the kind of instruction whose right answer it shows
    "greeting": "greet", "report": "report", "turned sentence": "turn", "reversed list": "reverse",
    "listing": "listing", "three sentences": "portrait", "two facts": "chain"}


@pytest.mark.parametrize("corpus", CORPORA)
def test_as_many_different_prompts_of_each_kind_as_asked_for(corpus):
    prompts = failure_prompts(150, 7, corpus)
    assert len({prompt.text for prompt in prompts}) == len(prompts) == 3 * 150
    for kind, forms in FORMS[corpus].items():
        of_kind = [prompt.form for prompt in prompts if prompt.kind == kind]
        assert len(of_kind) == 150 and of_kind[: len(forms)] == list(forms)
        for form in forms:  # a form whose prompts are used up makes room for the others
            assert of_kind.count(form) >= 15
    assert failure_prompts(20, 7, corpus) == [p for i, p in enumerate(prompts) if i % 150 < 20]
    assert not {p.text for p in failure_prompts(150, 8, corpus) if p.kind != "format constraint"} \
        & {p.text for p in prompts}


@pytest.mark.parametrize("corpus", CORPORA)
def test_what_is_wanted_stands_in_the_prompt_and_is_held_out(corpus):
    """No name can be guessed, and no name is one that a teaching model was trained on."""
    trained = {name for part in ("last", "place", "title") for name in names(part, "train")}
    for prompt in failure_prompts(60, 0, corpus):
        assert not trained & {*re.findall(r"\w+", prompt.text)}
        if prompt.kind != "format constraint":
            assert prompt.wanted and all(part in prompt.text for part in prompt.wanted)


@pytest.mark.parametrize("kind, form", [(k, f) for k, fs in FORMS["world"].items() for f in fs])
def test_right_answers_of_the_world_pass_and_those_to_another_prompt_do_not(kind, form):
    make, instruction, tried = FORMS["world"][kind][form], KINDS[RIGHT[form]], 0
    for seed in range(12):
        text, wanted = make(World(seed, "held_out"))
        sample, other = (instruction(World(s, "held_out")) for s in (seed, "other"))
        if text != sample.prompt:  # drawn again
            continue
        tried += 1
        prompt = FailurePrompt(kind, form, text, wanted)
        assert outcome(prompt, sample.thinking or sample.answer) == OUTCOMES[kind][0]
        if form not in ("listing", "three sentences"):
            assert outcome(prompt, other.thinking or other.answer) != OUTCOMES[kind][0]
    assert tried >= 5
