"""Operators on numbers: ``kiln.apply("sine", [0.5])``; ``kiln.operators()`` names them all."""

from kiln._kiln import apply, operators

__all__ = ["apply", "operators"]
