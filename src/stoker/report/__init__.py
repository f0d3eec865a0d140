"""Renders values as terminal pages, JSON, shell lines and error messages. Decides nothing."""

import re

from stoker.model.errors import CommandError, StokerError
from stoker.model.secrets import redact

_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def error_text(error: StokerError) -> str:
    """Return the message, and each hint on a line of its own."""
    lines = [f"stoker: {error}"]
    if isinstance(error, CommandError) and error.output:
        lines += [f"    {line}" for line in error.output.splitlines()]
    lines += [f"  {hint}" for hint in error.hints]
    return "\n".join(map(redact, lines)) + "\n"


def xml_text(text: str) -> str:
    """Replace characters that XML cannot contain; programs may print them."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
