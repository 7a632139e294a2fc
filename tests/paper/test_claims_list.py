"""The list of claims: what it must hold, what is refused, and how verdicts come about."""

import json
import re
import shutil
from inspect import signature

import pytest
import yaml
from typer.testing import CliRunner

from rmutils.cli import app
from rmutils.core.errors import NotStored, UserError
from rmutils.heads.sparsity import statistics
from rmutils.paper.claims import CLAIMS, claim_table, judge, load_claims, part_table
from rmutils.paper.effects import QUANTITIES
from rmutils.paper.effects.task_effects import EVALUATIONS
from rmutils.paper.tables import PAPER
from rmutils.paper.verdicts import VERDICTS, Effect

SECTIONS = ("Abstract", "Section 1", *(f"Section 4.{i}" for i in range(1, 7)),
            *(f"Section 5.{i}" for i in range(1, 4)), "Appendix B", "Appendix H")
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
    and lengths are those of its evaluation."""
    for claim in load_claims():
        for measure in claim.measures:
            for of in measure.of:
                given = (of,) if isinstance(of, str) else of
                signature(QUANTITIES[measure.quantity]).bind(*given)
                if measure.quantity == "gain_over_designed_sparsity":
                    assert given[0] in statistics()
                    continue
                assert given[0] in ("smollm2-135m", "tiny-llama", "tiny-qwen3", "tiny-olmo3")
                lengths = EVALUATIONS["book" if given[0] == "smollm2-135m" else "world"].lengths
                if measure.quantity in ("gain_at", "lead_at"):
                    assert {n for n in given if isinstance(n, int)} <= {*lengths}


@pytest.mark.parametrize(("change", "message"), [
    (measures(quantity="gians"), r"claim-0: there is no quantity gians\. Known ones: .*gain,"),
    (measures(above=None), "give a bound"),
    (measures(size=-1), "a size goes with one bound"),
    (measures(of=[]), r"measures\.0\.of: .*at least 1"),
    (measures(verdict="reproduced"), "Extra inputs"),
    ({"measures": None}, "either measures or the reason"),
    ({"untestable": "too large"}, "either measures or the reason"),
    ({"said": []}, "said: .*at least 1"),
    ({"said": [{"source": "fr", "place": "Abstract", "as_printed": "x"}]}, "'en' or 'ja'"),
    ({"verdict": "reproduced"}, "verdict: Extra inputs"),
    ({"test": None}, "test: Field required")])
def test_refused(write, change, message):
    with pytest.raises(UserError, match=message):
        write(change)


def test_files_that_are_no_lists_of_claims(tmp_path, write):
    with pytest.raises(UserError, match=r"does not exist\. Restore it with: git checkout"):
        load_claims(tmp_path / "nowhere")
    with pytest.raises(UserError, match="twice: more than one claim has this id"):
        write({"id": "twice"}, {"id": "twice"})
    for text, message in (("- {", "is no YAML"), ("id: a", "a list of claims"),
                          ("- only words", "claim 1: ")):
        (tmp_path / CLAIMS).write_text(text)
        with pytest.raises(UserError, match=message):
            load_claims(tmp_path)


def not_stored(*of):
    raise NotStored(f"nothing of {of[0]}. Make it: `rmutils evaluate {of[0]}`.")


def test_verdicts_come_from_effects(write):
    """The value of an effect is the number that it is asked for, give or take 1."""
    quantities = {"gain_at": lambda model, at: Effect(at, at - 1, at + 1, "points", (model,)),
                  "gain": not_stored}

    def at(*lengths, **more):
        return {"quantity": "gain_at", "of": [["m", n] for n in lengths], "above": 0} | more

    missing = {"quantity": "gain", "of": ["m", "m"], "above": 0}
    judged = judge(write(
        {"measures": [at(2, 3)]}, {"measures": [at(2), at(3, size=9)]}, {"measures": [at(-2, 0)]},
        {"measures": [at(0)]}, {"measures": [at(2), missing]},
        {"measures": None, "untestable": "Too large."}), quantities)
    table, parts = claim_table(judged), part_table(judged)
    assert table["verdict"].tolist() == list(VERDICTS)
    assert table["note"].tolist() == [""] * 4 + [
        "Nothing of m. Make it: `rmutils evaluate m`.", "Too large."]
    assert parts["value"].tolist() == [2, 3, 2, 3, -2, 0, 0, 2]
    assert parts["verdict"].tolist() == ["reproduced"] * 3 + ["partly", "not reproduced"] + [
        "undecided"] * 2 + ["reproduced"]
    assert parts.loc[3, ["id", "of", "claimed", "unit"]].tolist() == [
        "claim-1", "m, 3", "above 0, 9 or more", "points"]


def test_other_errors_are_not_hidden(write):
    def damaged(model):
        raise UserError("content differs from its manifest")

    with pytest.raises(UserError, match="content differs"):
        judge(write(measures()), {"gain": damaged})


def test_command(monkeypatch):
    """What can be judged is said, and how to come by the rest."""
    for name in list(QUANTITIES):
        monkeypatch.setitem(QUANTITIES._known, name, not_stored)
    monkeypatch.setitem(QUANTITIES._known, "share_of_retrieval_heads",
                        lambda model: Effect(0.05, 0.05, 0.05, "share of heads", ("d-1",)))
    found = CliRunner().invoke(app, ["claims", "--json"], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    rows = {row["id"]: row for row in json.loads(found.stdout)}
    claims = load_claims()
    assert list(rows) == [claim.id for claim in claims]
    heads = rows["share-of-heads-masked"]
    assert heads["verdict"] == "reproduced" and heads["parts"][0]["artifacts"] == ["d-1"]
    assert rows["consistent-gain"]["parts"] == []
    shown = CliRunner().invoke(app, ["claims"]).stdout
    assert "share_of_retrieval_heads (smollm2-135m): 0.05 [0.05, 0.05] share of heads; claimed " \
        "above 0.04 and below 0.1: reproduced" in shown
    assert shown.count("Make it: `rmutils evaluate") == len(claims) - 1 - sum(
        bool(claim.untestable) for claim in claims)
    assert re.search(rf"{len(claims)} claims: 1 reproduced, \d+ not run yet", shown)


def test_list_is_read_from_the_folder_that_is_asked_for(tmp_path):
    shutil.copy(PAPER / CLAIMS, tmp_path)
    assert load_claims(tmp_path) == load_claims()
