"""Writes a wheel from another wheel with an edit, or from a folder.

The name of the new file, of dist-info and of data folders follows from the metadata.
"""

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from packaging.utils import InvalidName, canonicalize_name
from packaging.version import InvalidVersion, Version

from stoker.model.distribution import read_tag, read_tags, read_version
from stoker.model.errors import ArtifactError, StorageError
from stoker.model.value import Value
from stoker.wheel.engine import directory
from stoker.wheel.engine.archive import Content, Wheel, dist_info_of, regular_file
from stoker.wheel.engine.edit import Edit, OutputMember, check_names, edited
from stoker.wheel.engine.record import UNLISTED
from stoker.wheel.engine.writer import write_members
from stoker.wheel.metadata import read_fields

_MOST_TAGS = 100  # lines
_BUILD = re.compile(r"[0-9][0-9A-Za-z_.]*")


class WheelIdentity(Value, frozen=True, kw_only=True):
    """``stem`` is name and version; ``tags`` is the compressed set, such as ``py3-none-any``."""

    stem: str
    tags: str
    build: str = ""

    @property
    def file_name(self) -> str:
        return "-".join(part for part in (self.stem, self.build, self.tags) if part) + ".whl"


def identify(metadata: bytes, wheel: bytes, present: str = "") -> WheelIdentity:
    """Return the identity from METADATA and WHEEL; keep the ``present`` stem if it is equivalent.

    Raise a ValueError with a message for invalid metadata.
    """
    about, kind = read_fields(metadata), read_fields(wheel)
    name, version = str(about.get("Name", "")), str(about.get("Version", ""))
    try:
        canonical = canonicalize_name(name, validate=True)
        wanted = read_version(version)
    except (InvalidName, InvalidVersion) as error:
        raise ValueError(f"METADATA: {error}") from None
    build = str(kind.get("Build", ""))
    if build and not _BUILD.fullmatch(build):
        raise ValueError(f"WHEEL: {build!r} is not a build number")
    fresh = f"{canonical.replace('-', '_')}-{wanted}"
    stem = present if _says(present, canonical, wanted) else fresh
    return WheelIdentity(stem=stem, build=build, tags=_compressed(kind.get_all("Tag", [])))


def _says(stem: str, name: str, version: Version) -> bool:
    own_name, _, own_version = stem.partition("-")
    try:
        return canonicalize_name(own_name) == name and read_version(own_version) == version
    except InvalidVersion:
        return False


def _compressed(lines: list[str]) -> str:
    """Return one expression for all tags; each of its three parts is a sorted set."""
    wrong = next((line for line in map(str, lines[:_MOST_TAGS]) if not read_tag(line)), None)
    if wrong is not None or len(lines) > _MOST_TAGS:
        raise ValueError(f"WHEEL: {(wrong or '...')[:100]!r} is not a tag")
    tags = read_tags(map(str, lines))
    interpreters = sorted({tag.interpreter for tag in tags})
    abis = sorted({tag.abi for tag in tags})
    platforms = sorted({tag.platform for tag in tags})
    if not tags or len(tags) != len(interpreters) * len(abis) * len(platforms):
        raise ValueError("WHEEL: there is no tag, or the tags do not fit in one file name")
    return "-".join(".".join(part) for part in (interpreters, abis, platforms))


def rewrite(wheel: Wheel, edit: Edit, into: Path, *, workers: int | None = None) -> Path:
    """Write the edited wheel to the folder ``into`` and return its path.

    Unedited members are copied as compressed bytes; ``wheel.wrong_hashes`` checks their content.
    """
    return _write(edited(wheel, edit), wheel.dist_info, wheel.path, into, workers)


def pack(folder: Path, into: Path, *, workers: int | None = None) -> Path:
    """Write the content of a folder as a wheel to the folder ``into`` and return its path."""
    everything = list(_walk(folder))
    check_names([entry.name for entry in everything], str(folder))
    dist_info = dist_info_of([entry.name for entry in everything], folder)
    unlisted = {f"{dist_info}/{name}" for name in UNLISTED}
    entries = [entry for entry in everything if entry.name not in unlisted]
    return _write(entries, dist_info, folder, into, workers)


def _write(
    entries: list[OutputMember], dist_info: str, origin: Path, into: Path, workers: int | None
) -> Path:
    identity = _identity(entries, dist_info, origin)
    entries = _named_after(identity.stem, entries, dist_info.removesuffix(".dist-info"))
    entries.sort(key=lambda entry: directory.name_place(entry.name))
    target = into / identity.file_name
    write_members(entries, f"{identity.stem}.dist-info/RECORD", target, workers)
    return target


def _identity(entries: list[OutputMember], dist_info: str, origin: Path) -> WheelIdentity:
    by_name = {entry.name: entry for entry in entries}
    files = [f"{dist_info}/METADATA", f"{dist_info}/WHEEL"]
    for name in files:
        if name not in by_name:
            raise ArtifactError("the wheel has no such member", file=str(origin), member=name)
    metadata, wheel = (by_name[name].read() for name in files)
    try:
        return identify(metadata, wheel, present=dist_info.removesuffix(".dist-info"))
    except ValueError as error:
        raise ArtifactError(str(error), file=str(origin), member=dist_info) from None


def _named_after(stem: str, entries: list[OutputMember], present: str) -> list[OutputMember]:
    """Rename the dist-info and data folders after a new name or version."""
    if stem == present:
        return entries
    folders = {f"{present}.{kind}": f"{stem}.{kind}" for kind in ("dist-info", "data")}
    renamed = []
    for entry in entries:
        top, slash, rest = entry.name.partition("/")
        name = folders.get(top, top) + slash + rest
        renamed.append(OutputMember(name=name, source=entry.source, mode=entry.mode))
    return renamed


def _walk(folder: Path) -> Iterator[OutputMember]:
    """Yield all files in a folder. Links are refused, since a wheel cannot contain them."""
    if not folder.is_dir():
        raise StorageError(f"cannot read {folder}: not a folder")
    for top, subfolders, files in os.walk(folder, onerror=_cannot_read):
        links = [name for name in subfolders if Path(top, name).is_symlink()]
        for file in (*files, *links):
            path = Path(top, file)
            mode = stat.S_IMODE(regular_file(path).st_mode)
            name = path.relative_to(folder).as_posix()
            yield OutputMember(name=name, source=Content.of_file(path), mode=mode)


def _cannot_read(error: OSError) -> None:
    raise StorageError(f"cannot read {error.filename}: {error.strerror}") from error
