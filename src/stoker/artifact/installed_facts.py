"""Reads the facts of an installed distribution from its dist-info folder."""

import os
from collections.abc import Iterable
from pathlib import Path

from packaging.utils import canonicalize_name

from stoker.artifact.engine import record
from stoker.artifact.wheel_facts import wheel_facts
from stoker.model.artifact import WheelFacts
from stoker.model.errors import ArtifactError

_MOST_FILES = 1 << 20


def find_distribution(name: str, folders: Iterable[str]) -> Path | None:
    """Return the dist-info folder of a distribution, from the first folder that has one."""
    wanted = canonicalize_name(name)
    for folder in folders:
        for found in sorted(Path(folder).glob("*.dist-info")):
            if canonicalize_name(found.name.partition("-")[0]) == wanted:
                return found
    return None


def installed_facts(dist_info: Path) -> tuple[WheelFacts, tuple[str, ...]]:
    """Return the metadata of a distribution, and its files relative to site-packages."""
    root = dist_info.parent
    listed = _record(dist_info / "RECORD")
    files = tuple(file for file in listed if os.path.lexists(root / file))
    facts = wheel_facts(
        _content(dist_info / "METADATA"),
        _content(dist_info / "WHEEL"),
        members=len(files),
        unpacked=sum((root / file).lstat().st_size for file in files),
    )
    return facts, files


def _record(path: Path) -> Iterable[str]:
    try:
        return record.parse(path.read_bytes(), most=_MOST_FILES)
    except FileNotFoundError:
        raise ArtifactError(
            "the distribution has no RECORD, so its files are unknown", file=str(path)
        ) from None
    except ValueError as error:
        raise ArtifactError(str(error), file=str(path)) from None


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""
