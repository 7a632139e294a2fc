"""The archive: whole, the same each time, and described as its files are."""

import hashlib
import json
import subprocess
import zipfile

import pytest
from huggingface_hub import RepoCard

from rmutils.book.site.pdf import OUTPUT
from rmutils.book.site.steps import HTML
from rmutils.book.tools.archive import NAME, write_archive
from rmutils.core import paths
from rmutils.core.errors import UserError

FILES = {
    "README.md": "# A book\n", "Snakefile": "rule book:\n", "notebooks/one.ipynb": "{}\n",
    "data/paper/tables.csv": "table,value\n1,2.5\n",
    "data/corpus/needles/needles.jsonl": '{"needle": "It is.", "question": "Is it?"}\n',
    "data/artifacts/detect/tiny/256-0a/manifest.json": json.dumps({
        "command": "rmutils detect tiny", "environment": {"created": "2026-01-02T03:04:05+00:00"}}),
    "data/artifacts/detect/tiny/256-0a/scores.json": "{}\n", "book/é.md": "é\n"}


@pytest.fixture
def project(tmp_path):
    """A clone with one result, and its book built."""
    built = {f"{HTML}/index.html": "<p>built</p>", f"{OUTPUT}": "%PDF", "own.txt": "mine"}
    for name, text in (FILES | built).items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    for words in (["init", "-q"], ["add", *FILES]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    return tmp_path


def test_it_holds_sources_and_book_and_says_truly_what_is_in_it(project, tmp_path):
    write_archive(project, tmp_path / "a.zip")
    with zipfile.ZipFile(tmp_path / "a.zip") as archive:
        found = {name.removeprefix(f"{NAME}/"): archive.read(name) for name in archive.namelist()}
    sums = dict(reversed(line.split("  ")) for line in
                found.pop("SHA256SUMS").decode().splitlines())
    assert sums == {name: hashlib.sha256(data).hexdigest() for name, data in found.items()}
    described = {"ro-crate-metadata.json", "croissant.json"}
    built = ["built/index.html", f"built/{OUTPUT.name}"]
    assert {*found} == {*FILES, *built} | described
    graph = {e["@id"]: e for e in json.loads(found["ro-crate-metadata.json"])["@graph"]}
    assert {part["@id"] for part in graph["./"]["hasPart"]} == {*found} - described
    for name in {*found} - described:
        assert graph[name]["sha256"] == sums[name]
        assert int(graph[name]["contentSize"]) == len(found[name])
    book, action = (e for e in graph.values() if e["@type"] == "CreateAction")
    assert book["instrument"] == graph["./"]["mainEntity"] == {"@id": "Snakefile"}
    assert book["object"] == [{"@id": "notebooks/one.ipynb"}]
    assert book["result"] == [{"@id": name} for name in built]
    assert "ComputationalWorkflow" in graph["Snakefile"]["@type"]
    for entity in graph.values():  # nothing is named that is not described
        for value in entity.values():
            for one in value if isinstance(value, list) else [value]:
                assert not isinstance(one, dict) or one["@id"] in graph or one == {
                    "@id": "https://w3id.org/ro/crate/1.1"}
    assert action["description"] == "rmutils detect tiny"
    assert action["result"] == [{"@id": "data/artifacts/detect/tiny/256-0a/scores.json"}]
    tables, needles = json.loads(found["croissant.json"])["recordSet"]
    assert [field["name"] for field in tables["field"]] == ["table", "value"]
    assert [field["name"] for field in needles["field"]] == ["needle", "question"]


def test_the_hub_reads_the_licence_of_models_and_data():
    for licence, cards in (("apache-2.0", (paths.DATA / "models").glob("*/README.md")), (
            "cc-by-4.0", (paths.DATA / name / "README.md" for name in (
                "artifacts", "corpus", "paper")))):
        assert {RepoCard.load(card).data.license for card in cards} == {licence}


def test_the_same_files_give_the_same_archive(project, tmp_path):
    write_archive(project, tmp_path / "a.zip")
    (project / "README.md").touch()
    write_archive(project, tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_what_is_missing_is_told(project, tmp_path):
    (project / HTML / "index.html").unlink()
    (project / HTML).rmdir()
    with pytest.raises(UserError, match="not built yet: `make book`"):
        write_archive(project, tmp_path / "a.zip")
    subprocess.run(["rm", "-r", project / ".git"], check=True)
    with pytest.raises(UserError, match="no git clone"):
        write_archive(project, tmp_path / "a.zip")
