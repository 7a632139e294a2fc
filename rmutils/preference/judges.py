"""Judges of responses, for Win-Lose-Pair: a model behind a server, and a proxy that needs none."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pandas as pd
import torch

from rmutils.core.config import NoConfig, digest
from rmutils.core.errors import UserError
from rmutils.core.journal import Journal, progress_bar
from rmutils.core.results import Artifact, Compute, Stage, Tables
from rmutils.core.server import Client, ServerError
from rmutils.models import LanguageModel

T = TypeVar("T")

GEMMA = "google/gemma-3-27b-it"  # the paper's judge, by its name on the hub
PROMPT = """\
Rate how good the response to the instruction below is, from 1 (useless) to 10 (excellent).
Consider whether it is correct, complete, clear, and does what was asked. A response that breaks \
off or repeats itself is a bad one.

<instruction>
{instruction}
</instruction>

<response>
{response}
</response>

Reply with your rating in double square brackets and nothing else, for example: [[5]]"""
"""The wording is ours, and the scale; single ratings from 1 to 10 in double brackets are what the
judge of MT-Bench gives (Zheng et al., 2023)."""
MAX_TOKENS = 64
ATTEMPTS = 3
"""Both ours: length of a reply, and how often the judge is asked for a rating, or a server in
trouble for a reply."""
TIMEOUT = 120.0  # seconds for a whole reply
KEY = "RMUTILS_JUDGE_KEY"
"""Environment variable: the key of a server that wants one. It is sent there, and kept nowhere."""
REFUSALS = {401: f"it wants a key; set {KEY}", 403: f"it wants another key; set {KEY}",
            404: "it has no such model, or another interface"}
"""Status codes of servers that would refuse the next request, too, and what to do."""
BAD_REQUEST = 400, 413, 422
"""Status codes that are about the question, such as one longer than the model's window."""
AGAIN = "When it works again, run the same command: what it has judged so far is kept."
BREAKS_OFF = 0.01
"""Ours: a response breaks off where the model would end it with less than this probability."""


class Judge(Protocol):
    """Something that tells how good responses are."""

    name: str
    identity: str
    """Return what its scores depend on besides the texts, for the key of stored results."""
    at_once: int  # how many instructions it may be asked about at the same time

    def score(self, instruction: str, responses: Sequence[str]) -> list[float | None]:
        """Higher is better; None: unscored."""


class ServerJudge:
    """A model that is asked for ratings, behind a server with OpenAI's interface."""

    at_once = 32

    def __init__(self, url: str, model: str = GEMMA):
        self._client = Client(url, timeout=TIMEOUT, tries=ATTEMPTS, key=os.environ.get(KEY))
        self.url, self.name = self._client.url, model
        self.identity = digest(["server judge", 1, model, PROMPT])

    def score(self, instruction: str, responses: Sequence[str]) -> list[float | None]:
        """Ratings from 1 to 10."""
        questions = [PROMPT.format(instruction=instruction, response=r) for r in responses]
        with ThreadPoolExecutor(max(1, len(responses))) as pool:
            return list(pool.map(lambda question: self.ask(question, rating), questions))

    def ask(self, question: str, read: Callable[[str], T | None]) -> T | None:
        """Return what `read` finds in the reply to a question; None if it never finds anything."""
        for temperature in (0, *[1] * (ATTEMPTS - 1)):
            try:
                found = read(self.reply(question, temperature))
            except ServerError as error:
                if error.status in BAD_REQUEST:
                    return None
                raise UserError(self._trouble(error)) from error
            if found is not None:
                return found
        return None

    def reply(self, question: str, temperature: float) -> str:
        """The text of a reply; empty where the server said something else."""
        return self._client.call("/v1/chat/completions", _text, {
            "model": self.name, "messages": [{"role": "user", "content": question}],
            "temperature": temperature, "max_tokens": MAX_TOKENS})

    def _trouble(self, error: ServerError) -> str:
        if error.status in REFUSALS:
            return (f"the judge {self.name} at {self.url} answers with status {error.status}: "
                    f"{REFUSALS[error.status]}.")
        who = f"the judge at {self.url}"
        if error.status in range(300, 400):
            return f"{who} sends elsewhere (status {error.status}), which is not followed. Give " \
                   "the address where it is."
        if not error.reached:
            return f"{who} cannot be reached: {error}. Start it, for example with `vllm serve " \
                   f"{self.name}`."
        if error.status:
            return f"{who} answers with status {error.status}. {AGAIN}"
        return f"{who} gives no reply: {error}. {AGAIN}"


def _text(answer: Any) -> str:
    try:
        return str(answer["choices"][0]["message"]["content"])
    except (LookupError, TypeError):
        return ""


def rating(reply: str) -> float | None:
    """The rating from 1 to 10 in a reply; None if there is none, or there are several."""
    found = {float(number) for number in re.findall(r"\[\[ *(\d+(?:\.\d+)?) *\]\]", reply)}
    return found.pop() if len(found) == 1 and 1 <= min(found) <= 10 else None


class Proxy:
    """How fluent a response is to a model: a stated stand-in for a judge, which needs no other one.

    The score is the mean log-probability of the response's tokens, in nats, plus the logarithm of
    the share of different ones among their trigrams (loops are probable, and yet bad), plus, where
    the model would end its turn there with a probability p below 0.01, the logarithm of p / 0.01.
    It knows neither truth nor usefulness, and prefers what is usual.
    """

    at_once = 1

    def __init__(self, lm: LanguageModel, thinking: bool = True):
        self.lm, self.thinking, self.device = lm, thinking, lm.model.device
        self.name = f"the likelihood under {lm.name}"
        self.identity = digest(["proxy", 1, BREAKS_OFF, lm.state, thinking])

    def score(self, instruction: str, responses: Sequence[str]) -> list[float | None]:
        """Nats, at most 0."""
        self.lm.model.to(self.device)  # an engine that answered before may have sent it away
        prompt = self.lm.render(instruction, thinking=self.thinking)
        return [self._score(prompt, self.lm.encode(response)) for response in responses]

    @torch.inference_mode()
    def _score(self, prompt: list[int], answer: list[int]) -> float | None:
        if not answer or len(prompt) + len(answer) > self.lm.window:
            return None
        sequence = torch.tensor([prompt + answer], device=self.lm.model.device)
        logits = self.lm.model(input_ids=sequence, use_cache=False,
                               logits_to_keep=len(answer) + 1).logits[0]
        odds = logits.float().log_softmax(-1)
        said = odds[:-1].gather(1, sequence[0, len(prompt):, None]).mean().item()
        end = odds[-1, list(self.lm.stop_ids)].logsumexp(-1).item()
        trigrams = list(zip(answer, answer[1:], answer[2:], strict=False))
        different = len(set(trigrams)) / len(trigrams) if trigrams else 1.0
        return said + math.log(different) + min(0.0, end - math.log(BREAKS_OFF))


JUDGED = Stage[Tables]("judged", version=1, facts=lambda tables: {
    "pairs": len(tables["scores"]), "unscored": int(tables["scores"].isna().any(axis=1).sum())})


def judge_stored(judge: Judge, first: pd.DataFrame, second: pd.DataFrame, *,
                 compute: Compute = "auto",
                 command: str | None = None) -> tuple[pd.DataFrame, Artifact]:
    """A judge's scores of two responses to each instruction, and where they are kept."""
    inputs = {"judge": judge.identity, "instructions": digest(first["id"].tolist()),
              "first": digest(first["text"].tolist()), "second": digest(second["text"].tolist())}
    tables, artifact = JUDGED.obtain(
        NoConfig(), inputs, lambda journal: {"scores": _judge(judge, first, second, journal)},
        compute=compute, model=judge.name,
        command=command or "rmutils pairs MODEL --strategy win-lose-pair --out FILE")
    return tables["scores"], artifact


def _judge(judge: Judge, first: pd.DataFrame, second: pd.DataFrame, journal: Path) -> pd.DataFrame:
    kept = Journal(journal, [judge.identity, *(side["text"].tolist() for side in (first, second))])
    todo = [(a.id, a.instruction, [a.text, b.text])
            for a, b in zip(first.itertuples(), second.itertuples(), strict=True)
            if a.id not in kept]

    def ask(pair: tuple[str, str, list[str]]) -> tuple[str, list[float | None]]:
        name, instruction, texts = pair
        return name, judge.score(instruction, texts)

    with (progress_bar(f"judgements of {judge.name}", len(first), unit="pairs",
                       done=len(kept)) as advance,
          ThreadPool(judge.at_once) as pool):  # its threads never keep a stopped run waiting
        for name, scores in pool.imap_unordered(ask, todo):
            kept[name] = scores
            advance(1)
    rows = [[name, *kept[name]] for name in first["id"]]
    table = pd.DataFrame(rows, columns=["id", "first", "second"])
    return table.astype({"first": float, "second": float})
