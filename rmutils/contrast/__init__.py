"""Instructions become responses and preference pairs."""

from rmutils.contrast.instructions import SOURCES, Drawn, Instruction, draw

__all__ = ["SOURCES", "Drawn", "Instruction", "draw"]
