"""Where each head looks under a variant, also where that takes one text at a time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial

import numpy as np
import torch

from rmutils.attention.gemfilter import GemFilterConfig, choose
from rmutils.attention.ms_poe import MsPoeConfig, rescaled
from rmutils.attention.retrieval_capture import ArgMaxRecorder, capturing
from rmutils.attention.select_attention import SelectConfig, answer_selecting
from rmutils.evaluation.variants.kinds import GemFilter, MsPoe, Select, Variant
from rmutils.heads.answering import Watch
from rmutils.heads.decoding import Answer, decode
from rmutils.models import LanguageModel
from rmutils.models.prefixes import Trunk


def watch_of(lm: LanguageModel, variant: Variant) -> Watch | None:
    """How a model is watched under a variant that it was switched to by
    `rmutils.evaluation.variants.under.under`.

    Returns
    -------
    callable or None
        For `rmutils.heads.detection.run_cases`; None where many texts can be read side by side.
    """
    match variant:
        case MsPoe(order="position_aware" | "reference"):
            return partial(_ordered, lm, variant)
        case Select():
            return partial(_selecting, lm, variant)
        case GemFilter():
            return partial(_filtering, lm, variant)
    return None


def _ordered(lm: LanguageModel, config: MsPoeConfig, prompt: Sequence[int], **how) -> Answer:
    with rescaled(lm.model, config, prompt):
        return _alone(lm, prompt, **how)


def _alone(lm: LanguageModel, prompt: Sequence[int], **how) -> Answer:
    with capturing(lm.model) as recorder:
        return decode(lm.model, recorder, [prompt], [Trunk(lm.model, prompt[:-1]).cache], **how)[0]


def _selecting(
    lm: LanguageModel, config: SelectConfig, prompt: Sequence[int], *, max_new_tokens: int,
    stop_ids: Collection[int],
) -> Answer:
    """Positions are those in the text: the recorder looks them up among the selected tokens."""
    said, selection, _ = answer_selecting(
        lm, prompt, config, max_new_tokens=max_new_tokens, stop_ids=stop_ids,
        recorder=ArgMaxRecorder())
    looked = torch.stack(selection.looked)[:len(said)]
    return Answer(np.array(said, dtype=int), looked.cpu().numpy())


def _filtering(
    lm: LanguageModel, config: GemFilterConfig, prompt: Sequence[int], *, max_new_tokens: int,
    stop_ids: Collection[int],
) -> Answer:
    """Positions among the tokens that are read become those in the prompt."""
    places = choose(lm, prompt, config)
    answer = _alone(lm, [prompt[i] for i in places], max_new_tokens=max_new_tokens,
                    stop_ids=stop_ids)
    behind = range(len(prompt), len(prompt) + max_new_tokens)
    return Answer(answer.tokens, np.array([*places, *behind])[answer.positions])
