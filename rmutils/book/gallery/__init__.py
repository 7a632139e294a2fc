"""The run gallery: a page of the book for each notebook that was run with other parameters.

`rmutils run` writes `book/runs/NOTEBOOK/NAME.ipynb` when a run is whole. Each such file becomes a
page at the next build: its parameters, and its outputs beside those of the chapter.
"""

from rmutils.book.gallery.pages import write
from rmutils.book.gallery.runs import NAME, Run, files

__all__ = ["NAME", "Run", "files", "write"]
