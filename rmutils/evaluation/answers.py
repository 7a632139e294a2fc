"""Greedy answers, and whether they are right; likelihoods; fluency of a masked model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import pandas as pd
import torch
from torch.nn.functional import cross_entropy

from rmutils.core.config import NoConfig, digest
from rmutils.core.results import Artifact, Compute, Stage, Tables
from rmutils.corpora.world.samples import Sample
from rmutils.heads.answering import SUCCESS_ROUGE, answer_recall
from rmutils.heads.detection import DetectConfig, build_cases
from rmutils.heads.masking import mask_heads
from rmutils.heads.scores import Head
from rmutils.models import LanguageModel
from rmutils.models.engine.generation import generate, in_batches, next_token_logits
from rmutils.models.language_model import without_thoughts


def answer(lm: LanguageModel, prompts: Sequence[Sequence[int]], *, max_new_tokens: int,
           batch_tokens: int | None = None) -> list[str]:
    """Greedy answers, in order; each depends on its own prompt only, but for the last bits."""
    tokens = generate(lm, prompts, max_new_tokens=max_new_tokens, batch_tokens=batch_tokens)
    return [lm.tokenizer.decode(row, skip_special_tokens=True).strip() for row in tokens]


def find_needles(lm: LanguageModel, config: DetectConfig) -> pd.DataFrame:
    """Answer all cases of a grid, a row each; unlike `detect`, also for models that find none."""
    cases = build_cases(lm, config)
    responses = answer(lm, [case.input_ids for case in cases], max_new_tokens=config.max_new_tokens)
    return pd.DataFrame([
        {"needle": case.needle_index, "length": case.length, "depth": case.depth,
         "response": response,
         "success": answer_recall(case.needle.real_needle, response) > SUCCESS_ROUGE}
        for case, response in zip(cases, responses, strict=True)])


def is_right(sample: Sample, text: str) -> bool:
    """Return whether an answer holds all gold values, in any case, or the whole right ranking."""
    said = without_thoughts(text).lower()
    golds = (sample.answer,) if sample.kind == "rerank" else sample.golds
    return all(gold.lower() in said for gold in golds)


LIKELIHOODS = Stage[Tables]("likelihoods", version=1)
BATCH_TOKENS = 2048
"""Tokens read at once, in one sequence at least: the logits of each take memory for the whole
vocabulary."""


def log_likelihoods(lm: LanguageModel, encoded: Mapping[str, list], *,
                    batch_tokens: int = BATCH_TOKENS) -> pd.DataFrame:
    """Log-probability of both responses to each prompt, in nats."""
    found = pd.DataFrame()
    for side in ("chosen", "rejected"):
        answers = encoded[f"{side}_ids"]
        found[side] = log_probabilities(lm, encoded["prompt_ids"], answers, batch_tokens)
        found[f"{side}_mean"] = found[side] / [len(answer) for answer in answers]
    return found.assign(gap=found["chosen"] - found["rejected"],
                        gap_mean=found["chosen_mean"] - found["rejected_mean"])


@torch.inference_mode()
def log_probabilities(lm: LanguageModel, prompts: Sequence[list[int]], answers: Sequence[list[int]],
                      batch_tokens: int = BATCH_TOKENS) -> list[float]:
    """Sums of the log-probabilities of each answer's tokens after its prompt, in nats."""
    sequences = [[*prompt, *answer] for prompt, answer in zip(prompts, answers, strict=True)]

    def read(batch: Sequence[int]) -> list[float]:
        width = max(len(sequences[i]) for i in batch)
        ids = torch.tensor([sequences[i] + [0] * (width - len(sequences[i])) for i in batch],
                           device=lm.model.device)
        logits = lm.model(input_ids=ids, use_cache=False).logits
        spans = [(len(prompts[i]), len(sequences[i])) for i in batch]
        return [-cross_entropy(logits[row, start - 1:end - 1].float(), ids[row, start:end],
                               reduction="sum").item() for row, (start, end) in enumerate(spans)]

    sums = {}
    for batch in _batches([len(sequence) for sequence in sequences], batch_tokens):
        for part, read_sums in in_batches(batch, len(batch), read, "sequence"):
            sums |= zip(part, read_sums, strict=True)
    return [sums[i] for i in range(len(sequences))]


def _batches(lengths: Sequence[int], size: int) -> Iterator[list[int]]:
    """Numbers of sequences of like length, as many at once as fit into `size` tokens."""
    batch: list[int] = []
    for i in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[i] > size:
            yield batch
            batch = []
        batch.append(i)
    if batch:
        yield batch


def log_likelihoods_stored(
    lm: LanguageModel, encoded: Mapping[str, list], *, compute: Compute = "auto", command: str
) -> tuple[pd.DataFrame, Artifact]:
    """`log_likelihoods`, but a stored result is read instead."""
    ids = {name: encoded[name] for name in ("prompt_ids", "chosen_ids", "rejected_ids")}
    tables, artifact = LIKELIHOODS.obtain(
        NoConfig(), {"model": lm.state, "ids": digest(ids)},
        lambda journal: {"likelihoods": log_likelihoods(lm, encoded)}, compute=compute,
        command=command, model=lm.name)
    return tables["likelihoods"], artifact


SPEECH = "speech"
WORDS = 4
"""Words of a span that `repetition_rate` looks for; the paper speaks of "incoherent repetitions"
(appendix B) and gives no measure."""


def speak(lm: LanguageModel, heads: Iterable[Head], samples: Sequence[Sample], *,
          max_new_tokens: int, temperature: float, seed: int) -> pd.DataFrame:
    """Answers of a masked model to short instructions, with repetition and surprise."""
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
    """Share of a text's spans of so many words that it has said before, 0 to 1; a shorter text
    repeats nothing. Punctuation marks are words, too; case does not count. Seq-rep-n of Welleck et
    al. (2020), "Neural Text Generation with Unlikelihood Training"."""
    said = re.findall(r"\w+|[^\w\s]", text.lower())
    spans = list(zip(*(said[i:] for i in range(words)), strict=False))
    return 1 - len(set(spans)) / len(spans) if spans else 0.0


def surprise(lm: LanguageModel, prompts: Sequence[Sequence[int]], answers: Sequence[Sequence[int]],
             max_new_tokens: int) -> list[float]:
    """How improbable each answer is to a model, in nats per token: the log of its perplexity."""
    found = []
    for prompt, answer in zip(prompts, answers, strict=True):
        odds = next_token_logits(lm, [*prompt, *answer])[len(prompt) - 1:].log_softmax(-1)
        nats = odds[:-1].gather(1, torch.tensor(answer, dtype=torch.long)[:, None])[:, 0]
        if len(answer) < max_new_tokens:  # any stop token would have ended it
            end = odds[-1, sorted(lm.stop_ids)].logsumexp(0)
            nats = torch.cat([nats, end[None]])
        found.append(-nats.mean().item())
    return found


def next_words_right(lm: LanguageModel, texts: Sequence[Sequence[int]], known: int) -> list[float]:
    """Share of the tokens of each text that a model expects most, given all before."""
    return [(next_token_logits(lm, text)[known - 1:-1].argmax(-1) == torch.tensor(text[known:]))
            .float().mean().item() for text in texts]
