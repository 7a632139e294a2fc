"""Pages say their version, and lead to other versions that stand beside them, without a server."""

import re
import shutil

import pytest
import yaml
from playwright.sync_api import expect

import rmutils
from rmutils.book.site.pages import CHANGELOG, CITATION
from rmutils.book.site.pages.versions import LIST, has_later_changes, publish
from rmutils.core import paths
from rmutils.core.errors import UserError
from tests.site.conftest import fresh_page

PAGE = """<!DOCTYPE html><html data-content_root="{root}"><meta charset="utf-8">
<script src="{root}_static/version_list.js"></script>
<script src="{root}_static/versions.js"></script>
<p class="rm-version" data-version="{version}">Version {version}</p>"""


def test_package_citation_and_changes_have_one_version():
    changes = CHANGELOG.read_text(encoding="utf-8")
    released, date = re.search(r"^## \[(\d\S+)\] - (\S+)$", changes, re.MULTILINE).groups()
    known = yaml.safe_load(CITATION.read_text(encoding="utf-8"))
    assert rmutils.__version__ == known["version"] == released
    assert str(known["date-released"]) == date


def test_each_page_says_its_version(pages):
    later = has_later_changes(CHANGELOG.read_text(encoding="utf-8"))
    wanted = f"Version {rmutils.__version__}{' and later changes' * later}</a>"
    for page in ("index.html", "chapters/05_one.html"):
        text = (pages / page).read_text(encoding="utf-8")
        assert f'{"../" * page.count("/")}changes.html">{wanted}' in text
    assert has_later_changes("# C\n\n## [Unreleased]\n\n### Added\n\n- A.\n\n## [1.0.0] - 1\n")
    assert not has_later_changes("# C\n\n## [Unreleased]\n\n## [1.0.0] - 1\n\n- A.\n")


@pytest.fixture
def built(tmp_path):
    def build(version, *names):
        html = tmp_path / "built" / version
        shutil.rmtree(html, ignore_errors=True)
        (html / "_static").mkdir(parents=True)
        for name in ("versions.js", "version_list.js"):
            shutil.copy(paths.BOOK / "_static" / name, html / "_static")
        for name in names:
            (html / name).parent.mkdir(exist_ok=True)
            (html / name).write_text(PAGE.format(root="../" * name.count("/") or "./",
                                                 version=version))
        return html
    return build


def test_versions_know_one_another(built, tmp_path):
    folder = tmp_path / "all books"
    assert publish(built("1.9.0", "index.html"), folder, "1.9.0") == ["1.9.0"]
    assert publish(built("1.10.0", "index.html"), folder, "1.10.0") == ["1.10.0", "1.9.0"]
    assert "url=1.10.0/" in (folder / "index.html").read_text()
    lists = {(folder / name / LIST).read_text() for name in ("1.9.0", "1.10.0")}
    assert lists == {'window.rmVersions = [["1.10.0", ["index.html"]], '
                     '["1.9.0", ["index.html"]]];\n'}
    with pytest.raises(UserError, match="make book"):
        publish(tmp_path / "nothing", folder, "2.0.0")
    assert not (folder / "2.0.0").exists()


def test_a_list_leads_to_the_same_page_from_disk(built, tmp_path, browser):
    folder = tmp_path / "all books"
    publish(built("1.0.0", "index.html", "chapters/a.html"), folder, "1.0.0")
    page = fresh_page(browser)
    page.goto((folder / "1.0.0/chapters/a.html").as_uri())
    assert not page.locator("select").count()  # alone
    publish(built("1.1.0", "index.html", "chapters/a.html", "chapters/b.html"), folder, "1.1.0")
    page.goto((folder / "index.html").as_uri())
    page.wait_for_url("**/1.1.0/index.html")
    both, new = "chapters/a.html#x", "chapters/b.html"
    for start, end in ((both, both), (new, "index.html")):
        page.goto(f"{folder.as_uri()}/1.1.0/{start}")
        versions = page.get_by_label("Version of the book")
        assert versions.input_value() == "1.1.0"
        versions.select_option("1.0.0")
        page.wait_for_url(f"**/1.0.0/{end}")
        expect(page.locator(".rm-version")).to_contain_text("Version 1.0.0")
    page.context.close()
