"""Reads and edits the fields of METADATA and WHEEL; everything else keeps its bytes. Pure."""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from email.message import Message
from email.parser import HeaderParser

from packaging.requirements import InvalidRequirement
from packaging.utils import canonicalize_name

from stoker.model.distribution import read_requirement, read_version
from stoker.model.value import whole_number

_BLANK = re.compile(rb"\r?\n\r?\n")
_LARGEST_HEAD = 256 << 10  # bytes of fields; the description that follows them may be longer


def read_fields(content: bytes) -> Message:
    """Return the fields as pip reads them; raise ValueError for more of them than any wheel has."""
    end = _BLANK.search(content)
    head = content if end is None else content[: end.end()]
    if len(head) > _LARGEST_HEAD:
        raise ValueError(f"{len(head):,} bytes of fields are too many")
    return HeaderParser().parsestr(head.decode(errors="replace"))


class Headers:
    """The fields before the first empty line, in order; the body stays unchanged."""

    def __init__(self, content: bytes):
        end = _BLANK.search(content)
        place = len(content) if end is None else end.start()
        head, self._body = content[:place], content[place:]
        # A line that starts with white space continues the previous field.
        self._lines = re.findall(rb"[^\r\n]+(?:\r?\n[ \t][^\r\n]*)*", head)
        self._end = b"\r\n" if b"\r\n" in content else b"\n"

    def __bytes__(self) -> bytes:
        return self._end.join(self._lines) + (self._body or self._end)

    def values(self, name: str) -> list[str]:
        return [_value(line) for line in self._lines if _is(line, name)]

    def replace(self, name: str, values: Sequence[str]) -> None:
        """Replace all fields of a name, at the place of the first, else at the end."""
        places = [index for index, line in enumerate(self._lines) if _is(line, name)]
        place = places[0] if places else len(self._lines)
        self.drop(name, lambda _: True)
        self._lines[place:place] = [_field(name, value) for value in values]

    def drop(self, name: str, condition: Callable[[str], bool]) -> None:
        self._lines = [
            line for line in self._lines if not (_is(line, name) and condition(_value(line)))
        ]

    def insert(self, name: str, values: Sequence[str], *, before: Sequence[str] = ()) -> None:
        """Insert fields after the last of that name, and before the first of ``before``."""
        end = next(
            (i for i, line in enumerate(self._lines) if any(_is(line, n) for n in before)),
            len(self._lines),
        )
        own = [index for index, line in enumerate(self._lines[:end]) if _is(line, name)]
        place = own[-1] + 1 if own else end
        self._lines[place:place] = [_field(name, value) for value in values]


def _is(line: bytes, name: str) -> bool:
    return line.partition(b":")[0].strip().lower() == name.lower().encode()


def _value(line: bytes) -> str:
    return line.partition(b":")[2].decode(errors="surrogateescape").strip()


def _field(name: str, value: str) -> bytes:
    return f"{name}: {value}".encode(errors="surrogateescape")


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
    known = re.findall(r"\d+", (headers.values("Metadata-Version") or ["1.0"])[0])
    if licences and [whole_number(number) or 0 for number in known[:2]] >= [2, 4]:
        headers.insert("License-File", licences)  # since version 2.4
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


def forbidding(requires: Iterable[str], project: str, version: str) -> str | None:
    """Return the first requirement that does not allow a version of a project."""
    for line in requires:
        if required_name(line) == project:
            required = read_requirement(line)
            if not required.specifier.contains(read_version(version), prereleases=True):
                return str(required)
    return None


def edited_wheel(content: bytes, tags: Sequence[str]) -> bytes:
    headers = Headers(content)
    headers.replace("Tag", tags)
    return bytes(headers)
