"""How a model is trained on preference pairs: the paper's recipe, and ones for small machines."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from rmutils.core.config import Config
from rmutils.core.validation import Count

Share = Annotated[float, Field(ge=0, lt=1)]
Rate = Annotated[float, Field(gt=0)]


class TrainRecipe(Config):
    """One way to train. The defaults are the paper's; `RECIPES` has others by name.

    Examples
    --------
    >>> from rmutils import TrainRecipe
    >>> recipe = TrainRecipe(max_steps=10)
    >>> recipe.batch, recipe.learning_rate
    (512, 5e-07)
    """

    objective: Literal["dpo", "sft"] = "dpo"
    """Section 3: "We train the target policy pi_theta using Direct Preference Optimization", with
    the sigmoid loss of equation 5. `sft` is the baseline of appendix D: "we train models on
    (x, y_w) only". Of which tokens its loss is taken the paper does not say; here of the answer
    and its end, as TRL does for data in prompts and answers."""
    beta: Rate = 0.1
    """Equation 5 has it without a value; TRL's default, which the authors' script leaves."""

    epochs: Count = 2
    """The paper is silent; the authors' script."""
    max_steps: Count | None = None
    """Steps after which the training ends, however many epochs that are (as in transformers)."""
    batch: Count = 512
    """Appendix A: "The global batch size is 512"."""
    per_device_batch: Count = 4
    """Pairs in memory at once on each device; the rest of `batch` is accumulated. Ours: it decides
    memory and time, not the result. Also on a CPU few are faster, since fewer are padded to the
    longest."""

    learning_rate: Rate = 5e-7
    """Appendix A: "we use a linear warmup to gradually increase the learning rate from 0 to 5e-7",
    the best of {2.5e-5, 2.5e-6, 5e-7} for Llama-3.1."""
    min_learning_rate: Rate = 5e-8
    """Appendix A: "then employ a cosine scheduler with a minimal learning rate set to 5e-8"."""
    warmup: Share = 0.1
    """Appendix A: "For the first 10% of training steps"."""
    betas: tuple[Share, Share] = (0.9, 0.95)
    """Appendix A: "the AdamW (...) algorithm, with beta_1 = 0.9 and beta_2 = 0.95"."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.1
    """Appendix A: "We also introduce a weight decay of 0.1". As in all trainings with transformers,
    norms and biases are left out."""
    max_gradient: Rate = 1.0
    """Longest gradient; a longer one is cut to this norm. The paper is silent; transformers'
    default, which the authors' script leaves."""

    max_prompt_length: Count = 512
    """Tokens of a prompt; of a longer one the last are kept. The paper is silent; TRL 0.24's
    default for DPO, which the authors' script leaves. SFT has it too here, so that something is
    left of each answer."""
    max_length: Count = 1024
    """Tokens of prompt and answer together. The paper is silent; TRL 0.24's default, which the
    authors' script leaves (its `max_seq_length=4096` has no effect). Of a longer sequence the last
    tokens are kept by DPO, so that a long answer stands without its prompt and its beginning, and
    the first by SFT: TRL 0.24's defaults again."""
    thinking: bool = True
    """The prompts leave room for a chain of thought, as they did when the answers came.
    Section 4.1: "enable reasoning during contrastive response generation unless otherwise stated".
    The paper does not say what prompts section 4.5 trains on, whose answers have no thoughts; runs
    by `rc-removed` and `rc-un-generated` take those by which Qwen3 answers at once. Without effect
    where the chat template knows no thinking."""

    lora_rank: Count | None = None
    """Rank of the LoRA matrices on all linear layers; None trains all weights. The paper does not
    speak of LoRA: rank and scale are ours."""
    lora_scale: Rate = 2.0
    """Factor of the product of the LoRA matrices (`lora_alpha / lora_rank`)."""

    precision: Literal["float32", "bfloat16"] = "bfloat16"
    """Precision of the computation; the weights are trained in float32, under ZeRO with a float32
    copy. The paper is silent; the authors' script."""
    gradient_checkpointing: bool = True
    """Recompute activations instead of keeping them. The paper is silent; the authors' script."""
    seed: int = 42
    """Order of the pairs, and the first LoRA matrices. The paper is silent; transformers'
    default."""
    checkpoint_steps: Count = 25
    """A stopped training loses at most so many steps. Ours."""

    @model_validator(mode="before")
    @classmethod
    def _by_name(cls, given: Any) -> Any:
        """A command line names one of `RECIPES`."""
        if not isinstance(given, str):
            return given
        if given not in RECIPES:
            raise ValueError(f"{given!r} is no recipe: one of {', '.join(RECIPES)}")
        return dict(RECIPES[given])

    @model_validator(mode="after")
    def _fits(self) -> TrainRecipe:
        if self.batch % self.per_device_batch:
            raise ValueError(f"batch ({self.batch}) is no multiple of per_device_batch "
                             f"({self.per_device_batch})")
        if self.max_prompt_length >= self.max_length:
            raise ValueError(f"max_prompt_length ({self.max_prompt_length}) leaves no room for an "
                             f"answer in max_length ({self.max_length})")
        return self


_EMBEDDED = {
    "batch": 16, "learning_rate": 1e-4, "min_learning_rate": 1e-5, "precision": "float32",
    "gradient_checkpointing": False,
}
"""For a teaching model on two cores. These values are ours; for a model of 135M parameters take a
tenth of the rate or less."""

RECIPES: dict[str, TrainRecipe] = {
    "paper": TrainRecipe(),
    "embedded": TrainRecipe(**_EMBEDDED),
    "smoke": TrainRecipe(**_EMBEDDED | {"batch": 4, "per_device_batch": 2, "max_steps": 4}),
}
"""By name. `smoke` only shows that everything runs."""
