"""The shape of a model, from which its number of weights, its work and its memory follow; and
accelerators by their makers' data sheets, with the share of these rates that is assumed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field
from transformers import PreTrainedConfig

from rmutils.core.config import Config
from rmutils.core.errors import UserError
from rmutils.core.files import read_text
from rmutils.core.validation import parse_json
from rmutils.models.families import FAMILIES
from rmutils.models.fetch import hub_id_of


@dataclass(frozen=True)
class Shape:
    """Shape of a decoder with gated feed-forward layers and grouped queries.

    Attributes
    ----------
    family : str
        transformers' `model_type`, a key of `rmutils.models.families.FAMILIES`.
    layers, hidden, heads, key_heads, head_size, inner, vocabulary : int
        `inner`: of the feed-forward layers.
    tied : bool
        Whether the embedding is also the output matrix.
    window : int, optional
        Tokens that layers with a sliding window see, where there are any.
    full : int, optional
        How many layers have none; None: all.
    """

    family: str
    layers: int
    hidden: int
    heads: int
    key_heads: int
    head_size: int
    inner: int
    vocabulary: int
    tied: bool = False
    window: int | None = None
    full: int | None = None

    @property
    def full_layers(self) -> int:
        """Layers that see all that came before."""
        return self.layers if self.window is None or self.full is None else self.full

    @property
    def attention_weights(self) -> int:
        """In the four matrices of a layer's attention."""
        return 2 * self.hidden * self.head_size * (self.heads + self.key_heads)

    @property
    def layer_weights(self) -> int:
        """In the matrices of a layer: attention and the three of the feed-forward layer."""
        return self.attention_weights + 3 * self.hidden * self.inner

    @property
    def output_weights(self) -> int:
        """In the output matrix."""
        return self.vocabulary * self.hidden

    @property
    def parameters(self) -> int:
        """All weights."""
        family = FAMILIES[self.family]
        sizes = {"": 0, "head": 2, "layer": self.heads + self.key_heads}[family.query_norm]
        norms = family.norms * self.hidden + sizes * self.head_size
        return (self.layers * (self.layer_weights + norms) + self.hidden
                + (1 if self.tied else 2) * self.output_weights)

    @classmethod
    def of(cls, config: PreTrainedConfig) -> Shape:
        """That of a configuration of transformers."""
        return cls._read(config.to_dict() | {"head_dim": getattr(config, "head_dim", None)})

    @classmethod
    def _read(cls, told: dict[str, Any]) -> Shape:
        kinds = told.get("layer_types") or []
        sliding = "sliding_attention" in kinds
        return cls(
            told["model_type"], told["num_hidden_layers"], told["hidden_size"],
            told["num_attention_heads"],
            told.get("num_key_value_heads") or told["num_attention_heads"],
            told.get("head_dim") or told["hidden_size"] // told["num_attention_heads"],
            told["intermediate_size"], told["vocab_size"],
            bool(told.get("tie_word_embeddings")), told["sliding_window"] if sliding else None,
            kinds.count("full_attention") if sliding else None)


SHAPES = {
    "llama-3.1-8b-instruct": Shape("llama", 32, 4096, 32, 8, 128, 14336, 128256),
    "qwen3-8b": Shape("qwen3", 36, 4096, 32, 8, 128, 12288, 151936),
    "olmo-3-7b-instruct": Shape("olmo3", 32, 4096, 32, 32, 128, 11008, 100278, window=4096,
                                full=8),
    "olmo-3-7b-think": Shape("olmo3", 32, 4096, 32, 32, 128, 11008, 100278, window=4096, full=8),
    "meta-llama/Llama-3.2-3B-Instruct": Shape("llama", 28, 3072, 24, 8, 128, 8192, 128256, True),
    "Qwen/Qwen3-0.6B": Shape("qwen3", 28, 1024, 16, 8, 128, 3072, 151936, True),
    "google/gemma-3-27b-it": Shape("gemma3_text", 62, 5376, 32, 16, 128, 21504, 262208, True,
                                   1024, 10),
    "llama-3.1-70b": Shape("llama", 80, 8192, 64, 8, 128, 28672, 128256),
    "llama-3.1-405b": Shape("llama", 126, 16384, 128, 8, 128, 53248, 128256),
}
"""By name here or on the hub: the models of the paper, its smaller models, its judge (the text
part), and two larger Llamas. Read from the `config.json` that each is published with."""


def shape_of(name: str) -> Shape:
    """The shape of a model by its name, or by the `config.json` of its folder.

    Raises
    ------
    UserError
        Neither tells.
    """
    if name in SHAPES:
        return SHAPES[name]
    file = Path(name) / "config.json"
    if file.is_file():
        told = parse_json(read_text(file))
        if told.get("model_type") in FAMILIES:
            return Shape._read(told)
    where = "on the hub" if hub_id_of(name) else "in its folder"
    raise UserError(f"the shape of {name} is not known. Known: {', '.join(SHAPES)}; or a folder "
                    f"with the config.json that the model has {where}, of a model of the families "
                    f"{', '.join(FAMILIES)}.")


Share = Annotated[float, Field(gt=0, le=1)]


@dataclass(frozen=True)
class Machine:
    """One accelerator.

    Attributes
    ----------
    flops : float
        Operations per second in bfloat16, dense.
    memory : float
        Bytes.
    bandwidth : float
        Bytes per second from and to its memory.
    link : float
        Bytes per second that it can send to its neighbours in the node.
    """

    name: str
    flops: float
    memory: float
    bandwidth: float
    link: float


MACHINES = {
    "h100": Machine("NVIDIA H100 SXM", 989e12, 80e9, 3.35e12, 450e9),
    "h200": Machine("NVIDIA H200 SXM", 989e12, 141e9, 4.8e12, 450e9),
}
"""NVIDIA's data sheets print 1,979 TFLOPS in bfloat16 with sparsity, of which dense products have
half, and 900 GB/s of NVLink, of which half goes out. Whether the paper's H100s are of this form it
does not say."""


class Assumptions(Config):
    """Assumptions that cannot be derived. All are ours."""

    compute: Share = 0.4
    """Share of the peak in prefill and training. Llama 3 was trained at 38 to 43 % of it on H100s
    (Grattafiori et al., 2024, Table 4)."""
    bandwidth: Share = 0.6
    """Share of the memory's peak where a token at a time is written."""
    link: Share = 0.7
    """Share of the link's peak."""
    together: Annotated[int, Field(ge=1)] = 256
    """Texts that vLLM has in work at once, if memory allows."""
    reserve: Share = 0.9
    """Share of an accelerator's memory that vLLM takes: its own default."""
    prompt: Annotated[int, Field(ge=1)] = 1500
    """Tokens of a question of Table 6 with its examples."""
    answer: Annotated[int, Field(ge=1)] = 500
    """Tokens of its answer by a model that does not think; others take as many as their mean
    output in Table 12."""
