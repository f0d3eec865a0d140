"""Edits METADATA and WHEEL as text: everything else keeps its bytes. Pure."""

import re
from collections.abc import Collection, Sequence

from packaging.requirements import InvalidRequirement
from packaging.utils import canonicalize_name

from stoker.artifact.headers import Headers
from stoker.model.source import read_requirement
from stoker.model.value import whole_number


def edited_metadata(
    content: bytes,
    *,
    version: str | None = None,
    drop: Collection[str] = (),
    requires: Sequence[str] = (),
    licences: Sequence[str] = (),
) -> bytes:
    """Return the new METADATA. ``drop`` are Requires-Dist values as they are in the file."""
    headers = Headers(content)
    if version is not None:
        headers.replace("Version", [version])
    headers.drop("Requires-Dist", lambda line: line in drop)
    # Most builders write the requirements of an extra after its Provides-Extra.
    headers.insert("Requires-Dist", requires, before=["Provides-Extra"])
    if licences and _knows_licence_files(headers):
        headers.insert("License-File", licences)
    return bytes(headers)


def required_name(line: str) -> str | None:
    """Return the package that a requirement names, or None if it belongs to an extra."""
    try:
        requirement = read_requirement(line)
    except InvalidRequirement:
        return None
    if requirement.marker and "extra" in str(requirement.marker):
        return None
    return canonicalize_name(requirement.name)


def _knows_licence_files(headers: Headers) -> bool:
    """Return whether METADATA lists licence texts, as it does since version 2.4."""
    version = (headers.values("Metadata-Version") or ["1.0"])[0]
    return [whole_number(n) or 0 for n in re.findall(r"\d+", version)[:2]] >= [2, 4]


def edited_wheel(content: bytes, tags: Sequence[str]) -> bytes:
    headers = Headers(content)
    headers.replace("Tag", tags)
    return bytes(headers)
