"""The cost of large models and long contexts from shapes and counts: work, memory, exchange."""

from rmutils.book.chapters.scale.work import MACHINES, SHAPES, Assumptions, Machine, Shape, shape_of

__all__ = ["MACHINES", "SHAPES", "Assumptions", "Machine", "Shape", "shape_of"]
