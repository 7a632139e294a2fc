"""The results as a paper of at most ten pages: `make report`."""

import re
from base64 import b64encode
from collections.abc import Callable
from html import escape
from io import BytesIO, StringIO
from string import Formatter

from markdown_it import MarkdownIt
from matplotlib.figure import Figure
from pybtex import format_from_file
from pypdf import PdfReader

from rmutils.book import figures
from rmutils.book.chapters.data_and_training import findings as data_and_training
from rmutils.book.chapters.essay import findings as essay
from rmutils.book.chapters.essay import plots
from rmutils.book.chapters.main_tables import findings as pooled_leads
from rmutils.book.chapters.masking_sweep import findings as masking_sweep
from rmutils.book.chapters.redirect_heads import findings as redirect_heads
from rmutils.book.chapters.training_effect import findings as training_effect
from rmutils.book.findings import OWN_RUN, SHOWN, UNDECIDED, Finding, Verdict, named_finding, say
from rmutils.book.site.pages import CITATION
from rmutils.book.site.pdf import browsing, print_html
from rmutils.book.site.steps import STATE
from rmutils.book.templates import template
from rmutils.core import paths
from rmutils.core.errors import UserError, exit_with_message
from rmutils.core.files import parse_yaml, read_yaml
from rmutils.paper import load_published_maps

SOURCE, OUTPUT = paths.ROOT / "report" / "report.md", paths.ROOT / STATE / "report" / "report.pdf"
DECLARED = data_and_training, essay, masking_sweep, redirect_heads, training_effect
"""Modules whose findings the text may name."""
MOST_PAGES = 10  # what tracks for reproductions allow
DRAWN: dict[str, Callable[[], Figure]] = {
    "few-heads": lambda: plots.few_heads(*essay.few_heads(4)),
    "heads-that-hold": lambda: plots.heads_that_hold(*essay.needles_by_count()),
    "beside-controls": lambda: plots.beside_controls(*pooled_leads.beside_controls()),
    "published-runs": lambda: plots.published_runs(load_published_maps())}
"""Figures that the text may show."""


def written(source: str) -> str:
    """Return the text with its findings, as Markdown with the title on top."""
    _, head, body = source.split("---\n", 2)
    about = parse_yaml(head, "the report")
    known = {name: named_finding(*asked) for name, asked in about["findings"].items()}
    expected: dict[str, Verdict] = {
        name: UNDECIDED if name in about["undecided"] else SHOWN for name in known}
    told = [_told(paragraph, known, expected) for paragraph in body.strip().split("\n\n")]
    return "\n\n".join([f"# {about['title']}", *(re.sub("^#", "##", one) for one in told)])


def _told(paragraph: str, known: dict[str, Finding], expected: dict[str, Verdict]) -> str:
    names = {name for _, name, _, _ in Formatter().parse(paragraph) if name}
    if unknown := names - known.keys():
        raise UserError(f"{SOURCE.name}: no finding is called {', '.join(sorted(unknown))}")
    text = str(say(paragraph, expect={name: expected[name] for name in names},
                   **{name: known[name] for name in names}).data)
    if text.startswith((OWN_RUN, "Not computed yet.")):
        raise UserError(f"{SOURCE.name} says {paragraph[:60]!r}, but: {text}")
    return re.sub(r"\[([^]]*)\]\(#[^)]*\)", r"\1", text)  # the book's figures are not here


def document(text: str) -> str:
    """Return the paper as HTML, figures and references in it."""
    cited = dict.fromkeys(re.findall(r"\[(\w+\d{4}\w+)\](?!\()", text))
    numbers = {key: number for number, key in enumerate(cited, 1)}
    text = re.sub(r"\[(\w+\d{4}\w+)\](?!\()", lambda one: f"[{numbers[one[1]]}]", text)
    html = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    html = re.sub(r'<p><img src="([\w-]+)" alt="([^"]*)" /></p>', _figure, html)
    listed = format_from_file(str(paths.BOOK / "references.bib"), style="unsrt",
                              citations=list(cited), output_backend="html")
    authors = read_yaml(CITATION)["authors"]
    by = ", ".join(escape(one.get("name") or f"{one['given-names']} {one['family-names']}")
                   for one in authors)
    html = html.replace("</h1>", f"</h1>\n<p><i>{by}</i></p>", 1)
    references = listed[listed.index("<dl>"):listed.index("</dl>")]
    return f"{template('short_report.html')}{html}{references}</dl>"


def _figure(found: re.Match[str]) -> str:
    figures.use_style()
    picture = StringIO()
    DRAWN[found[1]]().savefig(picture, format="svg", bbox_inches="tight")
    data = b64encode(picture.getvalue().encode()).decode()
    return (f'<figure><img alt="" src="data:image/svg+xml;base64,{data}">'
            f"<figcaption>{found[2]}</figcaption></figure>")


def main() -> None:
    """Write the PDF; exit status 2 if something is missing or it has become too long."""
    with exit_with_message():
        text = document(written(SOURCE.read_text(encoding="utf-8")))
        with browsing() as browser:
            printed: BytesIO = print_html(browser, [text])[0]
        pages = len(PdfReader(printed).pages)
        if pages > MOST_PAGES:
            raise UserError(f"the report has {pages} pages, and may have {MOST_PAGES}")
        OUTPUT.parent.mkdir(parents=True, exist_ok=True)
        OUTPUT.write_bytes(printed.getvalue())
    print(f"{pages} pages: {OUTPUT}")


if __name__ == "__main__":
    main()
