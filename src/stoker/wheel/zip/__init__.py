"""Reads wheels strictly, and rewrites them in one streaming pass with reproducible bytes.

``open_wheel`` reads a wheel, and ``rewrite`` writes one. An ``Edit`` describes the changes, and a
``Content`` provides new bytes.
"""

from stoker.wheel.zip.archive import Content, Wheel, open_wheel
from stoker.wheel.zip.directory import Member, ZipLimits
from stoker.wheel.zip.rewriting import Edit, rewrite

__all__ = ["Content", "Edit", "Member", "Wheel", "ZipLimits", "open_wheel", "rewrite"]
