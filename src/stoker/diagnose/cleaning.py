"""Restores a line as the tool printed it, without what terminals and CI systems added to it."""

import re

LONGEST = 4096  # characters that are looked at as one line

_DATE = r"\d{4}-\d\d-\d\d"
_TIME = r"\d{1,2}:\d\d:\d\d(?:[.,]\d{1,9})?"
_STAMP = rf"{_DATE}[T ]{_TIME}(?:Z| ?[+-]\d\d:?\d\d)?"

# Colours, cursor movements, titles and other commands to the terminal.
_ESCAPES = re.compile(
    r"\x1b(?:\[[0-9;:?]{0,40}[ -/]{0,4}[@-~]|[\]_PX^][^\x07\x1b]{0,400}(?:\x07|\x1b\\)"
    r"|[()][0-9A-B]|[=>78cDEHM])"
)
_PREFIX = re.compile(
    "|".join(
        (
            rf"[^\t]{{1,80}}\t[^\t]{{1,80}}\t(?=\ufeff?{_DATE})",  # GitHub: job, step
            rf"\ufeff?\[?{_STAMP}\]?(?: \d\d[OE]\+?)?(?:[ \t:]|$)",  # most CI systems
            rf"\[?{_TIME}\]?[:]?(?:[ \t]|$)",
            r"#\d{1,4} (?:\d{1,6}\.\d{1,3}(?: |$))?",  # docker build
            # docker build, shown again with the error: four digits, or more before the point
            r"\s{0,8}(?:\d\.\d{3}|\d\d\.\d\d|\d{3,6}\.\d)(?: |$)",
            r">{1,2} (?!\[)",  # quoted in a message
            r" => => # ",
            r"[a-z][\w.-]{0,40}[-_]\d{1,3}[ \t]{1,20}\| ",  # docker compose
            r"\[(?:rank|default)\d{1,4}\]: ?",  # torchrun
            r"\([\w ]{1,40}pid=\d{1,9}\) ",  # Ray, vLLM
            r"(?:INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d \[[\w./-]{1,80}:\d{1,5}\] ",
            r"##?\[(?:error|warning|command|debug|section)\]",
            r"section_(?:start|end):\d{1,12}:[\w.-]{1,80}(?:\[[^\]]{0,80}\])?",  # GitLab
        )
    )
)
_MOST_PREFIXES = 4


def clean(text: str) -> str:
    """Return the text without escapes, prefixes and trailing blanks; indentation and progress are
    kept.
    """
    if "\x1b" in text:
        text = _ESCAPES.sub("", text)
    for _ in range(_MOST_PREFIXES):
        if not (prefix := _PREFIX.match(text)):
            break
        text = text[prefix.end() :]
    return text.rstrip()
