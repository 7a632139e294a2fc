"""Short values stay as they are; of long ones and of paths only a mark is left. Types stay."""

import pytest
from docutils.utils import new_document
from sphinx.addnodes import desc_annotation

from rmutils.book.site.pages.extras import LONGEST, shorten
from rmutils.core.paths import DATA


@pytest.mark.parametrize("given, shown", [
    (" = 64", " = 64"),
    (f" = {'9' * LONGEST}", " = …"),
    (f" = {DATA!r}", " = …"),
    (f": Literal[{'x' * LONGEST}]", f": Literal[{'x' * LONGEST}]"),
])
def test_values(given, shown):
    page = new_document("page")
    page += desc_annotation("", given)
    shorten(None, page)
    assert page.astext() == shown
