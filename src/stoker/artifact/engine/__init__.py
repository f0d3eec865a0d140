"""Reads wheels strictly, and rewrites them in one streaming pass with reproducible bytes.

``open_wheel`` reads a wheel, ``rewrite`` and ``pack`` write one. An ``Edit`` describes the changes,
and a ``Content`` provides new bytes.
"""

from stoker.artifact.engine.content import Content
from stoker.artifact.engine.directory import Limits, Member
from stoker.artifact.engine.edit import Edit
from stoker.artifact.engine.packing import pack, rewrite
from stoker.artifact.engine.wheel import Wheel, open_wheel

__all__ = ["Content", "Edit", "Limits", "Member", "Wheel", "open_wheel", "pack", "rewrite"]
