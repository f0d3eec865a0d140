"""The base of every value that walks through the rooms."""

import msgspec

# What decoding JSON or TOML of strangers may raise: also for bytes that are no text, and nesting.
UNDECODABLE = (msgspec.MsgspecError, ValueError, RecursionError)


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """Immutable, compared by content, written to JSON as it is declared."""
