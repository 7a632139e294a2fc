"""Every number that prose shows, once: a module for each chapter, and `say`, which shows them."""

from rmutils.book.findings.prose import say
from rmutils.book.findings.registry import Finding, Measured, declare, finding

__all__ = ["Finding", "Measured", "declare", "finding", "say"]
