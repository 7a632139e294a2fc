"""Four real models, from 135 million to 1.5 billion parameters, by `data/plans/real_models.yml`."""

from collections.abc import Callable, Collection, Iterable
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


def detection(plan: Plan) -> DetectConfig:
    """Return the grid by which heads are chosen."""
    p = plan.content
    return DetectConfig(
        lengths=tuple(p["detection"]["lengths"]), depths=tuple(p["detection"]["depths"]),
        needles=p["needles"]["choosing"], needle_set=LITERAL,
        max_new_tokens=p["detection"]["max_new_tokens"])


def long_detection(plan: Plan, model: str) -> DetectConfig | None:
    """Return the grid of the long part; None for a model that has none."""
    length = plan.content["detection"]["long"].get(model)
    return length and detection(plan).changed({"lengths": (length,), "needles": 4})


def kind_detections(plan: Plan) -> dict[str, DetectConfig]:
    """Return the grid of each needle set, by its name."""
    p = plan.content
    grid = detection(plan).changed({"lengths": (p["masking"]["length"]["default"],)})
    sets = {name: grid.changed({"needle_set": name}) for name in p["needles"]["sets"]}
    own = p["needles"]["japanese"]
    return sets | {JAPANESE: grid.changed({
        "corpus": "japanese", "needle_set": own["set"], "needles": own["choosing"],
        "lengths": (JAPANESE_LENGTH,)})}


def masking(plan: Plan, model: str) -> MaskedNeedlesConfig:
    """Return the maskings of the plan's second part."""
    p = plan.content
    m, controls = p["masking"], p["masking"]["controls"]
    return MaskedNeedlesConfig(
        detect=detection(plan), counts=tuple(n for n in m["counts"] if isinstance(n, int)),
        shares=tuple(float(n.removesuffix("%")) / 100 for n in m["counts"]
                     if isinstance(n, str) and n.endswith("%")),
        all_at_tau=AT_TAU in m["counts"], tau=p["tau"], curve=tuple(m["curve"]),
        same_layers=controls["same layers"]["draws"], anywhere=controls["anywhere"]["draws"],
        seed=int(controls["same layers"]["seeds"].split()[0]),
        every_position=None if model == "qwen2.5-coder-1.5b" else 3,
        asked=_asked(plan, model), sets=(LITERAL,), skipped=p["needles"]["choosing"],
        needles=p["needles"]["asked"])


def kinds(plan: Plan, model: str) -> dict[str, MaskedNeedlesConfig]:
    """Return the maskings of the third part: of the sets in English, and of those in Japanese."""
    p = plan.content
    english = masking(plan, model).changed({
        "detect": kind_detections(plan)[LITERAL], "counts": (), "shares": (0.05,),
        "all_at_tau": False, "curve": (), "anywhere": 0, "every_position": None,
        "asked": _asked(plan), "sets": tuple(p["needles"]["sets"])})
    own = p["needles"]["japanese"]
    return {"english": english, JAPANESE: english.changed({
        "asked": _asked(plan).changed({"corpus": "japanese", "lengths": (JAPANESE_LENGTH,)}),
        "sets": (own["set"],), "skipped": own["choosing"], "needles": own["asked"]})}


def which_heads(plan: Plan, model: str) -> MaskedNeedlesConfig:
    """Return the maskings of the fourth part."""
    return masking(plan, model).changed({
        "scores": tuple(plan.content["detection"]["scores"]), "counts": (), "shares": (0.05,),
        "all_at_tau": False, "curve": (), "anywhere": 0, "every_position": None,
        "asked": _asked(plan)})


def _asked(plan: Plan, model: str | None = None) -> DetectConfig:
    m = plan.content["masking"]
    lengths = m["length"].get(model, m["length"]["default"])
    return DetectConfig(lengths=tuple(lengths) if isinstance(lengths, list) else (lengths,),
                        depths=(m["depth"],), max_new_tokens=m["max_new_tokens"])


def _command(item: str, model: str) -> str:
    return command_line("real-models", item, model)


def detections_stored(
    model: str, configs: Iterable[DetectConfig], *, compute: Compute = "auto",
) -> list[tuple[HeadScores, Artifact]]:
    """Look detections up, or run them; all kinds of score of the plan come from one run."""
    return [detect_stored(model, config, compute=compute) for config in configs]


def make_detection(model: str, compute: Compute = "auto") -> list[Artifact]:
    """Make the first part: all kinds of score, in the grid and in the long part."""
    plan = real_models()
    configs = [detection(plan), long_detection(plan, model)]
    return [artifact for _, artifact in detections_stored(
        model, [one.changed({"score": "attention"}) for one in configs if one], compute=compute)]


def make_masking(model: str, compute: Compute = "auto") -> list[Artifact]:
    """Make the second part."""
    _make_scores(model, compute)
    return [masking_stored(model, compute=compute)[1]]


def _make_scores(model: str, compute: Compute) -> None:
    """Make what other parts choose heads by, if it is missing: all kinds of score in one run."""
    detect_stored(model, detection(real_models()).changed({"score": "attention"}),
                  compute="never" if compute == "never" else "auto")


def masking_stored(model: str, compute: Compute = "auto") -> tuple[MaskedNeedles, Artifact]:
    """Look the second part up, or make it."""
    plan = real_models()
    return masked_needles_stored(model, masking(plan, model), plan, label="masking",
                                 command=_command("masking", model), compute=compute)


def kinds_stored(
    model: str, compute: Compute = "auto", languages: Collection[str] = ("english", JAPANESE)
) -> dict[str, tuple[MaskedNeedles, Artifact]]:
    """Look the maskings of the third part up, or make them."""
    plan = real_models()
    return {name: masked_needles_stored(model, config, plan, label=f"kinds-{name}",
                                        command=_command("kinds", model), compute=compute)
            for name, config in kinds(plan, model).items() if name in languages}


def make_kinds(model: str, compute: Compute = "auto") -> list[Artifact]:
    """Make the third part."""
    found = detections_stored(model, kind_detections(real_models()).values(), compute=compute)
    return [artifact for _, artifact in (*found, *kinds_stored(model, compute).values())]


def which_heads_stored(model: str, compute: Compute = "auto") -> tuple[MaskedNeedles, Artifact]:
    """Look the fourth part up, or make it."""
    plan = real_models()
    return masked_needles_stored(model, which_heads(plan, model), plan, label="which-heads",
                                 command=_command("which-heads", model), compute=compute)


def make_which_heads(model: str, compute: Compute = "auto") -> list[Artifact]:
    """Make the fourth part."""
    _make_scores(model, compute)
    return [which_heads_stored(model, compute)[1]]


ITEMS: dict[str, Callable[..., list[Artifact]]] = {
    "detection": make_detection, "masking": make_masking, "kinds": make_kinds,
    "which-heads": make_which_heads}


def make(item: str, model: str, compute: Compute = "auto") -> list[Artifact]:
    """Make a part of the plan for a model, or look it up."""
    models: list[Any] = real_models().content["models"]
    if item not in ITEMS:
        raise UserError(unknown(f"part {item!r} of the plan", ITEMS))
    if model not in models:
        raise UserError(unknown(f"model {model!r} in the plan", models))
    return ITEMS[item](model, compute)
