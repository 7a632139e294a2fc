"""The cost of large models and long contexts from shapes and counts: work, memory, exchange.

Nothing here is measured. Formulas give operations, bytes and bytes sent; with the published rates
of an accelerator, and an assumed share of them, these become hours.
"""

from rmutils.book.chapters.scale.work import MACHINES, SHAPES, Assumptions, Machine, Shape, shape_of

__all__ = ["MACHINES", "SHAPES", "Assumptions", "Machine", "Shape", "shape_of"]
