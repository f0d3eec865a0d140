"""Text from outside as people may see it: on a terminal, in a page, in the log of a CI system.

A file name, a message of a compiler or the description of a package may contain characters that a
terminal obeys, or that show the text in another order than it is read. They are written as escapes,
which are also valid inside a JSON string and mean the same there.
"""

import re
from functools import cache

# Controls but for tab and line feed, invisible characters and those that set a direction or break
# lines. U+200C and U+200D remain: scripts and emoji need them, and they move nothing.
_INVISIBLE = (
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u180e\u200b\u200e\u200f\u2028-\u202e"
    r"\u2060-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff]"
)


def visible(text: str) -> str:
    """Return a text with escapes such as ``\\u202e`` for what cannot be seen."""
    return _search().sub(lambda found: escape(found[0]), text)


def visible_in_json(json: str) -> str:
    """Return JSON for a script that shows the texts in it, each as ``visible`` returns it."""
    return _search().sub(lambda found: escape(found[0]).replace("\\", r"\\"), json)


def escape(character: str) -> str:
    """Return a character as JSON and Python write it with ASCII alone."""
    number = ord(character)
    if number < 0x10000:
        return f"\\u{number:04x}"
    number -= 0x10000
    return f"\\u{0xD800 + (number >> 10):04x}\\u{0xDC00 + (number & 0x3FF):04x}"


@cache
def _search() -> re.Pattern[str]:
    return re.compile(_INVISIBLE)  # at first use: it takes longer than the import
