"""Slides of the lessons: all that they name exists, and they work without anything else."""

import re
from itertools import pairwise

import nbformat
import pytest
import yaml
from nbformat.v4 import new_code_cell, new_notebook, new_output

from rmutils.book.figures.report import what_we_found
from rmutils.book.site.slides import FOLDER, PLACE, write_slides
from rmutils.core import paths
from rmutils.core.errors import UserError
from tests.site.conftest import fresh_page

LESSONS = sorted((paths.BOOK / FOLDER).glob("*.yml"))
SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20"></svg>'


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """The lists of slides, and the chapters as if they had been run."""
    folder = tmp_path_factory.mktemp("book")
    (folder / FOLDER).symlink_to(paths.BOOK / FOLDER)
    (folder / "chapters").mkdir()
    for path in paths.NOTEBOOKS.glob("*.ipynb"):
        notebook = nbformat.read(path, as_version=4)
        for cell in notebook.cells:
            if "figure" in cell.metadata.get("mystnb", {}):
                cell.outputs = [new_output("display_data", {"image/svg+xml": SVG})]
            elif "report.what_we_found(" in cell.source and cell.cell_type == "code":
                box = what_we_found("How much?", "It is **0.5**.").data
                cell.outputs = [new_output("execute_result", {"text/html": box})]
            elif re.search(r"\bsay\(", cell.source) and cell.cell_type == "code":
                cell.outputs = [new_output("execute_result", {"text/markdown": "It is **0.5**."})]
        nbformat.write(notebook, folder / "chapters" / path.name)
    return folder


@pytest.fixture(scope="module")
def made(book):
    return write_slides(book, book / "html")


def test_lessons_show_what_chapters_computed(made):
    assert len(made) == len(LESSONS) == 2
    for lesson, file in zip(LESSONS, made, strict=True):
        slides, text = yaml.safe_load(lesson.read_text("utf-8"))["slides"], file.read_text("utf-8")
        assert text.count("<section ") == 1 + len(slides)
        assert text.count("<img alt") == sum("figure" in slide for slide in slides) >= 4
        assert text.count('<img class="equation"') == sum("equation" in s for s in slides) == 1
        for said in ("Optimizing Retrieval Heads", "Youmi Ma and Naoaki Okazaki", "CC BY 4.0"):
            assert said in text.partition("</section>")[0]
        assert text.count("It is <strong>0.5</strong>.") == sum("said" in s for s in slides) >= 1
        assert not re.findall(r'src="(?!data:)|href="(?!data:|\.\./\.\./)', text)


def test_a_change_of_model_is_announced(made):
    for lesson, file in zip(LESSONS, made, strict=True):
        slides = yaml.safe_load(lesson.read_text("utf-8"))["slides"]
        assert all("model" in slide for slide in slides if "figure" in slide or "said" in slide)
        models = [slide["model"] for slide in slides if "model" in slide]
        changes = [new for old, new in pairwise(models) if new != old]
        text = file.read_text("utf-8")
        assert re.findall(r"From here: ([^<]+)<", text) == changes
        assert text.count(">Model: ") == len(models) - len(changes) > 0


def test_links_lead_to_parts_of_pages(html):
    """Those to scenes of the playground are opened by tests/site/test_playground.py."""
    for file in (html / PLACE).glob("*.html"):
        links = re.findall(r'href="(\.\./[^"]+)"', file.read_text("utf-8"))
        assert len(links) >= 8
        for page, _, part in (link.partition("#") for link in links):
            written = (file.parent / page).read_text("utf-8")
            assert page.endswith("playground.html") or not part or f'id="{part}"' in written


def test_text_that_a_model_wrote_is_escaped(tmp_path):
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "frame.html").write_text("$slides")
    slide = {"title": "<script>a", "said": "one/cell"}
    (tmp_path / FOLDER / "a.yml").write_text(yaml.safe_dump(
        {"title": "a", "about": "a", "slides": [slide]}))
    (tmp_path / "chapters").mkdir()
    bad = new_output("execute_result", {"text/markdown": "<script>b</script> <img src=x>"})
    box = new_output("execute_result", {"text/html": what_we_found("So?", "It is *2*.").data})
    cell = new_code_cell("1", id="cell", outputs=[bad, box])
    nbformat.write(new_notebook(cells=[cell]), tmp_path / "chapters" / "one.ipynb")
    text = write_slides(tmp_path, tmp_path / "html")[0].read_text("utf-8")
    assert "<script>" not in text and "<img" not in text and "&lt;script&gt;b" in text
    assert "<ul><li>It is <em>2</em>.</li></ul></div>" in text and "So?" not in text


@pytest.mark.parametrize(("slide", "told"), [
    ({"figure": "fig-none"}, "a.yml: no chapter has a figure fig-none"),
    ({"said": "audit/none"}, "a.yml: audit/none: no such cell"),
    ({"said": "none/cell-01"}, "a.yml: none/cell-01: no such cell"),
    ({"picture": "x"}, "a.yml: slide 2 has picture"),
])
def test_what_is_missing_is_named(book, tmp_path, slide, told):
    (tmp_path / "chapters").symlink_to(book / "chapters")
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / "frame.html").write_text("$slides")
    (tmp_path / FOLDER / "a.yml").write_text(yaml.safe_dump(
        {"title": "a", "about": "a", "slides": [{"title": "b", **slide}]}))
    with pytest.raises(UserError, match=re.escape(told)):
        write_slides(tmp_path, tmp_path / "html")


def test_no_slide_is_larger_than_a_small_projector(made, browser):
    """With figures of the book's usual shape; a slide that is too long scrolls."""
    page = fresh_page(browser, viewport={"width": 1280, "height": 720})
    for file in made:
        page.goto(file.as_uri())
        for _ in range(page.locator("section").count()):
            size = page.evaluate("[document.documentElement.scrollWidth, "
                                 "document.documentElement.scrollHeight]")
            assert size == [1280, 720], page.locator("section:visible").inner_text()[:60]
            page.keyboard.press("ArrowRight")


def test_keys_turn_the_pages_and_print_shows_all(made, browser):
    page = fresh_page(browser, viewport={"width": 1200, "height": 800})
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.goto(made[0].as_uri())
    shown = page.locator("section:visible")
    titles = page.locator("section :is(h1, h2)").all_text_contents()
    assert shown.locator("h1, h2").all_text_contents() == titles[:1]
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    assert shown.locator("h1, h2").all_text_contents() == titles[1:2]
    assert not page.locator(".notes:visible").count()
    page.keyboard.press("n")
    assert "Minute" in page.locator(".notes:visible").inner_text()
    page.keyboard.press("n")
    with page.expect_popup() as opened:
        page.keyboard.press("p")
    presenter = opened.value
    for shown_at in (1, 2):  # keys of either window turn the pages of both
        assert shown.locator("h1, h2").all_text_contents() == [titles[shown_at]]
        assert "Minute" in presenter.locator("#told").inner_text()
        assert presenter.locator("#next h2").inner_text() == titles[shown_at + 1]
        assert presenter.locator("#at").inner_text() == f"{shown_at + 1} of {len(titles)}"
        presenter.keyboard.press("ArrowRight")
    page.keyboard.press("p")
    assert len(page.context.pages) == 2  # no second one
    page.keyboard.press("End")
    page.get_by_role("button", name="Next").click()  # there is nothing behind the last one
    assert shown.locator("h1, h2").all_text_contents() == titles[-1:]
    assert page.get_by_role("status").inner_text() == f"{len(titles)} of {len(titles)}"
    assert not presenter.locator("#next *").count()
    page.reload()
    assert presenter.is_closed()
    assert shown.locator("h1, h2").all_text_contents() == titles[-1:]
    page.emulate_media(media="print")
    assert shown.count() == len(titles) and not page.locator("nav:visible, .notes:visible").count()
    assert not problems
