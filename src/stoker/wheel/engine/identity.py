"""Computes the file name and the stem of dist-info and data folders from the metadata. Pure."""

import re

from packaging.utils import InvalidName, canonicalize_name
from packaging.version import InvalidVersion, Version

from stoker.model.distribution import read_tag, read_tags, read_version
from stoker.model.value import Value
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
