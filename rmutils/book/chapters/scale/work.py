"""A model's shape, and what follows: weights, work, memory, exchange; accelerators."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import Field
from transformers import PreTrainedConfig

from rmutils.core.config import Config
from rmutils.core.errors import UserError
from rmutils.core.files import read_text
from rmutils.core.validation import parse_json
from rmutils.longcontext.context_parallel import communication
from rmutils.models.families import FAMILIES
from rmutils.models.hub import hub_id_of


@dataclass(frozen=True)
class Shape:
    """Shape of a decoder with gated feed-forward layers and grouped queries."""

    family: str  # transformers' `model_type`, a key of `rmutils.models.families.FAMILIES`
    layers: int
    hidden: int
    heads: int
    key_heads: int
    head_size: int
    inner: int  # of the feed-forward layers
    vocabulary: int
    tied: bool = False  # whether the embedding is also the output matrix
    window: int | None = None  # tokens that layers with a sliding window see, where there are any
    full: int | None = None  # how many layers have none; None: all

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
    """The shape of a model by its name, or by the `config.json` of its folder."""
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
    """One accelerator."""

    name: str
    flops: float  # operations per second in bfloat16, dense
    memory: float  # bytes
    bandwidth: float  # bytes per second from and to its memory
    link: float  # bytes per second that it can send to its neighbours in the node


MACHINES = {"h100": Machine("NVIDIA H100 SXM", 989e12, 80e9, 3.35e12, 450e9),
            "h200": Machine("NVIDIA H200 SXM", 989e12, 141e9, 4.8e12, 450e9)}
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


def seen(new: int, cached: int = 0, window: int | None = None) -> int:
    """Pairs of a token and one that it sees, itself or before it."""
    if window is None or cached + new <= window:
        return new * cached + new * (new + 1) // 2
    growing = max(0, window - cached)  # so many see less than a whole window, or just one
    return growing * cached + growing * (growing + 1) // 2 + (new - growing) * window


def attention(shape: Shape, new: int, cached: int = 0) -> float:
    """Operations of queries times keys, and of weights times values, in all layers. Each pair that
    is seen costs `4 heads head_size`. That holds for kernels which skip what the causal mask and
    the window hide; without this, prefill costs about twice as much."""
    each = 4 * shape.heads * shape.head_size
    sliding = shape.layers - shape.full_layers
    return float(each * (shape.full_layers * seen(new, cached)
                         + sliding * seen(new, cached, shape.window)))


def forward(shape: Shape, new: int, cached: int = 0, logits: int | None = None) -> float:
    """Operations of a forward pass: twice the weights of each matrix per token, and attention."""
    matrices = 2 * new * shape.layers * shape.layer_weights
    output = 2 * (new if logits is None else logits) * shape.output_weights
    return matrices + output + attention(shape, new, cached)


def training(shape: Shape, tokens: int, recompute: bool = True) -> float:
    """Operations of a sequence in training: forward, backward at twice its cost, and, with gradient
    checkpointing, the layers once more."""
    again = forward(shape, tokens, logits=0) if recompute else 0.0
    return 3 * forward(shape, tokens) + again


HALF, SINGLE = 2, 4  # bytes of a number in bfloat16 and in float32
Sharing = Literal["zero1", "zero2", "fsdp", "alone"]


def weights(shape: Shape, each: int = HALF) -> int:
    """Bytes of all weights."""
    return each * shape.parameters


def cache(shape: Shape, tokens: int, each: int = HALF) -> int:
    """Bytes of the keys and values of a text."""
    sliding = shape.layers - shape.full_layers
    kept = min(tokens, shape.window - 1) if shape.window else tokens
    return (2 * shape.key_heads * shape.head_size * each
            * (shape.full_layers * tokens + sliding * kept))


def states(shape: Shape, sharing: Sharing, gpus: int) -> float:
    """Bytes of weights, gradients and AdamW's states on each GPU. Mixed precision has 2 bytes per
    weight for the weights that compute, 2 for their gradients, and 12 for a float32 copy and two
    moments (ZeRO, Rajbhandari et al., 2020, section 3.1). ZeRO-1 shares the 12 among the GPUs,
    ZeRO-2 the gradients, too. FSDP as it is set here, and a single process, train in float32, 16
    bytes per weight; FSDP shares all of them and gathers one layer at a time in bfloat16."""
    count = shape.parameters
    if sharing == "fsdp":
        return 16 * count / gpus + HALF * max(shape.layer_weights, shape.output_weights)
    if sharing == "alone":
        return 16.0 * count
    return 2 * count + (2 * count if sharing == "zero1" else 2 * count / gpus) + 12 * count / gpus


def activations(shape: Shape, tokens: int, *, recompute: bool = True, each: int = HALF) -> float:
    """Bytes that a training keeps of one batch for its backward pass, without the logits."""
    layer = (4 * shape.hidden + 2 * shape.head_size * (shape.heads + shape.key_heads)
             + 3 * shape.inner)
    kept = shape.layers * shape.hidden + layer if recompute else shape.layers * layer
    return float(each * tokens * kept)


def logits(shape: Shape, tokens: int) -> float:
    """Bytes of the logits of a batch in training: bfloat16, float32 for the loss, its gradient."""
    return float((HALF + SINGLE + SINGLE) * shape.vocabulary * tokens)


def stored_attention(shape: Shape, tokens: int, how: Literal["all", "row", "place"]) -> float:
    """Bytes that a detection keeps of the attention of all heads, in float32."""
    heads = shape.layers * shape.heads
    return float(heads * {"all": SINGLE * tokens * tokens, "row": SINGLE * tokens, "place": 8}[how])


def tensor_parallel(shape: Shape, tokens: int, gpus: int) -> float:
    """Bytes sent in a forward pass whose layers are shared: two all-reduces of the hidden states
    per layer, after attention and after the feed-forward layer (Megatron, Shoeybi et al., 2019)."""
    whole = tokens * shape.hidden * HALF
    return 2 * shape.layers * whole * 2 * (gpus - 1) / gpus


def context_parallel(shape: Shape, tokens: int, gpus: int) -> float:
    """Bytes sent for a sliced text: keys and values are gathered in each layer."""
    return float(communication(tokens, gpus, layers=shape.layers, key_heads=shape.key_heads,
                               head_size=shape.head_size, bytes_each=HALF))


def step(shape: Shape, machine: Machine, tokens: int, kept: float = 1,
         filtered: int = 0) -> pd.Series:
    """Return the bounds of one step for a single text, of which the last layers see a part."""
    part, first = round(kept * tokens), shape.layers - filtered
    cached = first * 2 * shape.key_heads * shape.head_size * tokens
    hidden = shape.hidden * tokens if filtered else 0
    read = (shape.layers * shape.layer_weights + shape.output_weights + cached
            + (shape.hidden * part if filtered else 0))
    products = 2 * shape.heads * shape.head_size
    work = (first * (shape.layer_weights + products * tokens)
            + filtered * (shape.layer_weights * part + products * part**2 / 2)
            + shape.output_weights)
    memory, arithmetic = HALF * read / machine.bandwidth, 2 * work / machine.flops
    return pd.Series({"memory": memory, "arithmetic": arithmetic,
                      "bound": max(memory, arithmetic), "held": HALF * (cached + hidden)})


def roofline(lengths: Iterable[int], shares: Iterable[float]) -> pd.DataFrame:
    """Llama 3.1 8B on an H100: `step` at lengths and shares of tokens, beside the plain step."""
    rows, model = [], (SHAPES["llama-3.1-8b-instruct"], MACHINES["h100"])
    for tokens in lengths:
        plain = step(*model, tokens)
        for kept in shares:
            one = step(*model, tokens, kept, filtered=16)
            rows.append({"tokens": tokens, "kept": kept, **one,
                         "times": one["bound"] / plain["bound"],
                         "held_share": one["held"] / plain["held"]})
    return pd.DataFrame(rows)
