"""What CMake leaves in a build folder: where the sources are, and the targets.

CMake's file API answers a query when it configures: ``ask`` leaves the query, ``read_targets``
reads the answer. A folder that was configured without a query has none.
"""

import re
from contextlib import suppress
from pathlib import Path

from stoker.model.value import Value
from stoker.outside.files import read_json

_API = Path(".cmake/api/v1")
_KIND = "codemodel"
_SOURCES = re.compile(r"^CMAKE_HOME_DIRECTORY:\w+=(.*)$", re.MULTILINE)


class _Path(Value, frozen=True):
    path: str


class CMakeTarget(Value, frozen=True, rename="camel"):
    """A target as CMake writes it. Paths below the build folder are relative to it."""

    name: str
    type: str
    artifacts: tuple[_Path, ...] = ()
    sources: tuple[_Path, ...] = ()


class _File(Value, frozen=True, rename="camel"):
    json_file: str
    kind: str = ""


class _Index(Value, frozen=True):
    objects: tuple[_File, ...]


class _Configuration(Value, frozen=True):
    targets: tuple[_File, ...]


class _CodeModel(Value, frozen=True):
    configurations: tuple[_Configuration, ...]


def ask_for_targets(folder: Path) -> None:
    """Ask the next run of CMake for the targets. A folder that cannot be written is left alone."""
    query = folder / _API / "query" / f"{_KIND}-v2"
    with suppress(OSError):
        query.parent.mkdir(parents=True, exist_ok=True)
        query.touch()


def read_targets(folder: Path) -> tuple[CMakeTarget, ...]:
    """Return the targets of the first configuration; none where CMake gave no answer."""
    reply = folder / _API / "reply"
    latest = max(reply.glob("index-*.json"), default=None)
    index = read_json(latest, _Index) if latest else None
    models = [_named(reply, file) for file in index.objects if file.kind == _KIND] if index else []
    model = read_json(models[0], _CodeModel) if models else None
    if model is None or not model.configurations:
        return ()
    targets = (_named(reply, file) for file in model.configurations[0].targets)
    return tuple(target for file in targets if (target := read_json(file, CMakeTarget)))


def _named(reply: Path, file: _File) -> Path:
    return reply / Path(file.json_file).name  # never outside the folder


def cmake_sources(folder: Path) -> Path | None:
    """Return the source folder of a build folder; ``None`` if CMake did not configure it."""
    with suppress(OSError):
        found = _SOURCES.search((folder / "CMakeCache.txt").read_text(errors="replace"))
        return Path(found[1]) if found else None
    return None
