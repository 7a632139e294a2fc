"""Runs of the method that are stored, and the commands for those that are not."""

from __future__ import annotations

from collections.abc import Iterable

from rmutils.errors import NotStored
from rmutils.training.retmask import RetMaskConfig, RetMaskRun, command_of, run_retmask


def stored_runs(
    model: str, configs: Iterable[RetMaskConfig]
) -> tuple[list[RetMaskRun], list[str]]:
    """Read what is stored, and compute nothing.

    Parameters
    ----------
    model : str
        Name, folder or hub id of the model that was trained.
    configs : iterable of RetMaskConfig
        Named before looking: seeds, say. What is stored besides them is not used.

    Returns
    -------
    list of RetMaskRun, list of str
        The stored runs, and a command line for each one that is missing.

    Raises
    ------
    UserError
        A model is not known, or a stored result is damaged.
    """
    found, missing = [], []
    for config in configs:
        try:
            found.append(run_retmask(model, config, compute="never"))
        except NotStored:
            missing.append(command_of(model, config))
    return found, missing
