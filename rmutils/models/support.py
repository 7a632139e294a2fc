"""Of which models the heads can be watched and masked."""

from __future__ import annotations

from jinja2.exceptions import TemplateError

from rmutils.errors import UserError
from rmutils.models.language_model import LanguageModel


def check(lm: LanguageModel) -> None:
    """Whether a model is of a kind whose heads can be watched and masked.

    Raises
    ------
    UserError
        It is not, with what it lacks.
    """
    layers = getattr(lm.model.base_model, "layers", ())
    outputs = [getattr(getattr(layer, "self_attn", None), "o_proj", None) for layer in layers]
    rotary = getattr(lm.model.base_model, "rotary_emb", None)
    lacks = (
        "an attention with an output projection `o_proj` in every layer"
        if len(outputs) != lm.model.config.num_hidden_layers or None in outputs else
        "rotary positions" if rotary is None else
        "an attention that transformers can exchange"
        if not getattr(lm.model, "_supports_attention_backend", False) else "")
    if lacks:
        raise UserError(f"{lm.name} is of the family {lm.family}, which lacks {lacks}. Models that "
                        "are built like Llama, Qwen3, Olmo 3 or Gemma 3 can be examined.")
    if not lm.tokenizer.is_fast:
        raise UserError(f"the tokenizer of {lm.name} does not say which characters a token stands "
                        "for. Add its tokenizer.json to the folder.")
    if not lm.chat:
        return
    try:
        lm.user_turn()
    except (TemplateError, ValueError) as error:
        raise UserError(f"the chat template of {lm.name} does not write a single user turn as it "
                        f"stands: {error}. Mend its chat_template, or remove it to have the model "
                        "read plain text.") from error
