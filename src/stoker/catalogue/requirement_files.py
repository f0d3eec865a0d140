"""Reads requirement files: names with versions and markers, comments, and other such files."""

import re
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from stoker.model.distribution import read_requirement
from stoker.model.errors import UsageError, unreadable

_COMMENT = re.compile(r"(^|\s)#.*$")
_INCLUDED = re.compile(r"(?:-r\s*|--requirement[\s=]+)(\S.*)")
_DEEPEST = 20


def read_requirement_file(path: Path, depth: int = 0) -> Iterator[Requirement]:
    """Yield the requirements of a file and of those that it names."""
    if depth > _DEEPEST:
        raise UsageError(f"{path} includes itself, or files that are nested too deeply")
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise unreadable(path, error) from error
    except UnicodeDecodeError as error:
        raise UsageError("not UTF-8 text", where=str(path)) from error
    for number, line in enumerate(text.replace("\\\n", " ").splitlines(), start=1):
        line = _COMMENT.sub("", line).strip()
        if included := _INCLUDED.fullmatch(line):
            yield from read_requirement_file(path.parent / included[1], depth + 1)
        elif line:
            yield _read(line, f"{path}:{number}")


def _read(line: str, where: str) -> Requirement:
    if line.startswith("-"):
        raise UsageError(
            f"'{line.split()[0]}' is an option of pip, which a file for stoker cannot have",
            where=where,
            hints=["`pip config set global.index-url URL` sets an index for pip and stoker"],
        )
    try:
        requirement = read_requirement(line)
    except InvalidRequirement as error:
        hints = ["write one project in each line, such as flash-attn>=2.8"]
        raise UsageError(f"'{line[:60]}' is not a requirement", where=where, hints=hints) from error
    if requirement.url:
        raise UsageError(
            f"'{line[:60]}' is a URL, so there is nothing to choose: install it with pip",
            where=where,
        )
    return requirement
