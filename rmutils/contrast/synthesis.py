"""Self-synthesis: the model writes its own user turns.

A chat model has read many user turns. Given all that its chat template writes before the user's
text, and nothing else, it goes on with one of its own. Nothing is downloaded.

References
----------
Xu et al. (2024), "Magpie: Alignment Data Synthesis from Scratch by Prompting Aligned LLMs with
Nothing".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from rmutils.config import digest
from rmutils.contrast.hub import Candidate
from rmutils.errors import UserError
from rmutils.journal import Journal
from rmutils.models import LanguageModel
from rmutils.models.generation import generate

TEMPERATURE = 1.0
TOP_P = 1.0
"""Both are the defaults of Magpie's `gen_ins.py`."""
MAX_NEW_TOKENS = 128
"""Ours; 512 in `gen_ins.py`. Those of LMSYS-Chat-1M have 64 tokens on average (Table 12)."""
MIN_TOKENS = 4
"""Ours: shorter ones ("Hi there!") ask for nothing."""
MIN_DISTINCT = 0.5
"""Ours: share of different trigrams among a turn's token trigrams, below which it goes round in
circles."""
DRAWS = 20
"""Ours: turns written for each instruction that is wanted, at most."""
BATCH = 64
"""Turns written together, at most; without influence on what they say."""


def synthesize(
    lm: LanguageModel, count: int, seed: int = 0, journal: Path | None = None
) -> Iterator[Candidate]:
    """User turns that the model writes, `DRAWS * count` at most.

    Magpie's script also ends a turn at its first line break, here only the model ends it; and what
    Magpie filters later with reward models and neighbours stays here, but for the faults below.

    Parameters
    ----------
    lm : LanguageModel
        With a chat template.
    count : int
    seed : int
        Every turn has a random generator of its own, made of `seed` and its number.
    journal : Path, optional
        Takes the turns as they come; those that are there already are not written again.

    Yields
    ------
    str, str or None
        Text, and the reason if it is not a usable instruction: `unfinished`, `too short`,
        `repetition` or `garbled`.

    Raises
    ------
    UserError
        The model has no chat template.
    """
    if not lm.chat:
        raise UserError(f"{lm.name} has no chat template, so it cannot write user turns. Choose "
                        f'another source of instructions, such as "world".')
    before, after = lm.user_turn()
    prompt = lm.tokenizer(before, add_special_tokens=False)["input_ids"]
    kept = Journal(journal)
    batch = min(BATCH, 2 * count)
    for start in range(0, DRAWS * count, batch):
        numbers = range(start, min(start + batch, DRAWS * count))
        new = [n for n in numbers if str(n) not in kept]
        turns = generate(lm, [prompt] * len(new), max_new_tokens=MAX_NEW_TOKENS,
                         seeds=[int(digest([seed, n])[:15], 16) for n in new],
                         temperature=TEMPERATURE, top_p=TOP_P, stop_ids=_stop_ids(lm))
        for n, turn in zip(new, turns, strict=True):
            text, ended, _ = lm.tokenizer.decode(turn).partition(after.rstrip())
            finished = bool(ended) or len(turn) < MAX_NEW_TOKENS
            kept[str(n)] = text, _fault(text, turn, finished=finished)
        yield from (tuple(kept[str(n)]) for n in numbers)


def _stop_ids(lm: LanguageModel) -> set[int]:
    """All special tokens: none of them belongs into a user turn."""
    added = lm.tokenizer.added_tokens_decoder
    return lm.stop_ids | {i for i, token in added.items() if token.special}


def _fault(text: str, turn: Sequence[int], *, finished: bool) -> str | None:
    trigrams = list(zip(turn, turn[1:], turn[2:], strict=False))
    if not finished:
        return "unfinished"
    if len(turn) < MIN_TOKENS:
        return "too short"
    if len(set(trigrams)) < MIN_DISTINCT * len(trigrams):
        return "repetition"
    return "garbled" if "\N{REPLACEMENT CHARACTER}" in text else None
