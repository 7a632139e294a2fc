"""Extension of Sphinx: the book's address, and links that open the playground with a scene."""

import os

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import ReferenceRole

VARIABLE = "RMUTILS_ADDRESS"
PAGE = "playground.html"


def connect(app: Sphinx) -> None:
    """Add the role to a build and, where the address is known, cards for links and a map."""
    app.add_role("scene", Scene())
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


class Scene(ReferenceRole):
    """The role `scene`: a link that opens the playground with a scene set."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        up = "../" * self.env.docname.count("/")
        return [nodes.reference(
            self.rawtext, self.title, refuri=f"{up}{PAGE}#{self.target}", internal=True)], []
