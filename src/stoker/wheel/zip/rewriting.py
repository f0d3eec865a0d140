"""Writes a wheel from another wheel with an edit.

The name of the new file, of dist-info and of data folders follows from the metadata.
"""

import re
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace
from packaging.utils import InvalidName, canonicalize_name
from packaging.version import InvalidVersion

from stoker.model.distribution import read_tag, read_tags, read_version
from stoker.model.errors import ArtifactError
from stoker.model.value import Value
from stoker.wheel.zip import directory
from stoker.wheel.zip import headers as zip_
from stoker.wheel.zip.archive import Content, Wheel
from stoker.wheel.zip.metadata import read_fields
from stoker.wheel.zip.record import UNLISTED
from stoker.wheel.zip.writer import CopiedMember, OutputMember, write_members

_MOST_TAGS = 100  # lines
_STEM = re.compile(r"[A-Za-z0-9._]+-[A-Za-z0-9._+!-]+")
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
    stem = f"{canonical.replace('-', '_')}-{wanted}"
    own_name, _, own_version = present.partition("-")
    with suppress(InvalidVersion):
        is_same = canonicalize_name(own_name) == canonical and read_version(own_version) == wanted
        if is_same and _STEM.fullmatch(present):  # blanks around a version change nothing
            stem = present
    return WheelIdentity(stem=stem, build=build, tags=_compressed(kind.get_all("Tag", [])))


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


class Edit(Value, frozen=True, kw_only=True):
    """``contents`` are by the name of a member, which may be a new one. With ``compress``, members
    are compressed that the wheel only stores.
    """

    contents: dict[str, Content] = {}
    compress: bool = False


def edited(wheel: Wheel, edit: Edit) -> list[OutputMember]:
    """Return all members to write, without RECORD and signatures, which apply to the old one."""
    # Rows of members that are kept are copied, so RECORD has to match.
    for mismatch in wheel.mismatches():
        member = wheel.members.get(mismatch.member)
        raise ArtifactError(
            mismatch.problem,
            file=str(wheel.path),
            member=mismatch.member,
            offset=member.offset if member else None,
        )
    gone = {f"{wheel.dist_info}/{name}" for name in UNLISTED}
    entries = {name: _entry(wheel, name, edit) for name in wheel.members if name not in gone}
    for name, content in edit.contents.items():
        if name not in entries:
            entries[name] = OutputMember(name=name, source=content, mode=content.mode or 0o644)
    # What is written obeys the rules for reading.
    for name in entries:
        problem = directory.name_problem(name)
        if problem or name.endswith("/"):
            raise ArtifactError(problem or "a file needs a name", file=str(wheel.path), member=name)
    if clash := directory.name_clash(entries):
        raise ArtifactError("both a file and a folder", file=str(wheel.path), member=clash)
    return list(entries.values())


def _entry(wheel: Wheel, name: str, edit: Edit) -> OutputMember:
    member, row = wheel.members[name], wheel.record[name]
    if content := edit.contents.get(name):
        return OutputMember(name=name, source=content, mode=content.mode or member.mode)
    if edit.compress and member.method == zip_.STORED and row.digest.startswith("sha256="):
        return OutputMember(name=name, source=wheel.content(name), mode=member.mode, row=row)
    kept = CopiedMember(archive=wheel.archive, member=member, row=row)
    return OutputMember(name=name, source=kept, mode=member.mode)


def rewrite(wheel: Wheel, edit: Edit, into: Path, *, workers: int | None = None) -> Path:
    """Write the edited wheel to the folder ``into`` and return its path.

    Unedited members are copied as compressed bytes; ``wheel.wrong_hashes`` checks their content.
    """
    entries = edited(wheel, edit)
    by_name = {entry.name: entry for entry in entries}
    files = [f"{wheel.dist_info}/METADATA", f"{wheel.dist_info}/WHEEL"]
    for name in files:
        if name not in by_name:
            raise ArtifactError("the wheel has no such member", file=str(wheel.path), member=name)
    about, kind = (by_name[name].read() for name in files)
    present = wheel.dist_info.removesuffix(".dist-info")
    try:
        identity = identify(about, kind, present=present)
    except ValueError as error:
        raise ArtifactError(str(error), file=str(wheel.path), member=wheel.dist_info) from None
    stem = identity.stem
    if stem != present:
        folders = {f"{present}.{kind}": f"{stem}.{kind}" for kind in ("dist-info", "data")}
        for place, entry in enumerate(entries):
            top, slash, rest = entry.name.partition("/")
            entries[place] = replace(entry, name=folders.get(top, top) + slash + rest)
    entries.sort(key=lambda entry: directory.name_place(entry.name))
    target = into / identity.file_name
    write_members(entries, f"{stem}.dist-info/RECORD", target, workers)
    return target
