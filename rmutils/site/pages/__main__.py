"""All pages by Sphinx, with a process for each core: `python -m rmutils.site.pages SOURCE FRESH`.

Jupyter Book's own command takes one process. Its settings are read by its own function, so the
pages are the same. A warning is an error.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from jupyter_book.sphinx import build_sphinx


def main(source: Path, fresh: Path) -> int:
    """Write `_build/html` of a folder; the exit status."""
    result = build_sphinx(
        source, fresh / "_build" / "html", noconfig=True, path_config=source / "_config.yml",
        confoverrides={"external_toc_path": str(source / "_toc.yml"), "nitpicky": True,
                       "latex_individualpages": False},
        warningiserror=True, keep_going=True, jobs=os.cpu_count())
    if isinstance(result, Exception):
        raise result
    return result


if __name__ == "__main__":
    sys.exit(main(*(Path(argument).absolute() for argument in sys.argv[1:])))
