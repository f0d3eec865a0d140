"""Names out of files that strangers made, fit for a terminal and for JSON."""


def printable(text: str) -> str:
    """The same, unless it holds control characters or bytes that were no text: those escaped."""
    return text if text.isprintable() else text.encode("unicode_escape").decode("ascii")
