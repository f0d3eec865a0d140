"""Renders values as terminal pages, JSON, shell lines and error messages. Decides nothing."""

from stoker.model.errors import CommandError, StokerError
from stoker.model.secrets import redact


def error_text(error: StokerError) -> str:
    """Return the message, and each hint on a line of its own."""
    lines = [f"stoker: {error}"]
    if isinstance(error, CommandError) and error.output:
        lines += [f"    {line}" for line in error.output.splitlines()]
    lines += [f"  {hint}" for hint in error.hints]
    return "\n".join(map(redact, lines)) + "\n"
