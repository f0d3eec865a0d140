"""The base of every value that walks through the rooms."""

import msgspec


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """Immutable, compared by content, written to JSON as it is declared."""
