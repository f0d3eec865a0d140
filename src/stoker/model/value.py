"""The base class of all values, and limits for decoding them from untrusted text."""

import msgspec

# What decoding untrusted JSON or TOML may raise, also for bytes that are not text and deep nesting.
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
    """The base class of values: immutable, compared by content, stored as JSON as declared."""
