"""Restores a line as the tool printed it, without what terminals and CI systems added to it."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

LONGEST = 4096  # characters that are looked at as one line
_DATE = r"\d{4}[-/]\d\d[-/]\d\d"
_TIME = r"\d{1,2}:\d\d:\d\d(?:[.,]\d{1,9})?"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_STAMP = rf"{_DATE}[T ]{_TIME}(?:Z| ?[+-]\d\d:?\d\d)?"
# Colours, cursor movements, titles and other commands to the terminal. These patterns are compiled
# at first use, by re itself: most runs of a command succeed.
_ESCAPES = (
    r"\x1b(?:\[[0-9;:?]{0,40}[ -/]{0,4}[@-~]|[\]_PX^][^\x07\x1b]{0,400}(?:\x07|\x1b\\)"
    r"|[()][0-9A-B]|[=>78cDEHM])"
)
# What is left of a link around the name of a warning where only the escape itself was taken away.
_LINK_LEFT = r"\]?8;;(?:https?://[^\s\]]{1,200}?(?P<option>W[\w=+-]{2,80}?)(?=-(?P=option)))?"
_BYTES = r"(?:<[89A-F][0-9A-F]>){2,4}"  # a character of UTF-8 that a pager or a log writer escaped
_ENTITY = r"&(?:lt|gt|quot|#39|#x27|amp);"  # of a page that was copied as its source
_PREFIX = "|".join(
    (
        rf"[^\t]{{1,80}}\t[^\t]{{1,80}}\t(?=\ufeff?{_DATE})",  # GitHub: job, step
        rf"\ufeff?\[?{_STAMP}\]?(?: \d\d[OE]\+?)?(?: \| ?|[ \t:]|$)",  # most CI systems
        rf"\[?{_TIME}\]?[:]?(?:[ \t]|$)",
        r"\s?:?[ \t]{0,4}\[Step \d{1,3}/\d{1,3}\] ",  # TeamCity
        r"(?:stdout|stderr) [FP] ",  # Kubernetes
        # ts, and the journal of systemd
        rf"{_MONTH} [ \d]\d {_TIME} (?:[\w.-]{{1,80}} [\w./@-]{{1,80}}\[\d{{1,9}}\]: )?",
        r"\s{0,8}\d{1,6}\.\d{1,3}s (?=\S)",
        r"\[\s{0,8}\d{1,6}\.\d{3,6}\] ",
        r"#\d{1,4} (?:\d{1,6}\.\d{1,3}(?: |$))?",  # docker build
        # docker build, shown again with the error: four digits, or more before the point
        r"\s{0,8}(?:\d\.\d{3}|\d\d\.\d\d|\d{3,6}\.\d)(?: |$)",
        r">{1,2} (?!\[)",  # quoted in a message
        r" => => # ",
        r"\s{2,12}> (?=\S)",  # nix, with the last lines of a log
        r"\| (?=\S)",  # bitbake
        r"[A-Za-z][\w.+-]{1,40}\| {1,2}(?=\S)",  # meson, by subproject
        r" ?│ ?│ ",  # rattler-build
        r"\s{0,4}\d{1,3}>(?=[A-Za-z]:\\|\S{1,100}[.:(])",  # MSBuild, by project
        r"\s{0,4}>> \d{1,7}\s{1,8}(?=\S)",  # spack
        r"\s{0,4}\d{1,7}:\t(?=\S)",  # numbered, as grep -n does
        r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d (?:WARN|INFO|ERRO) ",  # melange
        # what a build script of cargo prints of its compiler
        r"(?:warning: [\w-]{1,60}@[\w.+-]{1,30}: |\s{0,4}cargo:warning=)(?=.{0,200}error\b)",
        r":(?:info|debug|error|msg|notice|warn):\w{1,20} (?=\S|\s{1,8}\d)",  # MacPorts
        r"npm (?:error|ERR!) (?=\S{1,200}:\d{1,6}(?::\d{1,5})?: |make|ninja|In file included)",
        r"[a-z][\w.-]{0,40}[-_]\d{1,3}[ \t]{1,20}\| ",  # docker compose
        r"\[[\w.+-]{1,60}\] {1,4}\[spkg-install\] {1,2}",  # Sage
        r"\[(?:rank|default)\d{1,4}\]: ?",  # torchrun
        r"\([\w ]{1,40}pid=\d{1,9}\) ",  # Ray, vLLM
        r"(?:INFO|WARNING|ERROR) \d\d-\d\d \d\d:\d\d:\d\d \[[\w./-]{1,80}:\d{1,5}\] ",
        r"\[(?:build|cmake|proc|main)\] ",  # editors
        r"##?\[(?:error|warning|command|debug|section)\]",
        r"section_(?:start|end):\d{1,12}:[\w.-]{1,80}(?:\[[^\]]{0,80}\])?",  # GitLab
    )
)
_MOST_PREFIXES = 4
# What a prefix begins with, or has in it if it begins with a letter.
_FIRST = "[#>=:│(\ufeff"
_WITHIN = (
    "@",
    "cargo:warning=",
    "| ",
    "npm ",
    "INFO ",
    "WARNING ",
    "ERROR ",
    "section_",
    "[Step ",
    "stdout ",
    "stderr ",
)
_PREFIX_ENDS = 200
# A log that was pasted as one line is as long as this, and has so many beginnings of lines in it.
_FOLDED = 150
_LEAST_BEGINNINGS = 2
_BREAK = "\\n"  # a backslash and a letter
_OF_WINDOWS = r"\b[A-Za-z]:\\"  # where it may be a part of a path
# What most lines of a log may begin with: a name, a time or a number, and a mark that ends it.
_HEAD = (
    r"(?!\s{0,8}\d{1,7} [>|])"  # a line of source that a compiler quotes
    r"(?!\s{0,8}\[\s{0,4}\d{1,7}\s?(?:/|%|\])|\[?(?:INFO|WARN|ERROR|DEBUG|NOTE|error|warning)\b)"
    r"(?P<prefix>[\w\[(][\w.@ :,+()-]{0,60}(?:[>|]|(?<=[A-Za-z])\])(?: |$))"
)
_FEWEST_PREFIXED = 5
_MOST_OF_ALL = 0.7
# The field of a record of JSON in which a tool puts what another one printed.
_FIELD = (
    r"^\s{0,40}(?:\{.{0,2000}?)?\"(?:message|msg|log|stream|rendered|text|line|output|stderr)\"\s?:\s?"
    r"(?P<said>\"(?:[^\"\\]|\\.){12,4000}\")\s{0,4}[,}]?"
)
_BEGINNINGS = (
    r" (?=\[\d{1,6}/\d{1,6}\] [A-Z]|\[ {0,2}\d{1,3}%\] [A-Z]|FAILED: |ninja: "
    r"|g?make(?:\[\d+\])?: \*\*\* "
    r"|[\w./+-]{1,200}:\d{1,6}:\d{1,5}: (?:fatal |internal compiler )?(?:error|note): |CMake Error"
    r"|Traceback \(most recent|  File \"|[A-Z]\w{2,40}Error: |ERROR: |collect2: "
    r"|compilation terminated|/usr/bin/ld: |nvcc fatal)"
)


def clean(text: str) -> str:
    """Return the text without escapes, prefixes and trailing blanks; indentation and progress are
    kept.
    """
    if "\x1b" in text:
        text = re.sub(_ESCAPES, "", text)
    if "8;;" in text:
        text = re.sub(_LINK_LEFT, "", text)
    if "&" in text and re.search(_ENTITY, text):
        from html import unescape  # its table of entities is large, and few logs need it

        text = unescape(text)
    if "<E" in text or "<C" in text:
        text = re.sub(_BYTES, _character, text)
    for _ in range(_MOST_PREFIXES):
        if not (_may_have_prefix(text) and (prefix := re.match(_PREFIX, text))):
            break
        text = text[prefix.end() :]
    return text.rstrip()


def _character(escaped: re.Match[str]) -> str:
    escapes = escaped[0].replace("<", "").replace(">", "")
    return bytes.fromhex(escapes).decode(errors="replace")


def said_in_json(text: str) -> list[str]:
    """Return the lines in the field of a record that has what a tool printed; empty if there is
    none.
    """
    is_record = text.lstrip()[:1] in ("{", '"') and '"' in text[2:]
    found = re.match(_FIELD, text) if is_record else None
    if not found:
        return []
    import json  # few logs are records

    try:
        said = json.loads(found["said"])
    except ValueError:
        return []
    return [clean(line) for line in said.splitlines()] if " " in said else []


def _may_have_prefix(text: str) -> bool:
    """Return whether a prefix is possible: most lines have none, and the pattern is a large one."""
    begin = text.lstrip()
    if "\t" in text[:_PREFIX_ENDS]:
        return True
    if begin[:1].isdigit():  # not a number alone, which is that of a line of source
        return not begin.split(None, 1)[0].isdigit()
    if begin and (begin[0] in _FIRST or text[0] == "|"):
        return True
    if text[3:4] == " " and text[4:6].strip().isdigit():  # a month and a day
        return True
    return any(mark in text[:_PREFIX_ENDS] for mark in _WITHIN)


def shared_prefix(texts: Sequence[str]) -> str:
    """Return a pattern of what most lines of a log begin with, such as the name of the part of a
    build in brackets; empty if there is no such thing.
    """
    heads = [head["prefix"] for text in texts if text and (head := re.match(_HEAD, text))]
    shapes = Counter(re.sub(r"\d", "0", head) for head in heads)
    lines = sum(1 for text in texts if text)
    for shape, count in shapes.most_common(1):
        if count >= _FEWEST_PREFIXED and count >= lines * _MOST_OF_ALL:
            return re.sub("0+", r"\\d{1,12}", re.escape(shape))
    return ""


def unfolded(text: str) -> list[str]:
    """Return a line, or the lines of a log that was pasted as one, or as a text of JSON."""
    if text.count(_BREAK) >= _LEAST_BEGINNINGS and not re.search(_OF_WINDOWS, text):
        plain = text.replace("\\t", "\t").replace('\\"', '"').strip(' ",')
        return [line.rstrip() for line in plain.replace("\\r", "").split(_BREAK)]
    if len(text) < _FOLDED:
        return [text]
    starts = [found.start() + 1 for found in re.finditer(_BEGINNINGS, text)]
    if len(starts) < _LEAST_BEGINNINGS:
        return [text]
    return [text[begin:end].rstrip() for begin, end in pairwise([0, *starts, len(text)])]
