"""Reads and writes RECORD, the list of files in a wheel, and compares it with the members.

It uses ``csv`` and no library: ``installer`` knows the format, but has neither a limit for rows nor
a check for duplicates, which the strict reader needs.
"""

import base64
import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping

from stoker.model.value import Value
from stoker.wheel.zip.directory import Member

# The wheel format requires sha256 or better.
_STRONG = re.compile(r"sha256=[\w-]{43}|sha384=[\w-]{64}|sha512=[\w-]{86}", re.ASCII)
UNLISTED = ("RECORD", "RECORD.jws", "RECORD.p7s")  # in dist-info; these have no hash


class RecordRow(Value, frozen=True, kw_only=True):
    """``digest`` is written as ``sha256=...``; both fields are empty for RECORD itself."""

    digest: str = ""
    size: int | None = None


class Mismatch(Value, frozen=True, kw_only=True):
    """A difference between RECORD and the wheel."""

    member: str
    problem: str


def parse_record(content: bytes, *, most: int = 1 << 20) -> dict[str, RecordRow]:
    """Return at most ``most`` rows by name, or raise a ValueError with a message."""
    rows: dict[str, RecordRow] = {}
    try:
        lines = csv.reader(io.StringIO(content.decode(), newline=""), strict=True)
        for line in lines:
            if not line:
                continue
            if len(line) != 3:
                raise ValueError(f"line {lines.line_num}: {len(line)} fields, not 3")
            name, digest, size = line
            if size and not (size.isascii() and size.isdigit() and len(size) < 20):
                raise ValueError(f"line {lines.line_num}: the size of {name} is not a number")
            if name in rows:
                raise ValueError(f"line {lines.line_num}: {name} is listed twice")
            if len(rows) == most:
                raise ValueError(f"line {lines.line_num}: too many rows")
            rows[name] = RecordRow(digest=digest, size=int(size) if size else None)
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(str(error)) from None
    return rows


def render_record(rows: Mapping[str, RecordRow]) -> bytes:
    """Return the text of RECORD, with rows in the given order."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for name, row in rows.items():
        writer.writerow((name, row.digest, "" if row.size is None else row.size))
    return text.getvalue().encode()


def written(algorithm: str, digest: bytes) -> str:
    """Return a hash in the format of RECORD."""
    return f"{algorithm}={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def is_strong(digest: str) -> bool:
    """Return whether the wheel format allows a hash."""
    return _STRONG.fullmatch(digest) is not None


def mismatches(
    rows: Mapping[str, RecordRow], members: Iterable[Member], dist_info: str
) -> Iterator[Mismatch]:
    """Yield the differences that need no content: missing and extra rows, sizes, hashes."""
    unlisted = {f"{dist_info}/{name}" for name in UNLISTED}
    known = {member.name: member for member in members}
    for name, member in known.items():
        row, problem = rows.get(name), None
        if name in unlisted:
            continue
        if row is None:
            problem = "RECORD does not list it"
        elif not is_strong(row.digest):
            problem = "RECORD has no hash for it that is sha256 or better"
        elif row.size is not None and row.size != member.size:
            problem = f"RECORD says {row.size} bytes, the wheel {member.size}"
        if problem:
            yield Mismatch(member=name, problem=problem)
    for name in rows.keys() - known.keys():
        yield Mismatch(member=name, problem="RECORD lists it, but the wheel does not contain it")
