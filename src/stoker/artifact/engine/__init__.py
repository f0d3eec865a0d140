"""Wheels as streams: read strictly, rewritten in one pass, the same bytes every time.

``open_wheel`` reads one, ``rewrite`` and ``pack`` write one; an ``Edit`` says what changes and a
``Content`` is where new bytes come from. What a wheel ought to hold is decided elsewhere.
"""

from stoker.artifact.engine.content import Content
from stoker.artifact.engine.directory import Limits, Member
from stoker.artifact.engine.edit import Edit
from stoker.artifact.engine.packing import pack, rewrite
from stoker.artifact.engine.wheel import Wheel, open_wheel

__all__ = ["Content", "Edit", "Limits", "Member", "Wheel", "open_wheel", "pack", "rewrite"]
