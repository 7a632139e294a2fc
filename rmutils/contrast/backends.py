"""Who answers instructions: transformers in this process. `vllm` and `server` have the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from rmutils.contrast.instructions import Instruction
from rmutils.contrast.responses import Backend, Response, ResponseConfig
from rmutils.heads.masking import mask_heads
from rmutils.models import LanguageModel, load_model
from rmutils.models.generation import generate
from rmutils.threads import one_thread

TOGETHER = 64
"""Instructions that are answered together. Ours: with more, fewer processes can share the work;
with fewer, more time goes by in which a batch is not full."""


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
        How many of them. More than one must not be asked for by a script without
        `if __name__ == "__main__"`, which each would run anew.
    """

    together = TOGETHER

    def __init__(self, lm: LanguageModel, batch_tokens: int = 16384, *, named: str | None = None,
                 workers: int = 1):
        self.lm, self.batch_tokens, self.named = lm, batch_tokens, named
        self.name, self.identity = lm.name, lm.identity
        self.workers = workers if named else 1

    def elsewhere(self) -> Callable[[], Transformers]:
        """What makes the same in another process."""
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


def decode(lm: LanguageModel, instruction: Instruction, tokens: Sequence[int],
           finished: bool) -> Response:
    """A response from its token ids, which are without the stop token."""
    text = lm.tokenizer.decode(tokens, skip_special_tokens=True).strip()
    return Response(instruction.id, text, len(tokens), finished)
