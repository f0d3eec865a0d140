"""The base of every value that walks through the rooms."""

import msgspec

# What decoding JSON or TOML of strangers may raise: also for bytes that are no text, and nesting.
UNDECODABLE = (msgspec.MsgspecError, ValueError, RecursionError)
_MOST_TOML = 1 << 20  # characters
_MOST_DOTS = 2000  # of one line


def checked_toml(text: str) -> str:
    """Return the text, or raise ValueError where Python's reader would take much too long: for
    keys of many parts its time grows with the square of their number.
    """
    if len(text) > _MOST_TOML:
        raise ValueError(f"{len(text):,} characters are too many")
    for number, line in enumerate(text.splitlines(), start=1):
        if line.count(".") > _MOST_DOTS:
            raise ValueError(f"more than {_MOST_DOTS} dots (at line {number})")
    return text


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """Immutable, compared by content, written to JSON as it is declared."""
