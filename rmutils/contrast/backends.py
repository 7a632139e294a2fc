"""Who answers instructions: transformers in this process. `vllm` and `server` have the others."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rmutils.contrast.instructions import Instruction
from rmutils.contrast.responses import Backend, Response, ResponseConfig
from rmutils.heads.masking import mask_heads
from rmutils.models import LanguageModel
from rmutils.models.generation import generate


class Transformers(Backend):
    """The model itself, on this machine.

    Parameters
    ----------
    lm : LanguageModel
    batch_tokens : int
        Tokens of prompts and responses held at once: it bounds the memory.
    """

    def __init__(self, lm: LanguageModel, batch_tokens: int = 16384):
        self.lm, self.batch_tokens = lm, batch_tokens
        self.name, self.identity = lm.name, lm.identity

    def respond(self, instructions: Sequence[Instruction], config: ResponseConfig,
                done: Callable[[Response], None]) -> None:
        """Sample a response to each instruction."""

        def told(index: int, tokens: list[int]) -> None:
            done(decode(self.lm, instructions[index], tokens, len(tokens) < config.max_new_tokens))

        with mask_heads(self.lm, config.heads):
            generate(
                self.lm, [self.lm.render(i.text, thinking=config.thinking) for i in instructions],
                max_new_tokens=config.max_new_tokens, temperature=config.temperature,
                top_p=config.top_p, seeds=[config.seed_of(i) for i in instructions],
                batch_tokens=self.batch_tokens, done=told)


def decode(lm: LanguageModel, instruction: Instruction, tokens: Sequence[int],
           finished: bool) -> Response:
    """A response from its token ids, which are without the stop token."""
    text = lm.tokenizer.decode(tokens, skip_special_tokens=True).strip()
    return Response(instruction.id, text, len(tokens), finished)
