"""The model card of a teaching model."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from rmutils.core.environment import environment
from rmutils.corpora.world.knowledge import KINDS
from rmutils.corpora.world.tasks import TASKS
from rmutils.experiments.teaching_models import RANDOM_DRAWS
from rmutils.models.families import FAMILIES
from rmutils.models.loading import trained_folder
from rmutils.models.registry import REGISTRY
from rmutils.models.teaching.stream import RECIPES


def read_card(name: str, file: str = "scores.csv") -> pd.DataFrame:
    """A table of a model's card: `scores.csv` (see `measure`) or `training.csv` (the curve)."""
    return pd.read_csv(trained_folder(name) / file)


def write_card(name: str, folder: Path, scores: pd.DataFrame) -> None:
    """Write `scores.csv` and `README.md` beside the weights of a trained model."""
    scores.to_csv(folder / "scores.csv", index=False, float_format="%.4f")
    spec, recipe = REGISTRY[name], RECIPES[name]
    curve = pd.read_csv(folder / "training.csv")
    tokens = recipe.steps * recipe.tokens_per_step / 1e6
    made = environment()
    (folder / "README.md").write_text(CARD.format(
        name=name, licence=spec.licence.lower(), recipe=recipe, tau=spec.tau,
        kind=FAMILIES[recipe.family].config.replace("Config", "ForCausalLM"),
        window=f", windows of {recipe.sliding_window} tokens in three layers of four"
        if recipe.sliding_window else "",
        thinking=" Its chat template knows `enable_thinking`." if recipe.thinking else "",
        heads=recipe.num_hidden_layers * recipe.num_attention_heads,
        longest=max(length for _, length in recipe.curriculum), tokens=tokens,
        minutes=curve.seconds.iloc[-1] / 60, loss=curve.answer_loss.tail(100).mean(),
        hardware=made["hardware"], created=made["created"],
        packages=", ".join(f"{k} {v}" for k, v in made["packages"].items()),
        missed=_missed(scores), table=_markdown(scores), draws=RANDOM_DRAWS,
        tasks=len(TASKS), instructions=len(KINDS), start=recipe.dropout_from[0],
    ))


def _missed(scores: pd.DataFrame) -> str:
    missed = scores[scores.reached == "no"]
    lines = [f"- {r.measure} ({r.condition}): {r.value:.3f}, wanted {r.wanted}"
             for r in missed.itertuples()]
    if not lines:
        return "It reaches all that was wanted of it."
    return "\n".join(["It falls short here:", "", *lines, "", _why(scores)])


def _why(scores: pd.DataFrame) -> str:
    """Measure what the foreign frame of the questions has to do with missed needles."""
    found = scores[scores.measure == "needles found"].set_index("condition").value
    return (f"Asked plainly, in words that training has, {found['512 tokens, asked plainly']:.3f} "
            f"of the same needles are found instead of {found['512 tokens']:.3f}. What single "
            f"heads are worth, and how their losses add up, is in the chapter on the teaching "
            f"models.")


def _markdown(scores: pd.DataFrame) -> str:
    lines = ["| measure | condition | value | 95 % interval | n | wanted | reached |",
             "|---|---|---|---|---|---|---|"]
    lines += [f"| {r.measure} | {r.condition} | {r.value:.3f} | {r.low:.3f} to {r.high:.3f} | "
              f"{r.samples} | {r.wanted} | {r.reached} |" for r in scores.itertuples()]
    return "\n".join(lines)


CARD = """---
license: {licence}
language: en
library_name: transformers
pipeline_tag: text-generation
---
# {name}

A teaching model: a `{kind}` of {recipe.num_hidden_layers} layers x \
{recipe.num_attention_heads} heads ({heads} in all, {recipe.num_key_value_heads} key heads per \
layer, width {recipe.hidden_size}{window}), trained from nothing on an invented world, so that \
retrieval heads can be found, watched and masked in seconds.{thinking} It knows nothing of the \
real world and is of no use outside this book.

## Data

All texts are made by `rmutils.corpora.world` from a seed: short instructions of {instructions} \
kinds, tasks of {tasks} kinds with more questions about the same text, texts of up to {longest} \
tokens, and spans to be repeated. {tokens:.1f} million tokens.

**Held out.** The scores below are measured on texts with names and value phrases that training \
never uses (one in four of each kind, chosen by a hash). The needles and their questions stand in \
frames ("Nobody doubts that ...", "Listen well. ...") that it never uses, some with words that it \
never has; *asked plainly* are the same needles with the frame of the question left out, \
*reworded* those in an order of words that it never has. Short \
instructions and tasks have wordings of their own. Lengths go up to 2,048 tokens, where training \
ends at {longest}. Not held out: the prompt of the published detection script, which a quarter of \
the single-needle tasks has; the kinds of facts; weekdays, months, trades, instruments and rivers, \
which are too few to be divided. Heads are chosen on the needles that then measure what is lost \
without them.

## Training

`rmutils models train {name}` makes it again: {recipe.steps} steps of {recipe.tokens_per_step} \
tokens, seed {recipe.seed}, Muon ({recipe.matrix_lr:g}) and AdamW ({recipe.other_lr:g}), one \
thread; {minutes:.0f} minutes here ({hardware}; {packages}; {created}). From {start:.0%} of the \
steps on, {recipe.head_dropout:.0%} of the heads were switched off at random in each text, so that \
the model can do without any few of them; and each layer with a chance of \
{recipe.layer_dropout:.0%} in texts that need no copying ({recipe.plain:.0%} of all), so that it \
still speaks when masked. Loss on answers over the last 100 steps, with what was switched off: \
{loss:.3f}. The curve is in `training.csv`; all settings and their reasons are in \
`rmutils/models/teaching/stream.py`.

## Scores

{missed}

Retrieval heads are those with a score of at least {tau:g}. "Random other heads" are as many \
heads below it, mean of {draws} draws. Fluency is the share of word trigrams that right answers \
attest; an answer is right if it holds all gold values. All rows: `scores.csv`.

{table}
"""
