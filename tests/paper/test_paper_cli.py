"""`rmutils paper`: what a reader sees, and what a script reads."""

import json

import pytest
from typer.testing import CliRunner

from rmutils.cli.paper_commands import paper_app
from rmutils.core.errors import UserError
from rmutils.paper import audit, load_tables


def run(*arguments: str) -> str:
    result = CliRunner().invoke(paper_app, arguments, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_tables_keep_their_digits():
    shown = run("tables", "--source", "en", "--table", "9")
    assert shown.startswith("en Table 9\n")
    assert "37.34" in shown
    assert "46.40" in shown


def test_tables_as_json():
    records = json.loads(run("tables", "--source", "ja", "--json"))
    tables = load_tables()
    assert records == json.loads(tables[tables.source == "ja"].to_json(orient="records"))


def test_audit_as_text_and_as_json():
    findings = audit()
    disagree = int((~findings.agrees).sum())
    shown = run("audit")
    assert shown.count("(disagrees)") == disagree
    assert shown.endswith(f"{disagree} of {len(findings)} comparisons disagree.\n")
    assert run("audit", "--all").count("(agrees)") == len(findings) - disagree
    assert len(json.loads(run("audit", "--json"))) == disagree
    assert len(json.loads(run("audit", "--json", "--all"))) == len(findings)


def test_bad_usage():
    with pytest.raises(UserError, match="no Table 13"):
        run("tables", "--table", "13")
    assert CliRunner().invoke(paper_app, ["tables", "--source", "fr"]).exit_code == 2
