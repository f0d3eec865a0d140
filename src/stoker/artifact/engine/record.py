"""RECORD: what a wheel says it holds. Read, written and compared; no content is hashed here."""

import base64
import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping

from stoker.artifact.engine.directory import Member
from stoker.model.value import Value

# "sha256 or better", says the wheel format.
_STRONG = re.compile(r"sha256=[\w-]{43}|sha384=[\w-]{64}|sha512=[\w-]{86}", re.ASCII)
UNLISTED = ("RECORD", "RECORD.jws", "RECORD.p7s")  # in dist-info; these have no hash


class Row(Value, frozen=True, kw_only=True):
    """``digest`` as written, ``sha256=...``; both empty for RECORD itself."""

    digest: str = ""
    size: int | None = None


class Mismatch(Value, frozen=True, kw_only=True):
    """Where RECORD and the wheel part."""

    member: str
    problem: str


def parse(content: bytes, *, most: int) -> dict[str, Row]:
    """Rows by name, not more than ``most``. What cannot be read is a ValueError in words."""
    rows: dict[str, Row] = {}
    try:
        lines = csv.reader(io.StringIO(content.decode(), newline=""), strict=True)
        for line in lines:
            if not line:
                continue
            name, row = _row(line, lines.line_num)
            if name in rows:
                raise ValueError(f"line {lines.line_num}: {name} is listed twice")
            if len(rows) == most:
                raise ValueError(f"line {lines.line_num}: more rows than could be right")
            rows[name] = row
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(str(error)) from None
    return rows


def _row(line: list[str], number: int) -> tuple[str, Row]:
    if len(line) != 3:
        raise ValueError(f"line {number}: {len(line)} fields, not 3")
    name, digest, size = line
    if size and not (size.isascii() and size.isdigit() and len(size) < 20):
        raise ValueError(f"line {number}: the size of {name} is no number")
    return name, Row(digest=digest, size=int(size) if size else None)


def render(rows: Mapping[str, Row]) -> bytes:
    """In the order given."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for name, row in rows.items():
        writer.writerow((name, row.digest, "" if row.size is None else row.size))
    return text.getvalue().encode()


def written(algorithm: str, digest: bytes) -> str:
    """A hash as RECORD writes it."""
    return f"{algorithm}={base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def is_strong(digest: str) -> bool:
    """Whether a hash is one that the wheel format allows."""
    return _STRONG.fullmatch(digest) is not None


def mismatches(
    rows: Mapping[str, Row], members: Iterable[Member], dist_info: str
) -> Iterator[Mismatch]:
    """What can be told without the contents: missing and extra rows, sizes, missing hashes."""
    unlisted = {f"{dist_info}/{name}" for name in UNLISTED}
    known = {member.name: member for member in members}
    for name, member in known.items():
        if name not in unlisted and (problem := _mismatch(rows.get(name), member)):
            yield Mismatch(member=name, problem=problem)
    for name in rows.keys() - known.keys():
        yield Mismatch(member=name, problem="RECORD lists it, the wheel does not hold it")


def _mismatch(row: Row | None, member: Member) -> str | None:
    if row is None:
        return "RECORD does not list it"
    if not is_strong(row.digest):
        return "RECORD has no hash of it that is sha256 or better"
    if row.size is not None and row.size != member.size:
        return f"RECORD says {row.size} bytes, the wheel {member.size}"
    return None
