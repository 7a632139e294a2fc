"""Instructions become responses and preference pairs."""

from rmutils.preference.instructions import SOURCES, Drawn, Instruction, draw

__all__ = ["SOURCES", "Drawn", "Instruction", "draw"]
