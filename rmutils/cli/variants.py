"""`rmutils variants`: a model with its attention changed, and what that gives, saves and moves."""

from __future__ import annotations

import json
from typing import Annotated, Literal

import typer

from rmutils.cli import options
from rmutils.errors import UserError

Measurement = Literal["answers", "heads", "costs", "layers", "likeness", "recall"]


def variants(
    measurement: Annotated[Measurement, typer.Argument(
        help="answers: needles, documents and short texts under one variant. heads: retrieval "
             "heads under several. Of Share- and Select-Attention, costs: time and multiply-adds; "
             "layers: one layer after the other; likeness: how alike heads are; recall: needles "
             "among selected tokens.")],
    model: Annotated[str, typer.Argument(
        help="Registry name, folder, .gguf file, hub id; for answers also a stored training "
             "(train-...).")],
    configuration: Annotated[str, typer.Argument(
        help="JSON of what differs from the defaults of the measurement.")] = "{}",
    compute: options.Compute = "auto",
    as_json: options.Json = False,
) -> None:
    """Measure a model whose attention is changed: Ms-PoE, Share- and Select-Attention, GemFilter,
    extended positions.

    A run that was stopped goes on when the same command is given again.

    Example: rmutils variants answers tiny-llama '{"variant": {"kind": "ms-poe", "s_max": 2}}'

    Example: rmutils variants recall tiny-llama '{"p": [0.9, 0.5]}'
    """
    from pydantic import ValidationError

    from rmutils.evaluation.savings.store import MEASUREMENTS, saved
    from rmutils.evaluation.variants.heads import HeadsConfig, heads_stored
    from rmutils.evaluation.variants.store import VariantConfig, measure_stored

    stored = {"answers": (VariantConfig, measure_stored), "heads": (HeadsConfig, heads_stored)}
    stored |= {name: (one.config, saved) for name, one in MEASUREMENTS.items()}
    kind, measure = stored[measurement]
    try:
        config = kind.model_validate_json(configuration)
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'together'}: {e['msg']}"
                          for e in error.errors())
        raise UserError(f"the configuration of {measurement} does not fit: {wrong}.") from error
    _, artifact = measure(model, config, compute=compute)
    if as_json:
        print(json.dumps({"model": model, "measurement": measurement, "artifact": artifact.name,
                          "folder": str(artifact.folder), "facts": artifact.manifest["facts"]},
                         indent=1))
        return
    rows = ", ".join(f"{name}: {count}" for name, count in artifact.manifest["facts"].items())
    print(f"{model}, {measurement}. Rows of each table: {rows}.\nStored as {artifact.folder}")
