"""The report of a model in a browser: one sheet, nothing loaded, nothing run."""

import io
import shutil
from unicodedata import normalize

from pypdf import PdfReader

from rmutils.book.chapters.your_own_model import OwnModelConfig, examine
from rmutils.book.tools.model_report import forecasts, summary
from rmutils.book.tools.model_report import page as document
from rmutils.models.loading import trained_folder
from tests.site.accessibility import barriers, faint
from tests.site.conftest import visiting
from tests.site.test_browser import TOO_WIDE

NAME = "<script>alert(1)</script><img src=x onerror=alert(2)>".replace("/", "|")


def test_a_copy_of_a_shipped_model_on_one_sheet(browser, cache, tmp_path):
    """What ships for the model is found for its copy, whatever that is called."""
    folder = shutil.copytree(trained_folder("tiny-llama"), tmp_path / NAME)
    own = examine(str(folder), OwnModelConfig(), compute="never", command="")
    assert all(artifact.shipped for artifact in own.artifacts)
    found = forecasts(own)
    (tmp_path / "report.html").write_text(document(own, found), encoding="utf-8")
    with visiting(browser, tmp_path.as_uri(), 390) as (page, problems):
        page.on("dialog", lambda dialog: problems.append(f"it ran: {dialog.message}"))
        page.goto(f"{tmp_path.as_uri()}/report.html")
        assert NAME in page.locator("h1").inner_text()
        assert page.locator("script").count() == 0 and page.locator("img").count() == 3
        assert page.locator("dd").all_inner_texts()[-len(summary(own, found)):] == list(
            summary(own, found)["found"])
        problems += page.evaluate(TOO_WIDE) + barriers(page) + faint(page, set())
        sheets = PdfReader(io.BytesIO(page.pdf(prefer_css_page_size=True))).pages
        assert len(sheets) == 1
        assert "effective heads" in normalize("NFKC", sheets[0].extract_text())  # of ligatures
    assert not problems
