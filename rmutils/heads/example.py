"""One case, looked at closely: what a chapter shows before it counts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch

from rmutils.attention.retrieval_capture import capturing
from rmutils.corpora.niah import NiahCase
from rmutils.heads.decoding import Answer, decode
from rmutils.heads.scores import Head
from rmutils.heads.scoring import copied
from rmutils.models import LanguageModel
from rmutils.models.attention import using
from rmutils.models.prefixes import Trunk


def answer_case(lm: LanguageModel, case: NiahCase, *, max_new_tokens: int = 50) -> Answer:
    """The model's greedy answer to one case, with the arg-max rows of all heads."""
    with capturing(lm.model) as recorder:
        cache = Trunk(lm.model, []).read(case.input_ids, room=max_new_tokens)
        return decode(lm.model, recorder, [case.input_ids], [cache],
                      max_new_tokens=max_new_tokens, stop_ids=lm.stop_ids)[0]


@torch.inference_mode()
def attention_rows(
    lm: LanguageModel, case: NiahCase, answer: Answer, heads: Sequence[Head]
) -> np.ndarray:
    """The attention of some heads in the rows that decided the T tokens of an answer.

    Returns
    -------
    ndarray
        (heads, T, prompt tokens + T - 1): what each row sees of prompt and answer sums to 1.
    """
    cache = Trunk(lm.model, []).read(case.input_ids, room=len(answer.tokens))
    read = torch.tensor([[case.input_ids[-1], *answer.tokens[:-1]]], device=lm.model.device)
    with using(lm.model, "eager"):  # the only one that gives its weights away
        layers = lm.model(input_ids=read, past_key_values=cache, use_cache=True,
                          output_attentions=True).attentions
    return np.stack([layers[layer][0, head].float().cpu().numpy() for layer, head in heads])


def trace(lm: LanguageModel, case: NiahCase, answer: Answer, head: Head) -> pd.DataFrame:
    """Equation 1 step by step for one head, a row per written token.

    Returns
    -------
    DataFrame
        `written` (y_t), `looks at` (j = arg max a_t), `token there` (x_j; empty if j is a token of
        the answer itself), `in needle` (j in I_k), `copied` (both conditions hold), and `so far`,
        the size of the overlap after this step.
    """
    layer, index = head
    hits = copied(answer, case.input_ids, case.needle_span)[:, layer, index]
    seen: set[int] = set()
    rows = []
    looked = answer.positions[:, layer, index]
    for hit, token, position in zip(hits, answer.tokens, looked, strict=True):
        if hit:
            seen.add(int(position))
        there = case.input_ids[position] if position < len(case.input_ids) else None
        rows.append({
            "written": lm.tokenizer.decode([token]), "looks at": int(position),
            "token there": "" if there is None else lm.tokenizer.decode([there]),
            "in needle": bool(case.needle_span[0] <= position < case.needle_span[1]),
            "copied": bool(hit), "so far": len(seen),
        })
    return pd.DataFrame(rows)
