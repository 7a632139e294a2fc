"""Where instructions come from: the paper's data sets, or the model itself."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rmutils.core.config import digest
from rmutils.core.errors import UserError
from rmutils.core.journal import Journal
from rmutils.models import LanguageModel
from rmutils.models.engine.generation import generate, suiting
from rmutils.models.hub import offline

Candidate = tuple[str, str | None]
"""A text that may become an instruction, and the reason if its source says that it may not."""

LANGUAGES = {"English", "Japanese"}
"""Hub id of LMSYS-Chat-1M. The authors run on `tokyotech-llm/lmsys-chat-1m-synth`, whose script
"keeps Japanese and English conversations" and "discards conversations that contain offensive or
inappropriate content" (its data card)."""


@dataclass(frozen=True)
class HubDataset:
    id: str
    # No others are read. Of chats, first the one with the messages, each a `role` and a `content`,
    # then those that say what may not be taken.
    columns: tuple[str, ...]
    split: str = "train"
    buffer: int = 10_000  # rows that are shuffled together
    parquet: bool = True  # its files on the hub are parquet, of which single columns can be read
    # what to do without it, for messages
    instead: str = 'Or take the source "self" (the model writes its own instructions) or "world".'

    @property
    def folder(self) -> Path | None:
        """A copy on this machine: a folder of the data set's name in `RMUTILS_DATASETS`."""
        home = os.environ.get("RMUTILS_DATASETS")
        return Path(home, self.id) if home and Path(home, self.id).is_dir() else None


DATASETS = {
    "lmsys": HubDataset("lmsys/lmsys-chat-1m",
                        ("conversation", "redacted", "openai_moderation", "language")),
    "wildchat": HubDataset("allenai/WildChat", ("conversation", "redacted", "toxic")),
    # Its files are its domains (54,400 of the rows are one file), so all rows are shuffled at once.
    "guru": HubDataset("LLM360/guru-RL-92k", ("prompt",), buffer=100_000),
}
"""LMSYS-Chat-1M (section 4.1), WildChat (section 4.6) and Guru-RL-92K (appendix F)."""


def stream(dataset: HubDataset, seed: int) -> Iterator[Candidate]:
    """Yield the first user turn of each row of chats, shuffled; raises as `rows` does."""
    turns, *marks = dataset.columns
    with _reading(dataset):
        for row in rows(dataset, seed):
            yield first_user_turn(row[turns] or ()), _mark(row, marks)


def rows(dataset: HubDataset, seed: int) -> Iterator[dict]:
    """Yield the rows, shuffled; only what is taken is downloaded."""
    from datasets import load_dataset

    folder = dataset.folder
    if folder is None:
        _ask_for_access(dataset)
    with _reading(dataset):
        parquet = any(folder.rglob("*.parquet")) if folder else dataset.parquet
        # Only these: the files of Guru differ in the others, and would be refused.
        found = load_dataset(str(folder or dataset.id), split=dataset.split, streaming=True,
                             **({"columns": [*dataset.columns]} if parquet else {}))
        for row in found.shuffle(seed=seed, buffer_size=dataset.buffer):
            yield {column: row[column] for column in dataset.columns}


def first_user_turn(messages: Iterable[dict]) -> str:
    """Text of the first message of a user; empty if there is none."""
    return next((m["content"] or "" for m in messages if m["role"] == "user"), "")


def _mark(row: dict, marks: Iterable[str]) -> str | None:
    """Say why the publishers' own marks rule a row out."""
    said = {name: row[name] for name in marks}
    if said.get("redacted"):
        return "redacted"
    if said.get("toxic") or any(m["flagged"] for m in said.get("openai_moderation") or ()):
        return "toxic"
    return "language" if said.get("language", "English") not in LANGUAGES else None


def _ask_for_access(dataset: HubDataset) -> None:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, HTTPError, RepositoryNotFoundError

    try:
        HfApi().auth_check(dataset.id, repo_type="dataset")
    except GatedRepoError as error:
        raise UserError(f"{dataset.id} is gated. Ask for access on the page of `{dataset.id}` on "
                        f"the Hugging Face hub, then `hf auth login`. {dataset.instead}") from error
    except RepositoryNotFoundError as error:
        raise UserError(f"{dataset.id} is not on the hub any more, or your token is not valid: "
                        f"`hf auth login`. {dataset.instead}") from error
    except (OSError, HTTPError) as error:
        cause = "HF_HUB_OFFLINE is set" if offline() else f"no network ({type(error).__name__})"
        raise UserError(
            f"{dataset.id} cannot be reached: {cause}. With a network, `hf download {dataset.id} "
            f"--repo-type dataset --local-dir FOLDER/{dataset.id}` makes a copy, which is found if "
            f"RMUTILS_DATASETS is set to FOLDER. {dataset.instead}") from error


@contextmanager
def _reading(dataset: HubDataset) -> Iterator[None]:
    from huggingface_hub.errors import HTTPError

    try:
        yield
    except (OSError, HTTPError, ValueError, KeyError) as error:
        cause = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        cause = f"no column {cause}" if isinstance(error, KeyError) else cause
        raise UserError(f"{dataset.folder or dataset.id} could not be read: {cause}. "
                        f"{dataset.instead}") from error


TEMPERATURE = 1.0
TOP_P = 1.0  # both are the defaults of Magpie's `gen_ins.py`
MAX_NEW_TOKENS = 128
"""Ours; 512 in `gen_ins.py`. Those of LMSYS-Chat-1M have 64 tokens on average (Table 12)."""
MIN_TOKENS = 4  # ours: shorter ones ("Hi there!") ask for nothing
MIN_DISTINCT = 0.5  # ours: a turn repeats itself if fewer of its token trigrams are different ones
DRAWS = 20  # ours: turns written for each instruction that is wanted, at most
BATCH = {"cpu": 64, "cuda": 1024}
"""Turns written together, at most, by kind of device; without influence on what they say."""


def synthesize(lm: LanguageModel, count: int, seed: int = 0,
               journal: Path | None = None) -> Iterator[Candidate]:
    """Let the model write user turns, `DRAWS * count` at most, each with what is wrong with it."""
    if not lm.chat:
        raise UserError(f"{lm.name} has no chat template, so it cannot write user turns. Choose "
                        f'another source of instructions, such as "world".')
    before, after = lm.user_turn()
    prompt = lm.tokenizer(before, add_special_tokens=False)["input_ids"]
    kept = Journal(journal, [lm.state, seed, MAX_NEW_TOKENS, TEMPERATURE, TOP_P])
    batch = min(suiting(lm, BATCH), 2 * count)
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
