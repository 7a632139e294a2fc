"""Cards for links to a page (Open Graph) and a map of the site: both need the book's address.

The address is set in one place, `html: baseurl` of `book/_config.yml`, or by the environment
variable `RMUTILS_ADDRESS`, as the workflow that publishes the book does. Without it no page names
an address, and there are neither cards nor a map: both would be wrong.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

VARIABLE = "RMUTILS_ADDRESS"


def connect(app: Sphinx) -> None:
    """Add this to a build."""
    address = os.environ.get(VARIABLE) or app.config.html_baseurl
    if not address:
        return
    address = address.rstrip("/") + "/"
    app.config.html_baseurl = address
    for extension in ("sphinxext.opengraph", "sphinx_sitemap"):
        app.setup_extension(extension)
    app.config.ogp_site_url = address
    app.config.ogp_site_name = app.config.html_title
    app.config.ogp_enable_meta_description = True
    app.config.sitemap_url_scheme = "{link}"
    app.config.sitemap_excludes = ["search.html", "genindex.html", "py-modindex.html"]
