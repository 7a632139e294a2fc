"""Who answers instructions, by name: transformers in this process, or vLLM's engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from rmutils.core.journal import one_thread
from rmutils.heads.masking import mask_heads
from rmutils.models import LanguageModel, load_model
from rmutils.models.engine.generation import generate
from rmutils.preference.instructions import Instruction
from rmutils.preference.responses import BACKENDS, Backend, Response, ResponseConfig, decode
from rmutils.preference.vllm import VLLM

TOGETHER = 64
"""Instructions that are answered together. Ours: with more, fewer processes can share the work;
with fewer, batches are less often full."""


@BACKENDS.register("transformers")
class Transformers(Backend):
    """The model itself, on this machine.

    Parameters
    ----------
    lm : LanguageModel
    batch_tokens : int
        Tokens of prompts and responses held at once: it bounds the memory.
    named : str, optional
        What `load_model` takes for it, if other processes are to answer, too.
    workers : int
        How many of them. A script that asks for more than one needs `if __name__ == "__main__"`:
        each of them imports it.
    """

    together = TOGETHER

    def __init__(self, lm: LanguageModel, batch_tokens: int = 16384, *, named: str | None = None,
                 workers: int = 1):
        self.lm, self.batch_tokens, self.named = lm, batch_tokens, named
        self.name, self.identity = lm.name, lm.identity
        self.workers = workers if named else 1

    @classmethod
    def start(cls, lm: LanguageModel, named: str, *, workers: int = 1,
              tensor_parallel: int = 1) -> Transformers:
        """Each of the workers holds the model."""
        return cls(lm, named=named, workers=workers)

    def elsewhere(self) -> Callable[[], Transformers]:
        """Return what makes the same backend in another process."""
        return partial(_load, self.named, self.batch_tokens)

    def respond(self, instructions: Sequence[Instruction], config: ResponseConfig,
                done: Callable[[Response], None]) -> None:
        """Sample a response to each instruction."""

        def told(index: int, tokens: list[int]) -> None:
            done(decode(self.lm, instructions[index], tokens, len(tokens) < config.max_new_tokens))

        with mask_heads(self.lm, config.heads), one_thread():
            generate(
                self.lm, [self.lm.render(i.text, thinking=config.thinking) for i in instructions],
                max_new_tokens=config.max_new_tokens, temperature=config.temperature,
                top_p=config.top_p, seeds=[config.seed_of(i) for i in instructions],
                batch_tokens=self.batch_tokens, done=told)


def _load(named: str, batch_tokens: int) -> Transformers:
    return Transformers(load_model(named), batch_tokens)


BACKENDS.add("vllm", VLLM)
