"""Answers of servers with OpenAI's interface, one for each checkpoint, whole or masked."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from multiprocessing.pool import ThreadPool
from pathlib import Path
from typing import Any, TypeVar

from rmutils.core.errors import UserError
from rmutils.core.files import read_text
from rmutils.core.server import Client, ServerError
from rmutils.core.validation import parse_json
from rmutils.heads.masking import RECORD, Ablation
from rmutils.heads.scores import Head
from rmutils.models import LanguageModel, identify
from rmutils.models.loading import checkpoint_of
from rmutils.preference.instructions import Instruction
from rmutils.preference.responses import Backend, Response, ResponseConfig

T = TypeVar("T")

TRIES = 4  # the paper is silent; 3 retries in the authors' scripts
CONCURRENCY = 32  # requests at once
LONGEST = 4096  # characters of a name that a server tells: some are paths


class Server(Backend):
    """Servers of one model: of the whole one, of masked ones, or of both."""

    def __init__(self, lm: LanguageModel, served: Mapping[str, str | Path], *,
                 timeout: float = 1800):
        self.lm, self.name = lm, lm.name
        self._served: dict[tuple[frozenset[Head], Ablation], _Served] = {}
        for address, checkpoint in served.items():
            mask = _mask(lm, str(checkpoint))
            self._served[mask] = _Served(lm, address, _servable(str(checkpoint)), timeout)
        engines = sorted({server.engine for server in self._served.values()})
        self.identity = f"{lm.state}, served by {', '.join(engines)}"

    def respond(self, instructions: Sequence[Instruction], config: ResponseConfig,
                done: Callable[[Response], None]) -> None:
        """Sample a response to each instruction; UserError if no server masks these heads."""
        server = self._served.get((frozenset(config.heads), config.how if config.heads else "zero"))
        if server is None:
            known = "; ".join(f"{s.url}: {len(heads)}" for (heads, _), s in self._served.items())
            raise UserError(f"no server answers for {self.name} with these {len(config.heads)} "
                            f"heads masked (masked at {known}). Write that model with `rmutils "
                            f"mask --how {config.how}`, start `vllm serve FOLDER`, and name both.")

        # Made by one thread: tokenizers are not safe in many.
        requests = ((instruction, {
            "model": server.model, "max_tokens": config.max_new_tokens,
            "prompt": self.lm.render(instruction.text, thinking=config.thinking),
            "temperature": config.temperature, "top_p": config.top_p,
            "seed": config.seed_of(instruction), "stop_token_ids": sorted(self.lm.stop_ids),
            # Else a model's generation_config.json may bring its own.
            "top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0,
        }) for instruction in instructions)
        with ThreadPool(CONCURRENCY) as pool:  # its threads never keep a stopped run waiting
            for response in pool.imap_unordered(server.ask, requests):
                done(response)


def _response(instruction: Instruction, most: int, answer: dict) -> Response:
    choice = answer["choices"][0]
    finished = choice["finish_reason"] == "stop"
    counted = answer["usage"]["completion_tokens"]  # the stop token among them
    if type(counted) is not int or not finished <= counted <= most:
        raise ValueError(f"{str(counted)[:80]} tokens of at most {most}")
    return Response(instruction.id, choice["text"].strip(), counted - finished, finished)


def _name(said: Any) -> str:
    if not isinstance(said, str) or not said.isprintable() or len(said) > LONGEST:
        raise ValueError(f"{str(said)[:80]!r} is no name")
    return said


def _mask(lm: LanguageModel, checkpoint: str) -> tuple[frozenset[Head], Ablation]:
    """The heads that are masked in a checkpoint, which must be one of this model, and how."""
    record, how = Path(checkpoint) / RECORD, "zero"
    if record.is_file():
        try:
            said = parse_json(read_text(record))
            identity, heads = said["identity"], frozenset(map(tuple, said["heads"]))
            how = said.get("how", how)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise UserError(f"{record} is damaged ({type(error).__name__}: {error}).") from error
    else:
        identity, heads = identify(checkpoint, lm.model.dtype), frozenset()
    if identity != lm.state:
        raise UserError(f"{checkpoint} is a checkpoint of {identity}, not of {lm.name} "
                        f"({lm.state}).")
    return heads, how


def _servable(checkpoint: str) -> str:
    """Return what a server takes for a name: a folder or a hub id."""
    if (Path(checkpoint) / RECORD).is_file():  # a copy that may have no weights
        return checkpoint
    if found := checkpoint_of(checkpoint):
        return found
    raise UserError(f"{checkpoint} is no folder that a server could load. Write one with `rmutils "
                    f"merge {checkpoint} FOLDER`, serve it, and name it here.")


class _Served:
    """One server and the model on it."""

    def __init__(self, lm: LanguageModel, address: str, checkpoint: str, timeout: float):
        self.client = Client(address, timeout=timeout, tries=TRIES)
        self.url = self.client.url
        self.command = shlex.join([
            "vllm", "serve", checkpoint, "--dtype", str(lm.model.dtype).removeprefix("torch."),
            "--host", self.client.host, "--port", str(self.client.port)])
        named = self.call("/v1/models", lambda answer: {
            # vLLM tells the path (root) beside the name, others only a name.
            Path(m.get("root") or m["id"]).name:
                (_name(m["id"]), _name(m.get("owned_by", "unknown"))) for m in answer["data"]})
        if Path(checkpoint).name not in named:
            raise UserError(f"the server at {self.url} serves {', '.join(named)}, not "
                            f"{checkpoint}. Start it: `{self.command}`.")
        self.model, self.engine = named[Path(checkpoint).name]
        if self.engine == "vllm":
            self.engine = self.call("/version", lambda answer: f"vllm {_name(answer['version'])}")

    def ask(self, request: tuple[Instruction, dict]) -> Response:
        instruction, payload = request
        return self.call("/v1/completions", partial(_response, instruction, payload["max_tokens"]),
                         payload)

    def call(self, path: str, read: Callable[[Any], T], body: dict | None = None) -> T:
        """Return what `read` takes from the server's answer."""
        try:
            return self.client.call(path, read, body)
        except ServerError as error:
            times = f" {TRIES} times" if error.passing else ""
            raise UserError(f"{self.url}{path} failed{times}: {error}. If no server runs there: "
                            f"`{self.command}`.") from error
