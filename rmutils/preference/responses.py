"""Responses of a whole or masked model to instructions, kept one by one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pandas as pd
from pydantic import Field

from rmutils.core.config import Config, added, command_line, digest
from rmutils.core.journal import Journal, one_thread, progress_bar, side_by_side
from rmutils.core.registry import Registry
from rmutils.core.results import Artifact, Compute, Stage, Tables
from rmutils.core.validation import Count, FrozenHeads, checked
from rmutils.heads.masking import Ablation, mask_heads
from rmutils.models import LanguageModel, load_model
from rmutils.models.engine.generation import generate, suiting
from rmutils.models.loading import ModelRef
from rmutils.preference.instructions import Instruction

RESPONSES = Stage[Tables]("responses", version=1, facts=lambda tables: {
    "responses": len(tables["responses"]), "tokens": int(tables["responses"]["tokens"].sum()),
    "finished": int(tables["responses"]["finished"].sum())})


class ResponseConfig(Config):
    """How responses are sampled, and from which variant of the model.

    Examples
    --------
    >>> from rmutils import ResponseConfig
    >>> ResponseConfig(max_new_tokens=64).temperature
    0.6
    """

    heads: FrozenHeads = ()
    """Heads (layer, head) that are masked meanwhile; none: the original model."""
    temperature: Annotated[float, Field(ge=0)] = 0.6
    """The paper is silent; 0.6 in the authors' scripts."""
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0
    """The paper is silent; 1.0 in the authors' scripts."""
    max_new_tokens: Count = 2048
    """The paper is silent; 2,048 in the authors' scripts, 4,096 for Qwen3."""
    thinking: bool = True
    """Section 4.1: "enable reasoning during contrastive response generation". Without effect where
    the chat template knows no thinking."""
    seed: int = 0
    """The paper is silent: one sample per instruction."""
    how: Ablation = added("zero")
    """What masked heads do: nothing, as in the paper; what they do on average; look everywhere
    alike."""

    def identity(self) -> dict[str, Any]:
        """Without heads, how they are masked has no influence."""
        values = super().identity()
        return values if self.heads else {k: v for k, v in values.items() if k != "how"}

    def seed_of(self, instruction: Instruction) -> int:
        """The seed of one request. Those of a masked and of the whole model are not the same."""
        return int(digest([self.seed, sorted(self.heads), instruction.id])[:8], 16)


@dataclass(frozen=True)
class Response:
    """A model's answer to an instruction."""

    id: str  # of the instruction
    text: str  # without the turn's end; thoughts included, between `<think>` and `</think>`
    tokens: int
    finished: bool  # False if it was cut at `max_new_tokens`


class Backend:
    """Something that answers."""

    name: str
    identity: str
    # Instructions that are given to it at once. All are asked again if one answer is missing, so
    # that a run that was stopped gives the same as one that was not. None: only the missing ones,
    # which is enough where an answer does not depend on the others.
    together: int | None = None
    # Processes that answer side by side. More than one needs `elsewhere`, which returns what makes
    # the backend in another process.
    workers: int = 1
    # It holds weights of its own, on GPUs of its own: `engines` and `tensor_parallel` of
    # `rmutils.training.compute_backend.ComputeBackend` say how many.
    own_gpus: ClassVar[bool] = False

    @classmethod
    def start(cls, lm: LanguageModel, named: str, *, workers: int = 1,
              tensor_parallel: int = 1) -> Backend:
        """The backend of a model, which `load_model` loads by the name `named`."""
        raise NotImplementedError

    @classmethod
    def version(cls) -> str | None:
        """Return what else results depend on, if anything. UserError if it cannot run."""
        return None

    def respond(self, instructions: Sequence[Instruction], config: ResponseConfig,
                done: Callable[[Response], None]) -> None:
        """Call `done` with each response, in any order."""
        raise NotImplementedError

    def close(self) -> None:
        """Free the memory of an engine, where there is one."""


BACKENDS: Registry[type[Backend]] = Registry(
    "response backend", "rmutils.backends", package="rmutils.preference")
"""By name: transformers in this process, vLLM's engine, and those of other packages."""


def decode(lm: LanguageModel, instruction: Instruction, tokens: Sequence[int],
           finished: bool) -> Response:
    """A response from its token ids, which are without the stop token."""
    text = lm.tokenizer.decode(tokens, skip_special_tokens=True).strip()
    return Response(instruction.id, text, len(tokens), finished)


@checked
def respond(backend: Backend | LanguageModel | str | Path,
            instructions: Sequence[Instruction] | Sequence[str] | str,
            config: ResponseConfig = ResponseConfig(), journal: Path | None = None) -> pd.DataFrame:
    """Sample one response to each instruction, in their order.

    Parameters
    ----------
    backend : Backend, LanguageModel, str or Path
        Who answers: a model, its name or folder, or a backend such as vLLM.
    instructions : str, or sequence of str or Instruction
        User turns; a text is one.
    config : ResponseConfig
        Its `heads` are masked meanwhile.
    journal : Path, optional
        Takes each response as it comes; those that are there already are not asked for again, but
        for the last `backend.together`. Needed by several workers.

    Returns
    -------
    DataFrame
        `id`, `instruction`, `text`, `tokens`, `finished`.

    Examples
    --------
    >>> from rmutils import ResponseConfig, respond
    >>> config = ResponseConfig(temperature=0, max_new_tokens=4)
    >>> respond("tiny-llama", ["Repeat: the old mill."], config)[["text", "tokens", "finished"]]
                  text  tokens  finished
    0  The old mill is       4     False
    """
    if isinstance(backend, LanguageModel | str | Path):
        backend = Transformers(ModelRef(backend).load())
    instructions = [instructions] if isinstance(instructions, str) else instructions
    instructions = [Instruction.of(one) if isinstance(one, str) else one for one in instructions]
    who = f"{backend.name}, {len(config.heads)} heads masked" if config.heads else backend.name
    doing, total = f"responses of {who}", len(instructions)
    lm = getattr(backend, "lm", None)
    of = [backend.identity, lm and lm.state, config.identity(), config.outside()]
    kept = Journal(journal, of)
    workers = min(backend.workers, sum(map(bool, _parts(backend.together, instructions, kept))))
    if journal and workers > 1:
        work = partial(_work, backend.elsewhere(), backend.together, instructions, config)
        side_by_side(work, journal, workers, doing, total, of=of, unit="responses")
        kept = Journal(journal, of)
    parts = _parts(backend.together, instructions, kept)
    with progress_bar(doing, total, unit="responses",
                      done=total - sum(map(len, parts))) as advance:
        _answer(backend, parts, config, kept, advance)
    table = pd.DataFrame([kept[i.id] for i in instructions])
    table.insert(1, "instruction", [i.text for i in instructions])
    return table


def _parts(together: int | None, instructions: Sequence[Instruction],
           kept: Journal) -> list[list[Instruction]]:
    """Return what is still to be asked at once. Parts that are done are empty."""
    size = together or max(1, len(instructions))
    parts = [[*instructions[start:start + size]] for start in range(0, len(instructions), size)]
    left = [[i for i in part if i.id not in kept] for part in parts]
    return [part if missing and together else missing
            for part, missing in zip(parts, left, strict=True)]


def _answer(backend: Backend, parts: Sequence[Sequence[Instruction]], config: ResponseConfig,
            kept: Journal, advance: Callable[[float], object]) -> None:
    def done(response: Response) -> None:
        kept[response.id] = asdict(response)
        advance(1)

    for part in filter(None, parts):
        backend.respond(part, config, done)


def _work(make: Callable[[], Backend], together: int | None, instructions: Sequence[Instruction],
          config: ResponseConfig, kept: Journal, share: slice,
          done: Callable[[float], object]) -> None:
    _answer(make(), _parts(together, instructions, kept)[share], config, kept, done)


def respond_stored(backend: Backend, instructions: Sequence[Instruction], config: ResponseConfig, *,
                   compute: Compute = "auto",
                   command: str | None = None) -> tuple[pd.DataFrame, Artifact]:
    """`respond`, but a stored result is read instead, and a stopped run goes on."""

    inputs = {"model": backend.identity, "instructions": digest([i.id for i in instructions])}
    inputs |= BACKENDS.origins(name for name, kind in BACKENDS.items() if kind is type(backend))
    tables, artifact = RESPONSES.obtain(
        config, inputs,
        lambda journal: {"responses": respond(backend, instructions, config, journal)},
        compute=compute, command=command or command_line("generate", backend.name),
        model=backend.name)
    return tables["responses"], artifact


TOGETHER = {"cpu": 64, "cuda": 1024}
"""Instructions that are answered together by kind of device. Ours: with more, fewer processes can
share the work; with fewer, batches are less often full. A GPU writes 1,024 answers nearly as fast
as 64."""


@BACKENDS.register("transformers")
class Transformers(Backend):
    """The model itself, on this machine."""

    def __init__(self, lm: LanguageModel, batch_tokens: int | None = None, *,
                 named: str | None = None, workers: int = 1):
        self.lm, self.batch_tokens, self.named = lm, batch_tokens, named
        self.name, self.identity = lm.name, lm.state
        self.workers = workers if named else 1

    @property
    def together(self) -> int:
        return suiting(self.lm, TOGETHER)

    @classmethod
    def start(cls, lm: LanguageModel, named: str, *, workers: int = 1,
              tensor_parallel: int = 1) -> Transformers:
        """Each of the workers holds the model."""
        return cls(lm, named=named, workers=workers)

    def elsewhere(self) -> Callable[[], Transformers]:
        """Return what makes the same backend in another process."""
        self.lm.check_as_loaded()
        return partial(_load, self.named, self.batch_tokens)

    def respond(self, instructions: Sequence[Instruction], config: ResponseConfig,
                done: Callable[[Response], None]) -> None:
        def told(index: int, tokens: list[int]) -> None:
            done(decode(self.lm, instructions[index], tokens, len(tokens) < config.max_new_tokens))

        with mask_heads(self.lm, config.heads, config.how), one_thread():
            generate(
                self.lm, [self.lm.render(i.text, thinking=config.thinking) for i in instructions],
                max_new_tokens=config.max_new_tokens, temperature=config.temperature,
                top_p=config.top_p, seeds=[config.seed_of(i) for i in instructions],
                batch_tokens=self.batch_tokens, done=told)


def _load(named: str, batch_tokens: int | None) -> Transformers:
    return Transformers(load_model(named), batch_tokens)
