"""Explains files that are not found because a command splits their path at a space."""

import re
from collections.abc import Iterable, Iterator

from stoker.diagnose.lines import compiled
from stoker.diagnose.signs import LogSearch, Match, symptom

_MOST = 50
_PIECE = r"['\"\u2018`]?(?P<piece>(?:[A-Za-z]:)?[\w./\\@+~-]{2,200}?)['\"\u2019]?"
# What a tool says that it does not find: the part of a path before a space, or after it.
_NOT_OPENED = r"(?:can't open file|cannot open|[Cc]an't open|file not found|could not open)"
_NOT_FOUND = (
    r"(?:No such file or directory|not found|command not found|linker input file|[Ii]s a dir)"
)
_BY = r"(?:error|fatal|sh|bash|env|cp|mv|ar|rm|cd|ld|make(?:\[\d+\])?): (?:line \d{1,5}: )?"
_MISSING = (
    rf"[Nn]o such file or directory: {{1,2}}{_PIECE}(?:,|$|\s)",
    rf"{_NOT_OPENED}(?: (?:input )?file)?:? {_PIECE}(?::|$|\s)",
    rf"{_BY}{_PIECE}: {_NOT_FOUND}",
    rf"CMake Error: (?:The source directory|Unknown argument) {_PIECE}",
)
PATTERNS = _MISSING


def split_paths(search: LogSearch) -> Iterator[Match]:
    """Yield the missing files whose names are a part of a path with a space."""
    pieces: dict[str, int] = {}
    for pattern in _MISSING:
        for line, found in search.texts.search(pattern, most=_MOST).items():
            if "/" in found["piece"] or "\\" in found["piece"]:
                pieces.setdefault(found["piece"], line)
    for piece, line in pieces.items():
        if path := _whole_path(search, piece, pieces.keys()):
            yield symptom("path-with-space", line, 0.93, {"path": path})
            return


def _whole_path(search: LogSearch, piece: str, pieces: Iterable[str]) -> str:
    """Return the path with a space that a piece is of; empty if the log has none."""
    if _is_absolute(piece):
        after = rf"(?P<path>{re.escape(piece)} [\w.()-]{{1,60}}[/\\][^\s'\":;,]{{0,200}})"
        quoted = rf"['\"`(]{after}|^\s*{after.replace('?P<path>', '?P<begin>')}"
        return _first(search, quoted, piece) or _joined(piece, pieces)
    before = r"(?:[A-Za-z]:)?[/\\][^\s'\":;,]{1,200}"
    quoted = rf"['\"`(](?P<path>{before} {re.escape(piece)})"
    by_option = rf"\s-(?:L|I|isystem |B)(?P<path>{before} {re.escape(piece)})(?=\s|$)"
    is_file = re.search(r"\.(?:o|obj|c|cc|cpp|cxx|h|S)$", piece)
    return _first(search, quoted, piece) or ("" if is_file else _first(search, by_option, piece))


def _first(search: LogSearch, pattern: str, piece: str) -> str:
    for line in search.texts.having(piece):
        if found := re.search(pattern, search.lines[line].text):
            return str(next(filter(None, found.groups())))
    return ""


def _joined(piece: str, pieces: Iterable[str]) -> str:
    """Return the path of two pieces that are both missing, the second of which begins nowhere."""
    others = [one for one in pieces if not _is_absolute(one) and not one.startswith(".")]
    return f"{piece} {others[0]}" if others else ""


def _is_absolute(path: str) -> bool:
    return bool(compiled(r"(?:[A-Za-z]:)?[/\\]").match(path))
