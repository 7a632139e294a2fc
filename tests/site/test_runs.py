"""Runs with other parameters become pages: what is shown beside what, and what makes no page."""

import os
import re
import shutil
import subprocess
import sys
from html import unescape
from pathlib import Path

import nbformat
import pandas as pd
import pytest
import yaml
from bs4 import BeautifulSoup
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output
from typer.testing import CliRunner

from rmutils.__main__ import app
from rmutils.book.chapters.interactive import embed
from rmutils.book.figures import report
from rmutils.book.site.dependencies import sources
from rmutils.book.site.gallery import (
    SHIPPED,
    Run,
    compared,
    files,
    headings,
    page,
    picture_file,
    shown,
    write,
)
from rmutils.book.site.parameters import defaults
from rmutils.core import paths
from tests.clock import until

EVIL = "<script>document.title = 'owned'</script><img src=x onerror=alert(1)> ```` | `"
PICTURE = '<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"><title>{}</title></svg>'


def executed(size: int, word: str = "plain", *, record: bool = True) -> nbformat.NotebookNode:
    """A chapter with a figure, a sentence and a text, as papermill leaves it."""
    figure = {"tags": ["hide-input"], "mystnb": {
        "figure": {"name": "fig-first", "caption": "Grows with $n$."},
        "image": {"alt": "a line that grows with size"}}}
    cells = [
        new_markdown_cell("(first)=\n# The first\n\n```python\n# no heading\n```\n\n## Bare"),
        new_code_cell("size: int = 1  # of it", metadata={"tags": ["parameters"]}),
        new_markdown_cell("## Result\n\nProse about size 1.\n\n### In numbers"),
        new_code_cell("draw(size)", metadata=figure, outputs=[
            new_output("display_data", {"image/svg+xml": PICTURE.format(f"size {size}")})]),
        new_code_cell("say(word)", metadata={"tags": ["remove-input"]}, outputs=[
            new_output("display_data", {"text/markdown": f"It is {word}, `a < b` and 1 < 2."}),
            new_output("stream", name="stderr", text="/home/me/warning")]),
        new_code_cell("print(word)", outputs=[new_output("stream", text=f"{word}\n")]),
        new_code_cell("print('constant')", outputs=[new_output("stream", text="constant\n")]),
        new_code_cell("view(size)", metadata={"tags": ["remove-input"]}, outputs=[
            new_output("display_data", {"text/html": embed("heads", {"unseen": size}).data})]),
        new_code_cell("'unseen'", metadata={"tags": ["remove-cell"]},
                      outputs=[new_output("stream", text=f"unseen {size}\n")]),
    ]
    for number, cell in enumerate(cells):
        cell.id = f"c{number}"
    known = {"parameters": {"size": size, "word": word}, "changed": ["size", "word"],
             "started": "2026-01-02T03:04:05+00:00", "seconds": 6.7}
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return new_notebook(cells=cells, metadata={
        "kernelspec": kernel, "rmutils": known if record else {}})


class Book:
    """A project with one executed chapter, and its runs."""

    def __init__(self, root: Path):
        self.root, book = root, root / "book"
        (book / "chapters").mkdir(parents=True)
        (book / "_build").mkdir()
        real = yaml.safe_load((paths.BOOK / "_config.yml").read_text(encoding="utf-8"))
        kept = {key: real[key] for key in ("only_build_toc_files", "exclude_patterns", "execute")}
        (book / "_config.yml").write_text(yaml.safe_dump({
            "title": "T", "author": "A", **kept}))
        (book / "_toc.yml").write_text(
            "format: jb-book\nroot: index\nparts:\n- caption: Chapters\n  chapters:\n"
            "  - file: chapters/first\n- caption: Runs\n  chapters:\n  - file: run_gallery\n")
        (book / "index.md").write_text(
            "(parameters)=\n(audit)=\n(scale)=\n(your-own-model)=\n# Index\n\n"
            "{numref}`fig-first`, {ref}`first`\n")
        text = (paths.BOOK / "run_gallery.md").read_text(encoding="utf-8")
        (book / "run_gallery.md").write_text(text, encoding="utf-8")
        nbformat.write(executed(1), book / "chapters" / "first.ipynb")

    def run(self, place: str, notebook=None) -> Path:
        file = self.root / "book" / "runs" / f"{place}.ipynb"
        file.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(notebook or executed(2), file)
        return file

    def pages(self) -> dict[str, nbformat.NotebookNode]:
        """The pages of runs that a build would make, by their place in the book."""
        copy = self.root / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.root / "book", copy, ignore=shutil.ignore_patterns("_build", "runs"))
        write(self.root, copy)
        return {str(p.relative_to(copy / "gallery").with_suffix("")): nbformat.read(p, as_version=4)
                for p in sorted((copy / "gallery").glob("*/*.ipynb"))}


@pytest.fixture
def book(tmp_path) -> Book:
    return Book(tmp_path)


def tagged(page, tag: str) -> list:
    return [cell for cell in page.cells if tag in cell.metadata.get("tags", [])]


def test_outputs_stand_beside_those_of_the_chapter(book):
    book.run("first/mine", executed(2, "other"))
    page = book.pages()["first/mine"]
    left, right = tagged(page, "rm-default"), tagged(page, "rm-run")
    pairs = [("size 1", "size 2"), ("It is plain", "It is other"), ("plain", "other")]
    assert len(left) == len(right) == len(pairs)
    for one, other, (usual, new) in zip(left, right, pairs, strict=True):
        assert page.cells.index(other) == page.cells.index(one) + 1
        assert usual in str(one.outputs) and new not in str(one.outputs)
        assert new in str(other.outputs) and usual not in str(other.outputs)
    assert left[0].metadata.mystnb.image.alt == "a line that grows with size"
    text = nbformat.writes(page)
    for absent in ("constant", "fig-first", "(first)=", "Prose about", "unseen", "Bare",
                   "/home/me", "no head"):
        assert absent not in text
    prose = [c.source for c in page.cells if c.cell_type == "markdown"]
    assert prose[0].startswith("# mine: The first\n")
    assert prose[1:] == ["## Result", "### In numbers", "Grows with $n$."]
    assert "has changed since" not in text


def test_gallery_shows_what_differs_first_beside_what_is_said_of_a_run(book):
    gallery = book.root / "book" / "run_gallery.md"
    gallery.write_text("# Gallery\n\nWhy?\n\n% run: first/mine\n\n## Others\n")
    book.run("first/mine", executed(2, "<b>other</b>"))
    book.run("first/too", executed(3))
    book.pages()
    text = (book.root / "copy" / "run_gallery.md").read_text(encoding="utf-8")
    shown, _, others = text.partition("## Others")
    page = BeautifulSoup(shown, "html.parser")
    assert [cell.text for cell in page.select("td")] == [
        "It is plain, a < b and 1 < 2.", "It is <b>other</b>, a < b and 1 < 2.", "", ""]
    assert [cell.text for cell in page.select("th")] == [
        "The chapter", 'This run: size = 2, word = "<b>other</b>"']
    names = [image["src"] for image in page.select("img")]
    assert names == [f"_images/{picture_file(PICTURE.format(f'size {n}'))}" for n in (1, 2)]
    assert {image["alt"] for image in page.select("img")} == {"a line that grows with size"}
    assert [link["href"] for link in page.select("a")] == ["gallery/first/mine.html"]
    assert "first/too" in others and "first/mine" not in others and "% run" not in text


def test_changed_parameters_are_marked_and_the_command_makes_the_run_again(book):
    book.run("first/mine", executed(2, "a b"))
    about = book.pages()["first/mine"].cells[1].outputs[0].data["text/html"]
    assert re.findall(r"<mark><code>(.*?)</code></mark> changed", about) == ["2", "&quot;a b&quot;"]
    assert "rmutils run first -p size 2 -p word 'a b' --name mine" in unescape(about)
    book.run("first/mine", executed(1))
    assert "<mark>" not in str(book.pages())


def test_chapter_that_has_changed_since_or_is_gone_is_said(book):
    older = executed(2)
    older.cells[3].source = "draw(size, thick=True)"
    book.run("first/older", older)
    book.run("gone/lost", executed(2))
    pages = book.pages()
    assert "has changed since" in pages["first/older"].cells[0].source
    lost = pages["gone/lost"]
    assert "no chapter of this book" in lost.cells[0].source and not tagged(lost, "rm-default")
    assert "size 2" in str(lost.cells)


def test_new_words_are_no_difference_of_a_run(book):
    run = executed(2)
    run.cells[4].source = "say(word, twice=True)"
    run.cells[4].outputs[0].data["text/markdown"] = "It is, as it was before, plain."
    book.run("first/mine", run)
    page = book.pages()["first/mine"]
    assert "as it was before" not in str(page) and "has changed since" not in str(page)
    assert len(tagged(page, "rm-run")) == 1  # the figure alone


def test_sections_without_a_result_are_left_out():
    def chapter(word, rows):
        outputs = [new_output("display_data", {"text/html": one.data}) for one in (
            report.how_made({"time": word}),
            report.table(pd.DataFrame({"n": [1] * rows}), f"Made {word}", folded=True))]
        return new_notebook(cells=[new_markdown_cell("## Empty", id="a"),
                                   new_code_cell("show()", id="b", outputs=outputs)])

    assert compared(chapter("now", 0), chapter("then", 0)) == []
    assert compared(chapter("now", 1), chapter("then", 0))[0].source == "## Empty"


def test_what_is_equal_on_both_sides_is_left_out():
    """Also a figure that only was drawn at another time."""
    def cell(name, day, table):
        return new_code_cell("draw()", id=name, outputs=[
            new_output("display_data", {"image/svg+xml": f"<svg><dc:date>{day}</dc:date></svg>"}),
            new_output("display_data", {"text/html": table})])
    run, default = (new_notebook(cells=[cell("a", day, "<p>same</p>"), cell("b", day, table)])
                    for day, table in (("2026-11-28", "<p>1</p>"), ("2026-11-27", "<p>2</p>")))
    sides = compared(run, default)
    assert [[one.data["text/html"] for one in side.outputs[1:]] for side in sides] == [
        ["<p>2</p>"], ["<p>1</p>"]]


def test_what_is_no_whole_run_makes_no_page_and_no_build(book):
    before = sources(book.root)
    book.run("first/.partial/failed")
    book.run("first/.ipynb_checkpoints/mine-checkpoint")
    book.run("first/odd name")
    book.run("first/source", executed(2, record=False))
    (book.root / "book/runs/first/broken.ipynb").write_text('{"metadata": ')
    assert not book.pages() and sources(book.root) == before
    contents = yaml.safe_load((book.root / "copy/_toc.yml").read_text())
    assert contents == yaml.safe_load((book.root / "book/_toc.yml").read_text())
    assert "There is none yet" in (book.root / "copy/run_gallery.md").read_text()
    mine = book.run("first/mine")
    assert {*sources(book.root)} - {*before} == {"book/runs/first/mine.ipynb"}
    mine.unlink()
    assert sources(book.root) == before


def test_a_run_of_the_reader_replaces_one_that_ships(book):
    shipped = book.root / SHIPPED / "first" / "mine.ipynb"
    shipped.parent.mkdir(parents=True)
    nbformat.write(executed(2, "shipped"), shipped)
    assert "shipped" in str(book.pages()["first/mine"])
    mine = book.run("first/mine", executed(2, "own"))
    assert files(book.root) == [mine] and "shipped" not in str(book.pages()["first/mine"])


def test_three_runs_ship_and_no_text_of_them_is_read_as_html():
    """`make gallery` makes them again, which is due when one of their notebooks has changed."""
    shipped = [Run(f, paths.NOTEBOOKS / f"{f.parent.name}.ipynb")
               for f in files(paths.ROOT) if f.is_relative_to(paths.ROOT / SHIPPED)]
    assert len(shipped) == 3
    gallery = (paths.BOOK / "run_gallery.md").read_text(encoding="utf-8")
    for run in shipped:
        assert f"% run: {run.file.parent.name}/{run.name}\n" in gallery
        assert run.file.stat().st_size < 1_000_000
        assert str(paths.ROOT) not in run.file.read_text(encoding="utf-8")
        usual = defaults(run.chapter)
        given = run.record["parameters"]
        assert {*usual} == {*given} and any(usual[name] != given[name] for name in usual)
        for cell in page(run).cells:
            for output in cell.get("outputs", []):
                assert "text/markdown" not in output.get("data", {})


@pytest.mark.parametrize(("source", "found"), [
    ("# One\ntext\n## Two words ##", [(1, "One"), (2, "Two words ##")]),
    ("````md\n```\n# code\n```\n````\n## After", [(2, "After")]),
    (":::{note}\n# inside\n:::\n#no heading\n### Deep", [(3, "Deep")]),
    ("```python\n# comment\n```\n# Real", [(1, "Real")]),
])
def test_headings_are_those_outside_of_fences(source, found):
    assert list(headings(new_markdown_cell(source))) == found


def test_pages_of_runs_are_built_without_warnings_and_markup_stays_text(book):
    """A parameter and texts with HTML in them, through Jupyter Book itself."""
    book.run("first/evil.1", executed(2, EVIL))
    book.run("gone/lost")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("GITHUB_", "RMUTILS_"))}
    done = subprocess.run([sys.executable, "-m", "rmutils.book.site.steps", "pages"], cwd=book.root,
                          capture_output=True, text=True, env=environment)
    told = book.root / "book/_build/failures/pages.txt"
    assert done.returncode == 0, told.read_text() if told.exists() else done.stderr
    html = book.root / "book/_build/html"
    page = (html / "gallery/first/evil.1.html").read_text(encoding="utf-8")
    listing = (html / "run_gallery.html").read_text(encoding="utf-8")
    for text in (page, listing):
        assert "<script>document" not in text and "<img src=x" not in text
        assert "&lt;script&gt;document" in text
    assert page.count("&lt;img src=x onerror=alert(1)&gt;") >= 4  # table, command, two outputs
    assert "a &lt; b" in page and "1 &lt; 2" in page
    assert len(re.findall(r'<img alt="a line that grows with size"', page)) == 2
    assert 'href="gallery/gone/lost.html"' in listing
    assert re.search(r'class="[^"]*tag_rm-default', page) and "evil.1.ipynb" in page
    assert not (book.root / "book/_build/.source").exists()
    chapter = (html / "chapters/first.html").read_text(encoding="utf-8")
    for button in ("mybinder", "colab.research", "executablebooks/jupyter-book/"):
        assert button not in chapter + page, "without an address there are no launch buttons"


@pytest.mark.fault("foreign text", "Markdown of a run with HTML, roles, directives and links")
@pytest.mark.parametrize("text", [
    "<img src=x onerror=alert(1)>", "<IMG\nSRC=x onerror=alert(1)>", "<svg/onload=alert(1)>",
    "a <!-- b --> <script>alert(1)</script>", "`a` <img src=x> `b`", "``a <img src=x> `b``",
    "` <img src=x onerror=alert(1)>", "\\` <img src=x> \\`", "`a\n\n<img src=x>\n\n`",
    "```{raw} html\n<img src=x onerror=alert(1)>\n```", ":::{raw} html\n<img src=x>\n:::",
    "{raw}`<img src=x>`", "[a](javascript:alert(1))", "<javascript:alert(1)>",
    "![a](data:text/html,<script>alert(1)</script>)", "[a]: javascript:alert(1)\n\n[a]",
    "```{eval-rst}\n.. raw:: html\n\n   <img src=x>\n```"])
def test_markup_in_a_sentence_does_nothing(text):
    output, = shown(new_code_cell("", outputs=[new_output("display_data", {
        "text/markdown": text, "text/plain": text})]))
    assert {*output.data} == {"text/html"}
    page = BeautifulSoup(output.data["text/html"], "html.parser")
    assert {tag.name for tag in page.find_all()} <= {"p", "code", "pre", "a", "br"}
    assert all({*tag.attrs} <= {"class"} for tag in page.find_all())


@pytest.mark.fault("../ in a name", "of a run, and other names that are no file names")
@pytest.mark.parametrize("name", [
    "../up", "a/b", "a b", "it's", "", ".hidden", "-p", "é", "x" * 101, "a\n"])
def test_odd_names_of_runs_are_refused_before_anything_starts(name, tmp_path):
    result = CliRunner().invoke(app, ["run", "audit", f"--name={name}"])
    assert result.exit_code == 2 and "cannot be the name of a run" in result.output
    assert not (paths.BOOK / "runs" / "audit" / f"{name}.ipynb").exists()


@pytest.mark.fault("kill -9", "in a run of a notebook")
def test_interrupted_run_leaves_no_page(book):
    """Killed in the middle of a cell."""
    (book.root / "notebooks").mkdir()
    marker = book.root / "started"
    cells = [new_code_cell("size: int = 1  # of it", metadata={"tags": ["parameters"]}),
             new_code_cell(f"import time; open({str(marker)!r}, 'w'); time.sleep(600)")]
    nbformat.write(new_notebook(cells=cells), book.root / "notebooks" / "first.ipynb")
    process = subprocess.Popen(
        [sys.executable, "-m", "rmutils", "run", "notebooks/first.ipynb", "-p", "size", "2",
         "--output", "book/runs/first/mine.ipynb"], cwd=book.root, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until(lambda: marker.exists() or process.poll() is not None)
        assert process.poll() is None
    finally:
        os.killpg(process.pid, 9)
        process.wait()
    assert not files(book.root) and not book.pages()
