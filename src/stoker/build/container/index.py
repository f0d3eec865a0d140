"""Passes pip's settings, and the folders that they name, to a container."""

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import unquote, urlsplit

from stoker.model.value import Value

_LINE = re.compile(r"(?:global|install|:env:)\.([\w-]+)='(.*)'")


class Index(Value, frozen=True, kw_only=True):
    """Pip's settings. ``variables`` have the same meaning for a pip without a
    configuration file.
    """

    variables: dict[str, str] = {}
    paths: tuple[str, ...] = ()


def read_index(listed: str) -> Index:
    """Return the settings of ``pip config list``. Later lines override earlier ones; the
    environment wins.
    """
    found: dict[str, str] = {}
    from_environment: dict[str, str] = {}
    for line in listed.splitlines():
        if setting := _LINE.fullmatch(line):
            into = from_environment if line.startswith(":env:") else found
            into[f"PIP_{setting[1].upper().replace('-', '_')}"] = setting[2].replace("\\n", " ")
    variables = found | from_environment
    return Index(variables=variables, paths=_paths(variables))


def _paths(variables: Mapping[str, str]) -> tuple[str, ...]:
    words = (word for value in variables.values() for word in value.split())
    local = (_folder_of(word) for word in words)
    return tuple(dict.fromkeys(str(path) for path in local if path.is_absolute() and path.exists()))


def _folder_of(word: str) -> Path:
    """Return the folder to mount: an index of pages called ``simple`` refers to files beside it."""
    if not word.startswith("file:"):
        return Path(word)
    path = Path(unquote(urlsplit(word).path))
    return path.parent if path.name == "simple" else path
