"""The list of claims: what it must hold, what is refused, and how verdicts come about."""

import json
import re
import shutil
from contextlib import nullcontext
from inspect import signature

import numpy as np
import pytest
import yaml
from typer.testing import CliRunner

from rmutils.__main__ import app
from rmutils.book.chapters.main_tables.task_effects import EVALUATIONS
from rmutils.book.chapters.masking_sweep.larger_sweeps import BY_PLAN
from rmutils.book.claims import claim_list as module
from rmutils.book.claims.claim_list import CLAIMS, claim_table, judge, load_claims, part_table
from rmutils.book.experiments.thinking_twin import TWIN, twin_evaluation
from rmutils.book.verdicts import (
    AGAINST,
    BLIND,
    EXCLUDED,
    NOT_RUN,
    PARTLY,
    QUANTITIES,
    REACHED,
    SHOWN,
    SMALLER,
    UNDECIDED,
    UNTESTABLE,
    VERDICTS,
    CannotShow,
    Effect,
    Quantity,
)
from rmutils.core.errors import NotStored, UserError
from rmutils.heads.sparsity import statistics
from rmutils.paper.tables import PAPER, load_published_maps

SECTIONS = ("Abstract", "Section 1", *(f"Section 4.{i}" for i in range(1, 7)),
            *(f"Section 5.{i}" for i in range(1, 4)),
            *(f"Appendix {letter}" for letter in "BCEFH"))
FIRST = yaml.safe_load((PAPER / CLAIMS).read_text(encoding="utf-8"))[0]


@pytest.fixture
def write(tmp_path):
    """Writes a list of claims, each the first one of the file with some fields changed."""
    def changed(*changes) -> None:
        records = [{name: value for name, value in (FIRST | {"id": f"claim-{i}"} | change).items()
                    if value is not None} for i, change in enumerate(changes)]
        (tmp_path / CLAIMS).write_text(yaml.safe_dump(records, allow_unicode=True),
                                       encoding="utf-8")
        return load_claims(tmp_path)
    return changed


def measures(**changes):
    return {"measures": [{"quantity": "gain", "of": ["m"], "above": 0} | changes]}


def test_every_section_is_there():
    claims = load_claims()
    assert len(claims) >= 20
    said = {saying.place for claim in claims for saying in claim.said if saying.source == "en"}
    assert said >= set(SECTIONS)


def test_a_size_is_one_that_the_sentence_prints():
    """As a number or in percent; its sign is in the words."""
    claims = [(claim, m) for claim in load_claims() for m in claim.measures if m.size is not None]
    assert len(claims) > 5
    for claim, measure in claims:
        printed = {float(n) for saying in claim.said
                   for n in re.findall(r"\d+(?:\.\d+)?", saying.as_printed)}
        size = abs(measure.size)
        assert printed & {round(size, 9), round(100 * size, 9)}, claim.id


def test_measures_fit_their_quantities():
    """Each takes what it is given: a model first, but where a measure of sparsity stands for many;
    lengths are those of its evaluation, and its sentence has a place for the number."""
    for claim in load_claims():
        for measure in claim.measures:
            for of in measure.of:
                given = (of,) if isinstance(of, str) else of
                asked = QUANTITIES[measure.quantity]
                assert asked.said(*given).count("{effect}") == 1
                signature(asked.measure).bind(*given)
                if measure.quantity in ("gain_over_designed_sparsity",
                                        "gain_over_sparsity_at_equal_size"):
                    assert given[0] in statistics()
                    continue
                if measure.quantity.startswith("published"):
                    assert given[0] in {*load_published_maps()["model"]}
                    continue
                teaching = ("tiny-llama", "tiny-qwen3", "tiny-olmo3")
                assert given[0] in (*teaching, "smollm2-135m", *BY_PLAN, TWIN)
                lengths = (twin_evaluation() if given[0] == TWIN else EVALUATIONS[
                    "world" if given[0] in teaching else "book"]).lengths
                if measure.quantity in ("gain_at", "lead_at"):
                    assert {n for n in given if isinstance(n, int)} <= {*lengths}


@pytest.mark.parametrize(("change", "message"), [
    (measures(quantity="gians"), r"claim-0: there is no quantity gians\. Known ones: .*gain,"),
    (measures(above=None), "give a bound"),
    (measures(size=-1), "a size goes with one bound"),
    (measures(of=[]), r"measures\.0\.of: .*at least 1"),
    (measures(verdict="reproduced"), "Extra inputs"),
    ({"id": None}, "claim 1: id: Field required"),
    ({"id": None, "test": None}, "claim 1: id: Field required; test: Field required"),
    ({"measures": None}, "claim-0: together: .*either measures or the reason"),
    (measures(decides=False), "either measures or the reason"),
    ({"untestable": "too large"}, "either measures or the reason"),
    ({"said": []}, "said: .*at least 1"),
    ({"said": [{"source": "fr", "place": "Abstract", "as_printed": "x"}]}, "'en' or 'ja'"),
    ({"verdict": "reproduced"}, "verdict: Extra inputs"),
    ({"test": None}, "test: Field required")])
def test_refused(write, change, message):
    with pytest.raises(UserError, match=message):
        write(change)


def test_files_that_are_no_lists_of_claims(tmp_path, write):
    with pytest.raises(UserError, match=r"No such file.*\. Restore it with: git checkout"):
        load_claims(tmp_path / "nowhere")
    with pytest.raises(UserError, match="twice: more than one claim has this id"):
        write({"id": "twice"}, {"id": "twice"})
    for text, message in (("- {", "is no YAML"), ("id: a", "a list of claims"),
                          ("- {id: a, claim: b, id: c}", "'id' occurs twice.*line 1"),
                          ("- only words", "claim 1: ")):
        (tmp_path / CLAIMS).write_text(text)
        with pytest.raises(UserError, match=message):
            load_claims(tmp_path)


def not_stored(*of):
    raise NotStored(f"nothing of {of[0]}. Make it: `rmutils evaluate {of[0]}`.")


def test_verdicts_come_from_effects(write):
    """The value of an effect is the number that it is asked for, give or take 1; of model `deaf`
    nothing can be shown, and in `few` there are too few cases."""
    def gain_at(model, at):
        """Gain."""
        if model == "deaf":
            raise CannotShow("nothing moves", "points", ["d"])
        return Effect(at, at - 1, at + 1, "points", (model,), 5 if model == "few" else 99, "note")

    quantities = {"gain_at": Quantity(gain_at, "{model} gains {effect} at {at}", 10),
                  "gain": Quantity(not_stored, "{of} gains {effect}")}

    def at(*lengths, model="m", **more):
        return {"quantity": "gain_at", "of": [[model, n] for n in lengths], "above": 0} | more

    missing = {"quantity": "gain", "of": ["m", "m", "n"], "above": 0}
    judged = judge(write(
        {"measures": [at(3, size=2)]}, {"measures": [at(3, 4), at(-9, decides=False)]},
        {"measures": [at(4), at(3, size=9)]},
        {"measures": [at(3, 0), at(3, size=9)]}, {"measures": [at(0, size=5)]},
        {"measures": [at(0, 3, 0, 0)]}, {"measures": [at(-3, -3, 0)]},
        {"measures": [at(3, model="deaf"), at(3, model="few"), at(3)]},
        {"measures": [at(3, model="deaf"), at(3), missing]},
        {"measures": None, "untestable": "Too large."}), quantities)
    table, parts = claim_table(judged), part_table(judged)
    assert [*table] == ["id", "source", "place", "as_printed", "also", "test", "verdict", "words",
                        "note"]
    assert parts["size_excluded"].dtype == bool and parts.notna().any().all()
    assert table["verdict"].tolist() == [
        REACHED, SHOWN, SMALLER, PARTLY, EXCLUDED, UNDECIDED, AGAINST, BLIND, NOT_RUN, UNTESTABLE]
    assert {*table["verdict"]} == {*VERDICTS}
    assert table["note"].tolist() == [""] * 8 + [
        "Nothing of m. Make it: `rmutils evaluate m`. And 1 more.", "Too large."]
    assert table["words"].tolist()[1:6] == [
        "direction shown: 2 of 2 parts shown",
        "direction shown, smaller: 2 of 2 parts shown, 1 smaller than claimed",
        "partly shown: 2 of 3 parts shown, 1 smaller than claimed",
        "size excluded", "undecided: 1 of 4 parts shown"]
    telling = parts[parts["telling"]].set_index("id")
    assert telling["value"].tolist()[:7] == [3, 4, 3, 3, 0, 0, -3]
    assert judged[8].telling.answer.p < 0.05 and judged[9].telling is None
    assert all(np.isnan(part.answer.p) for part in judged[8].parts if part.effect is None)
    assert telling.loc["claim-7", "blocked"] == "nothing moves"
    assert telling.loc["claim-0", "p"] == judged[0].parts[0].answer.p < 0.05
    assert telling.loc["claim-0", ["sentence", "scale", "over", "clusters"]].tolist() == [
        "m gains {effect} at 3", 10, "note", 99]
    beside = parts[~parts["decides"]]
    assert beside[["value", "verdict"]].to_numpy().tolist() == [[-9, AGAINST]]
    deaf = parts[parts["verdict"] == BLIND]
    assert deaf["p"].isna().all() and deaf["blocked"].astype(bool).all() and len(deaf) == 3


def test_each_place_of_a_claim_is_named_once(write):
    places = [{"source": source, "place": place, "as_printed": place} for source, place in (
        ("en", "Abstract"), ("en", "Section 1"), ("ja", "Section 1"), ("en", "Section 1"))]
    first = claim_table(judge(write(
        {"said": places, "measures": None, "untestable": "Too large."}))).iloc[0]
    assert (first["source"], first["place"], first["as_printed"], first["also"]) == (
        "en", "Abstract", "Abstract", "en Section 1, ja Section 1")


def test_progress_counts_claims(write, monkeypatch):
    told = []
    monkeypatch.setattr(module, "progress_bar", lambda *what, unit: nullcontext(told.append))
    judge(write(*[{"measures": None, "untestable": "Too large."}] * 3))
    assert told == [1, 1, 1]


def test_other_errors_are_not_hidden(write):
    def damaged(model):
        raise UserError("content differs from its manifest")

    with pytest.raises(UserError, match="content differs"):
        judge(write(measures()), {"gain": Quantity(damaged, "{effect}")})


def test_command(monkeypatch):
    """What can be judged is said, and how to come by the rest."""
    for name in list(QUANTITIES):
        monkeypatch.setitem(QUANTITIES._known, name, Quantity(not_stored, "{effect}"))
    monkeypatch.setitem(QUANTITIES._known, "published_share_of_heads", Quantity(
        lambda model: Effect(0.05, 0.05, 0.05, "share of heads", ("d-1",), None), "{effect}"))
    found = CliRunner().invoke(app, ["claims", "--json"], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    rows = {row["id"]: row for row in json.loads(found.stdout)}
    claims = load_claims()
    assert list(rows) == [claim.id for claim in claims]
    heads = rows["share-of-heads-masked"]
    assert heads["verdict"] == SHOWN and heads["parts"][0]["artifacts"] == ["d-1"]
    assert rows["consistent-gain"]["parts"] == []
    shown = CliRunner().invoke(app, ["claims"]).stdout
    assert "published_share_of_heads (Qwen3-8B): 0.05 [0.05, 0.05] share of heads; claimed " \
        "above 0.035 and below 0.105: direction shown" in shown
    assert shown.count("Make it: `rmutils evaluate") == len(claims) - 1 - sum(
        bool(claim.untestable) for claim in claims)
    assert re.search(rf"{len(claims)} claims: 1 direction shown, \d+ not run yet", shown)


def test_list_is_read_from_the_folder_that_is_asked_for(tmp_path, ascii_locale):
    shutil.copy(PAPER / CLAIMS, tmp_path)
    assert load_claims(tmp_path) == load_claims()
