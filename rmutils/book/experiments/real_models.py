"""Four real models, from 135 million to 1.5 billion parameters, by `data/plans/real_models.yml`."""

from collections.abc import Callable, Collection, Iterable
from functools import partial
from typing import Any

from rmutils.book.experiments.masked_needles import (
    MaskedNeedles,
    MaskedNeedlesConfig,
    masked_needles_stored,
)
from rmutils.core.config import command_line
from rmutils.core.errors import UserError, unknown
from rmutils.core.experiment import Plan, load_plan
from rmutils.core.results import Artifact, Compute
from rmutils.heads import DetectConfig, HeadScores
from rmutils.heads.detection import detect_stored

PLAN = "real_models"
LITERAL = "facts-literal"
AT_TAU = "all at or above tau"
JAPANESE = "japanese"
JAPANESE_LENGTH = 512
"""The haystack in Japanese is no longer; the plan has no length for these needles."""


def real_models() -> Plan:
    """Return the plan."""
    return load_plan(PLAN)


def detection() -> DetectConfig:
    """Return the grid by which heads are chosen."""
    p = real_models().content
    return DetectConfig(
        lengths=tuple(p["detection"]["lengths"]), depths=tuple(p["detection"]["depths"]),
        needles=p["needles"]["choosing"], needle_set=LITERAL,
        max_new_tokens=p["detection"]["max_new_tokens"])


def long_detection(model: str) -> DetectConfig | None:
    """Return the grid of the long part; None for a model that has none."""
    length = real_models().content["detection"]["long"].get(model)
    return length and detection().changed({"lengths": (length,), "needles": 4})


def kind_detections() -> dict[str, DetectConfig]:
    """Return the grid of each needle set, by its name."""
    p = real_models().content
    grid = detection().changed({"lengths": (p["masking"]["length"]["default"],)})
    sets = {name: grid.changed({"needle_set": name}) for name in p["needles"]["sets"]}
    own = p["needles"]["japanese"]
    return sets | {JAPANESE: grid.changed({
        "corpus": "japanese", "needle_set": own["set"], "needles": own["choosing"],
        "lengths": (JAPANESE_LENGTH,)})}


def masking(model: str) -> MaskedNeedlesConfig:
    """Return the maskings of the plan's second part."""
    p = real_models().content
    m, controls = p["masking"], p["masking"]["controls"]
    return MaskedNeedlesConfig(
        detect=detection(), counts=tuple(n for n in m["counts"] if isinstance(n, int)),
        shares=tuple(float(n.removesuffix("%")) / 100 for n in m["counts"]
                     if isinstance(n, str) and n.endswith("%")),
        all_at_tau=AT_TAU in m["counts"], tau=p["tau"], curve=tuple(m["curve"]),
        same_layers=controls["same layers"]["draws"], anywhere=controls["anywhere"]["draws"],
        seed=int(controls["same layers"]["seeds"].split()[0]),
        every_position=None if model == "qwen2.5-coder-1.5b" else 3,
        asked=_asked(model), sets=(LITERAL,), skipped=p["needles"]["choosing"],
        needles=p["needles"]["asked"])


def _at_a_share(model: str) -> MaskedNeedlesConfig:
    """The maskings of the other parts: 5 % of the heads, and others of their layers."""
    return masking(model).changed({
        "counts": (), "shares": (0.05,), "all_at_tau": False, "curve": (), "anywhere": 0,
        "every_position": None, "asked": _asked()})


def kinds(model: str) -> dict[str, MaskedNeedlesConfig]:
    """Return the maskings of the third part: of the sets in English, and of those in Japanese."""
    needles = real_models().content["needles"]
    own, english = needles["japanese"], _at_a_share(model).changed({
        "detect": kind_detections()[LITERAL], "sets": tuple(needles["sets"])})
    return {"english": english, JAPANESE: english.changed({
        "asked": _asked().changed({"corpus": "japanese", "lengths": (JAPANESE_LENGTH,)}),
        "sets": (own["set"],), "skipped": own["choosing"], "needles": own["asked"]})}


def which_heads(model: str) -> MaskedNeedlesConfig:
    """Return the maskings of the fourth part."""
    return _at_a_share(model).changed(
        {"scores": tuple(real_models().content["detection"]["scores"])})


def _asked(model: str | None = None) -> DetectConfig:
    m = real_models().content["masking"]
    lengths = m["length"].get(model, m["length"]["default"])
    return DetectConfig(lengths=tuple(lengths) if isinstance(lengths, list) else (lengths,),
                        depths=(m["depth"],), max_new_tokens=m["max_new_tokens"])


def detections_stored(model: str, configs: Iterable[DetectConfig], *,
                      compute: Compute = "auto") -> list[tuple[HeadScores, Artifact]]:
    """Look detections up, or run them; all kinds of score of the plan come from one run."""
    return [detect_stored(model, config, compute=compute) for config in configs]


def _maskings(item: str, model: str, config: MaskedNeedlesConfig, compute: Compute,
              label: str = "") -> tuple[MaskedNeedles, Artifact]:
    return masked_needles_stored(model, config, real_models(), label=label or item, compute=compute,
                                 command=command_line("real-models", item, model))


def masking_stored(model: str, compute: Compute = "auto") -> tuple[MaskedNeedles, Artifact]:
    """Look the second part up, or make it."""
    return _maskings("masking", model, masking(model), compute)


def kinds_stored(
    model: str, compute: Compute = "auto", languages: Collection[str] = ("english", JAPANESE)
) -> dict[str, tuple[MaskedNeedles, Artifact]]:
    """Look the maskings of the third part up, or make them."""
    return {name: _maskings("kinds", model, config, compute, f"kinds-{name}")
            for name, config in kinds(model).items() if name in languages}


def which_heads_stored(model: str, compute: Compute = "auto") -> tuple[MaskedNeedles, Artifact]:
    """Look the fourth part up, or make it."""
    return _maskings("which-heads", model, which_heads(model), compute)


def _make_detection(model: str, compute: Compute) -> list[Artifact]:
    """All kinds of score, in the grid and in the long part."""
    configs = [detection(), long_detection(model)]
    return [artifact for _, artifact in detections_stored(
        model, [one.changed({"score": "attention"}) for one in configs if one], compute=compute)]


def _make_kinds(model: str, compute: Compute) -> list[Artifact]:
    found = detections_stored(model, kind_detections().values(), compute=compute)
    return [artifact for _, artifact in (*found, *kinds_stored(model, compute).values())]


def _make_maskings(look: Callable[[str, Compute], tuple[MaskedNeedles, Artifact]], model: str,
                   compute: Compute) -> list[Artifact]:
    """Make what heads are chosen by, if it is missing: all kinds of score in one run."""
    detect_stored(model, detection().changed({"score": "attention"}),
                  compute="never" if compute == "never" else "auto")
    return [look(model, compute)[1]]


ITEMS: dict[str, Callable[[str, Compute], list[Artifact]]] = {
    "detection": _make_detection, "masking": partial(_make_maskings, masking_stored),
    "kinds": _make_kinds, "which-heads": partial(_make_maskings, which_heads_stored)}


def make(item: str, model: str, compute: Compute = "auto") -> list[Artifact]:
    """Make a part of the plan for a model, or look it up."""
    models: list[Any] = real_models().content["models"]
    if item not in ITEMS:
        raise UserError(unknown(f"part {item!r} of the plan", ITEMS))
    if model not in models:
        raise UserError(unknown(f"model {model!r} in the plan", models))
    return ITEMS[item](model, compute)
