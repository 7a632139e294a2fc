"""A table of the results that are stored."""

from __future__ import annotations

import pandas as pd

from rmutils.core.errors import UserError, did_you_mean
from rmutils.core.results import stored
from rmutils.core.validation import checked

COLUMNS = ["name", "stage", "model", "label", "key", "shipped", "created", "bytes", "command",
           "folder"]


@checked
def stored_results(stage: str | None = None, model: str | None = None) -> pd.DataFrame:
    """List stored results: the user's own, then those that ship with the project.

    Parameters
    ----------
    stage : str, optional
        Those of this kind: `detect`, `evaluation`, `retmask`, `train`, ...
    model : str, optional
        Those about this model, as their folders call it.

    Returns
    -------
    DataFrame
        `name` (stage/model/label-hash), `stage`, `model`, `label` (how it was made), `key` (stage
        and 16 digits), `shipped`, `created`, `bytes`, `command` (which makes it again), `folder`.
        Damaged results are left out; `rmutils artifacts verify` tells them.

    Raises
    ------
    UserError
        There is no result of this stage, or about this model.

    Examples
    --------
    >>> from rmutils import HeadScores, stored_results
    >>> found = stored_results(stage="detect", model="tiny-qwen3")
    >>> set(found[found["shipped"]]["label"])
    {'256-512'}
    >>> HeadScores.load(found["name"].iloc[-1]).shape
    (4, 16)
    """
    found = [*stored()]
    for what, asked, there in (("stage", stage, {a.stage for a in found}),
                               ("model", model, {a.model for a in found})):
        if asked is not None and asked not in there:
            raise UserError(f"there is no stored result of the {what} {asked!r}."
                            f"{did_you_mean(asked, there)} There are: {', '.join(sorted(there))}.")
    return pd.DataFrame([
        {"name": a.name, "stage": a.stage, "model": a.model, "label": a.label, "key": a.key,
         "shipped": a.shipped, "created": a.created, "bytes": a.size,
         "command": a.manifest["command"], "folder": a.folder}
        for a in found if stage in (None, a.stage) and model in (None, a.model)
        and not a.problems()], columns=COLUMNS)
