"""Whether a masked model still speaks: repetition, how odd the whole model finds what it says, and
next words of plain text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import pandas as pd
import torch

from rmutils.config import digest
from rmutils.corpora.world.samples import Sample
from rmutils.heads.masking import mask_heads
from rmutils.heads.scores import Head
from rmutils.models import LanguageModel
from rmutils.models.generation import generate

SPEECH = "speech"
WORDS = 4
"""Words of a span that `repetition_rate` looks for; the paper speaks of "incoherent repetitions"
(appendix B) and gives no measure."""


def speak(
    lm: LanguageModel, heads: Iterable[Head], samples: Sequence[Sample], *, max_new_tokens: int,
    temperature: float, seed: int,
) -> pd.DataFrame:
    """Answers of a masked model to short instructions, as text.

    Parameters
    ----------
    heads : iterable of (layer, head)
        What is masked while the model speaks; the whole model judges.
    seed : int
        Each answer is drawn with a seed made of this and the instruction, whatever is masked.

    Returns
    -------
    DataFrame
        `task`, `sample`, `cluster`, `instruction`, `response`, `tokens`, `finished` (not cut),
        `repetition` (`repetition_rate`), `surprise`.
    """
    prompts = [lm.render(sample.prompt) for sample in samples]
    with mask_heads(lm, heads):
        said = generate(lm, prompts, max_new_tokens=max_new_tokens, temperature=temperature,
                        seeds=[int(digest([seed, s.prompt])[:8], 16) for s in samples])
    table = pd.DataFrame({
        "task": SPEECH, "sample": range(len(samples)), "cluster": range(len(samples)),
        "instruction": [sample.prompt for sample in samples],
        "response": [lm.tokenizer.decode(t, skip_special_tokens=True).strip() for t in said],
        "tokens": list(map(len, said)), "surprise": surprise(lm, prompts, said, max_new_tokens)})
    return table.assign(finished=table["tokens"] < max_new_tokens,
                        repetition=table["response"].map(repetition_rate))


def repetition_rate(text: str, words: int = WORDS) -> float:
    """Share of a text's spans of so many words that it has said before, 0 to 1.

    Punctuation marks are words, too; upper and lower case are the same. A text with fewer words
    repeats nothing.

    References
    ----------
    Welleck et al. (2020), "Neural Text Generation with Unlikelihood Training": seq-rep-n.
    """
    said = re.findall(r"\w+|[^\w\s]", text.lower())
    spans = list(zip(*(said[i:] for i in range(words)), strict=False))
    return 1 - len(set(spans)) / len(spans) if spans else 0.0


def surprise(
    lm: LanguageModel, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]],
    max_new_tokens: int,
) -> list[float]:
    """How improbable each answer is to a model, in nats per token: the log of its perplexity.

    The end of an answer that was not cut counts as a token, so an empty one has a value, too.

    Parameters
    ----------
    lm : LanguageModel
        The judge, here the whole model.
    prompts, answers : sequence of sequences of int
        Token ids; answers without stop token, as from `rmutils.models.generation.generate`.
    max_new_tokens : int
        Length at which answers were cut.
    """
    found = []
    for prompt, answer in zip(prompts, answers, strict=True):
        odds = next_token_logits(lm, [*prompt, *answer])[len(prompt) - 1:].log_softmax(-1)
        nats = odds[:-1].gather(1, torch.tensor(answer, dtype=torch.long)[:, None])[:, 0]
        if len(answer) < max_new_tokens:  # any stop token would have ended it
            end = odds[-1, sorted(lm.stop_ids)].logsumexp(0)
            nats = torch.cat([nats, end[None]])
        found.append(-nats.mean().item())
    return found


def foretold(lm: LanguageModel, texts: Sequence[Sequence[int]], known: int) -> list[float]:
    """Share of the tokens of each text that a model expects most, given all before.

    Parameters
    ----------
    texts : sequence of sequences of int
        Token ids.
    known : int
        So many tokens at the beginning are not asked for.
    """
    return [(next_token_logits(lm, text)[known - 1:-1].argmax(-1) == torch.tensor(text[known:]))
            .float().mean().item() for text in texts]


@torch.inference_mode()
def next_token_logits(lm: LanguageModel, ids: Sequence[int]) -> torch.Tensor:
    """(tokens, vocabulary), float32 on the CPU: row i is about token i + 1."""
    return lm.model(torch.tensor([ids], device=lm.model.device),
                    use_cache=False).logits[0].float().cpu()
