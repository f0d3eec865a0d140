"""Reads what the preprocessor reads for a source, from the output of `gcc -E -fdirectives-only`.

That output has all text that remains after conditions are decided, with macros not expanded and
their definitions in place. Line markers say which file each part comes from.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b

from stoker.model.headers import Inclusion, Macros, Scan

_MARKER = re.compile(rb'\d+ "((?:[^"\\\n]|\\.)*)"([ \d]*)(?:\n|$)')
_ENTERS, _RETURNS, _OF_SYSTEM = b"1", b"2", b"3"
_COMMENT = rb"/\*(?s:.*?)\*/|//[^\n]*"
_COMMENTS = re.compile(_COMMENT)
_SILENT = re.compile(_COMMENT + rb"|^[ \t]*#(?:[^\\\n]|\\(?s:.))*", re.MULTILINE)
_DEFINES = re.compile(rb"^[ \t]*#[ \t]*(?:define|undef)[ \t]+(\w+)", re.MULTILINE)
_WORD = re.compile(rb"[A-Za-z_]\w*")


class _Open:
    """A file while it is read. ``silent`` as long as only comments and directives have come."""

    def __init__(self, path: str, parent: "_Open | None", of_system: bool):
        self.path = path
        self.parent = parent
        self.of_system = of_system
        self.silent: bool = True
        self.leading: bool = parent is None or parent.silent
        self.size = 0
        self.digest = blake2b(digest_size=8)

    @property
    def item(self) -> str:
        if self.parent is None:
            return ""
        if self.of_system:
            return self.path
        return f"{self.path}#{self.digest.hexdigest()}"


def read_scan(text: bytes) -> Scan:
    """Return the scan of a preprocessor's output."""
    files: dict[int, _Open] = {}
    macros: list[tuple[tuple[str, ...], _Open, int]] = []
    for top, part in _walk(text):
        files.setdefault(id(top), top)
        top.size += len(part)
        if not top.of_system:
            silent, names, lines = _facts(part)
            top.silent &= silent
            top.digest.update(lines)
            if names:
                macros.append((names, top, len(files) - 1))
    items = {key: file.item for key, file in files.items()}
    inclusions, before = _inclusions(list(files.values()), items)
    return Scan(
        inclusions=inclusions,
        macros=tuple(_macros(names, items[id(file)], before[at]) for names, file, at in macros),
    )


def words_in(text: bytes) -> frozenset[str]:
    """Return all identifiers in a preprocessor's output that do not come from the system."""
    words: set[bytes] = set()
    for top, part in _walk(text):
        if not top.of_system:
            words.update(_WORD.findall(_COMMENTS.sub(b" ", part)))
    return frozenset(map(_text, words))


def has_repeated_text(text: bytes) -> bool:
    """Return whether a file that the source itself includes repeatedly has declarations each time:
    it has no guard. The system's own files without a guard can be repeated.
    """
    first: dict[str, _Open] = {}
    for top, part in _walk(text):
        of_source = top.parent is not None and top.parent.parent is None and not top.of_system
        if of_source and _facts(part)[0] is False and first.setdefault(top.path, top) is not top:
            return True
    return False


def words_of_file(content: bytes) -> frozenset[str]:
    """Return all identifiers in a file, also where conditions leave them out."""
    return frozenset(map(_text, _WORD.findall(_COMMENTS.sub(b" ", content))))


def read_folders(said: str) -> tuple[str, ...] | None:
    """Return where gcc searches for headers, from what `gcc -E -v` prints; ``None`` for another
    compiler.
    """
    if "\ngcc version " not in said:
        return None
    lines = iter(said.splitlines())
    folders = []
    for line in lines:
        if line.startswith("#include <...>"):
            break
    for line in lines:
        if not line.startswith(" "):
            break
        folders.append(line.strip())
    return tuple(folders)


def _walk(text: bytes) -> Iterator[tuple[_Open, bytes]]:
    """Yield each part of a preprocessor's output with the file that it comes from."""
    stack: list[_Open] = []
    for path, flags, part in _parts(text):
        if not stack or _ENTERS in flags:
            parent = stack[-1] if stack else None
            stack.append(_Open(_text(path), parent, _OF_SYSTEM in flags))
        elif _RETURNS in flags and len(stack) > 1:
            stack.pop()
        # Macros of the compiler itself are no part of any file.
        yield stack[-1], b"" if path.startswith(b"<") else part


def _parts(text: bytes) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield each part between line markers, with its file and the marker's flags."""
    for piece in text.removeprefix(b"# ").split(b"\n# "):
        if marker := _MARKER.match(piece):
            yield marker[1], marker[2], piece[marker.end() :]


@lru_cache(maxsize=1 << 16)
def _facts(part: bytes) -> tuple[bool, tuple[str, ...], bytes]:
    """Return whether the text has no declarations, the macros it sets, and its lines.

    Empty lines are left out: where they are depends on which inclusions had nothing to add.
    """
    names = tuple(map(_text, _DEFINES.findall(part)))
    lines = b"".join(line + b"\n" for line in part.split(b"\n") if line.strip())
    return not _SILENT.sub(b"", part).strip(), names, lines


def _inclusions(
    files: list[_Open], items: dict[int, str]
) -> tuple[tuple[Inclusion, ...], list[int]]:
    """Return the first inclusion of each item, and how many there are up to each file. A repeated
    inclusion without text says nothing new.
    """
    found: dict[str, Inclusion] = {}
    before = [0]
    for file in files[1:]:
        item = items[id(file)]
        if item not in found and (file.of_system or file.size):
            parent = items[id(file.parent)]
            found[item] = _inclusion(file.path, item, parent, file.leading, file.size)
        before.append(len(found))
    return tuple(found.values()), before


@lru_cache(maxsize=1 << 16)
def _inclusion(path: str, item: str, parent: str, leading: bool, size: int) -> Inclusion:
    """Return one value for all sources that include a header in the same way."""
    return Inclusion(path=path, item=item, parent=parent, leading=leading, size=size)


@lru_cache(maxsize=1 << 16)
def _macros(names: tuple[str, ...], owner: str, position: int) -> Macros:
    return Macros(names=names, owner=owner, position=position)


def _text(name: bytes) -> str:
    return name.decode(errors="surrogateescape")
