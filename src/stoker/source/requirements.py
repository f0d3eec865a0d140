"""Requirement files, as pip reads them: comments, continued lines, files that include others.

Independent of what is installed.
"""

import posixpath
import re
from collections.abc import Iterable, Iterator

from packaging.requirements import InvalidRequirement

from stoker.model.distribution import read_requirement
from stoker.source.files import TreeFiles

_MOST_LINES = 10_000
_MOST_INCLUDED = 100  # files
_COMMENT = re.compile(r"(?:^|\s)#.*")
_INCLUDE = re.compile(r"(?:-r|--requirement)[\s=]*(?P<file>\S.*)")
_OPTIONS_AFTER = re.compile(r"\s--.*")  # such as the --hash of a pinned requirement


def read_requirements(files: TreeFiles, file: str) -> tuple[str, ...]:
    """Return the requirements of a file and of the files it includes, each once."""
    return parse_requirements(files, _lines(files, file, visited=set()))


def parse_requirements(files: TreeFiles, lines: Iterable[tuple[str, str]]) -> tuple[str, ...]:
    """Return the valid PEP 508 requirements among lines with their places; note all other lines."""
    requirements: dict[str, None] = {}
    for count, (where, line) in enumerate(lines):
        if count >= _MOST_LINES:
            files.note(f"{where}: more than {_MOST_LINES:,} requirements: the rest was not read")
            break
        try:
            requirements[str(read_requirement(line))] = None
        except InvalidRequirement:
            files.note(f"{where}: not a requirement: {line[:200]}")
    return tuple(requirements)


def _lines(files: TreeFiles, file: str, visited: set[str]) -> Iterator[tuple[str, str]]:
    visited.add(file)
    for number, line in _joined_lines(files.text(file) or ""):
        where = f"{file}:{number}"
        line = _COMMENT.sub("", line).strip()
        if include := _INCLUDE.fullmatch(line):
            included = posixpath.normpath(posixpath.join(posixpath.dirname(file), include["file"]))
            if included.startswith(("/", "../")) or not files.is_file(included):
                files.note(f"{where}: {include['file']} is not in the tree")
            elif len(visited) >= _MOST_INCLUDED:
                files.note(f"{where}: {include['file']} is one file too many to read")
            elif included not in visited:
                yield from _lines(files, included, visited)
        # Other options say where pip looks, not what is needed.
        elif line and not line.startswith("-"):
            yield where, _OPTIONS_AFTER.sub("", line)


def _joined_lines(text: str) -> Iterator[tuple[int, str]]:
    """Return lines with continuations after a backslash joined, by the number of their
    last line.
    """
    line = ""
    for number, part in enumerate(text.splitlines(), start=1):
        line += part.removesuffix("\\")
        if not part.endswith("\\"):
            yield number, line
            line = ""
