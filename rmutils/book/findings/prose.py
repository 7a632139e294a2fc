"""Hand-written prose with findings in it.

A sentence is true of the stored results. Where a run with other parameters gives another verdict,
the findings' own standard sentences take its place.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from IPython.display import Markdown

from rmutils.book.findings.registry import SHOWN, Finding, Verdict
from rmutils.core.errors import UserError


class Said(Markdown):
    """Prose with findings in it; its output names them."""

    def __init__(self, text: str, findings: Collection[str]):
        super().__init__(text)
        self.findings = [*findings]

    def _repr_markdown_(self) -> tuple[str, dict[str, object]]:
        return self.data, {"rmutils": {"findings": self.findings}}


OWN_RUN = "*In this run:*"
"""Marks standard sentences: the reader's parameters gave another verdict."""


def say(
    text: str, *, expect: Verdict | Mapping[str, Verdict] = SHOWN, **inserted: object
) -> Said:
    """Show hand-written prose with findings in it.

    Parameters
    ----------
    text : str
        Markdown with the names of what is inserted: `{loss}`, `{loss:ci}`.
    expect : str or mapping
        The verdict that the prose takes for granted, of all findings or of each by name. If one
        has another verdict, the standard sentences of all stand instead.
    **inserted
        Findings, and words or counts.
    """
    findings = {key: one for key, one in inserted.items() if isinstance(one, Finding)}
    names = [one.name for one in findings.values()]
    if missing := {one.missing for one in findings.values() if one.missing}:
        return Said(" ".join(["Not computed yet.", *sorted(missing)]), names)
    expected = (expect if isinstance(expect, Mapping) else dict.fromkeys(findings, expect))
    if unknown := set(expected) - set(findings):
        raise UserError(f"no finding is inserted as {', '.join(sorted(unknown))}")
    judged = {key: one for key, one in findings.items() if one.verdict}
    if any(one.verdict != expected.get(key, one.verdict) for key, one in judged.items()):
        told = dict.fromkeys(one.sentence for one in judged.values())
        return Said(" ".join([OWN_RUN, *told]), names)
    return Said(text.format(**inserted), names)
