"""Pages of our own that need no Sphinx: their HTML, CSS and JavaScript, a file each."""

from pathlib import Path


def template(name: str) -> str:
    """Read a file of this folder."""
    return (Path(__file__).parent / name).read_text(encoding="utf-8")
