"""Findings of the companion studies, against counts by hand."""

import pandas as pd
import pytest

from rmutils.book import findings as registry  # noqa: F401
from rmutils.book.chapters.ms_poe.experiment import positions
from rmutils.book.chapters.retrieval_heads_under_change import findings as heads_under_change  # noqa: F401
from rmutils.book.chapters.select_attention import findings as select_attention
from rmutils.book.chapters.share_attention.savings_curves import planned_sharing
from rmutils.book.claims.companion_claims import companion_claims
from rmutils.book.findings import finding
from rmutils.core.experiment import load_plan
from rmutils.core.results import read_tables, stored


def test_needles_that_a_model_loses_behind_a_filter():
    """Counted from the cases of the stored measurement with most needles."""
    artifact, = (one for one in stored("variant-heads") if one.model == "tiny-qwen3"
                 and one.manifest["config"]["needles"]["needles"] == 20)
    needles = read_tables(artifact.folder)["needles"].query("subject == 'whole'")
    right = needles.groupby("variant")["correct"].mean()
    lost = finding("needles-lost-selecting", "tiny-qwen3")
    assert lost.value == pytest.approx(100 * (right["plain"] - right["Select 0.99"]))
    assert lost.artifacts == (artifact.name,) and lost.clusters == 20


@pytest.mark.parametrize("prompt, verdict", [
    (lambda p, i: 0.0, "shown"), (lambda p, i: 1.0, "opposite shown"),
    (lambda p, i: float(p > 0.95 and i % 2), "undecided")])
def test_choosing_once_is_compared_at_every_p_of_the_rule(monkeypatch, prompt, verdict):
    """One p at which it stays open is enough; p beyond the rule's are not asked."""
    table = pd.DataFrame([{"p": p, "question": i, "prompt": prompt(p, i),
                           "next": 0.5 if p < 0.97 else i % 2 * 0.9 if p < 0.99 else 0.0}
                          for p in (0.91, 0.97, 0.99) for i in range(6)])
    monkeypatch.setattr(select_attention, "_recall", lambda: (table, "recall/m/1"))
    monkeypatch.setattr(registry, "_KNOWN", {})
    assert finding("steps-beyond-prompt").verdict == verdict


def test_claims_of_the_companion_texts_are_answered_from_what_ships():
    table = companion_claims()
    assert set(table["page"]) == {"Ms-PoE", "Share-Attention", "Select-Attention",
                                  "Olmo 3's recipe"}
    assert table.query("page != 'Ms-PoE'")["place"].str.contains("Section").all()
    assert not table["here"].str.contains("Not stored|Not computed|In this run|[*`]").any()


def test_a_gain_in_the_middle_is_counted_from_its_needles():
    """The reversed order in tiny-qwen3, by hand."""
    tables, _ = positions()
    found = tables["needles"].query(
        "model == 'tiny-qwen3' and cause == '' and 0 < place < 1").groupby("variant")["correct"]
    share = 100 * found.mean()
    gain = finding("middle-gain", "tiny-qwen3", "1.5 to 1")
    assert gain.value == pytest.approx(share["1.5 to 1"] - share["plain"]) and gain.clusters == 20
    lead = finding("many-lead", "tiny-qwen3", "1.5 to 1")
    assert lead.value == pytest.approx(share["1 to 1.5"] - share["1.5 to 1"])


def test_one_layer_costs_what_its_cases_say():
    """Means by half of the layers of smollm2-135m, and without layer 0, by hand."""
    artifact, = (one for one in stored("layers") if one.model == "smollm2-135m"
                 and one.manifest["config"]["variant"]["kind"] == "share")
    right = read_tables(artifact.folder)["needles"].groupby("variant")["correct"].mean()
    own = right.drop("plain") - right["plain"]
    early = own[[name for name in own.index if int(name) < 15]]
    assert finding("one-layer", "first half").value == pytest.approx(100 * early.mean())
    rest = early.drop("0")
    assert finding("one-layer", "first half", "needles", (0,)).value == pytest.approx(
        100 * rest.mean())


def test_likeness_is_judged_by_the_rule_of_the_plan():
    """All four models at 69.1 %; the value is that of the cases."""
    tables, *_ = planned_sharing(load_plan("later_sharing"))
    cases = tables["needles"].query("model == 'tiny-qwen3' and rate == 0.691")
    found = cases.groupby("arm")["correct"].mean()
    lead = finding("alike-lead", "tiny-qwen3")
    assert lead.value == pytest.approx(100 * (found["alike"] - found["random"]))
    assert lead.verdict == "shown"
    assert finding("place-lead", "tiny-qwen3").value == pytest.approx(
        100 * (found["alike"] - found["one threshold"]))


def test_what_a_change_leaves_of_needles_and_ranks_is_counted_from_the_cases():
    """smollm2-135m under Ms-PoE, by hand; half of the heads is where the rule draws its line."""
    artifact, = (one for one in stored("variant-heads") if one.model == "smollm2-135m"
                 and one.shipped)
    found = read_tables(artifact.folder), artifact
    needles = found[0]["needles"].query("variant == 'Ms-PoE'")
    right = 100 * needles.groupby("subject")["correct"].mean()
    assert finding("found-under", found, "Ms-PoE").value == pytest.approx(right["whole"])
    assert finding("excess-under", found, "Ms-PoE").value == pytest.approx(
        right["non-retrieval"] - right["retrieval"])
    kept = finding("rank-overlap", found, "Ms-PoE")
    assert kept.verdict == "shown" and kept.low >= 50
