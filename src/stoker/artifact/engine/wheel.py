"""Reads a wheel: its members, its dist-info folder and its RECORD."""

import hashlib
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from stoker.artifact.engine.archive import Archive
from stoker.artifact.engine.content import SMALL, Content
from stoker.artifact.engine.directory import Limits, Member
from stoker.artifact.engine.record import Mismatch, Row, is_strong, mismatches, parse, written
from stoker.artifact.reader import open_file
from stoker.model.errors import ArtifactError, nearest
from stoker.model.value import size as in_words
from stoker.outside import process


class Wheel:
    """An open wheel, with its members by name, in file order."""

    def __init__(self, archive: Archive):
        self.archive = archive
        self.path = archive.path
        self.members = archive.members
        self.dist_info = dist_info_of(self.members, self.path)

    def member(self, name: str) -> Member:
        if name in self.members:
            return self.members[name]
        hints = [f"did you mean {other}?" for other in nearest(name, self.members, count=1)]
        raise ArtifactError(
            "the wheel has no such member", file=str(self.path), member=name, hints=hints
        )

    def stream(self, name: str) -> Iterator[bytes]:
        """Yield the content of a member in chunks, and check its declared size and checksum."""
        return self.archive.stream(self.member(name))

    def read(self, name: str) -> bytes:
        """Return the whole content of a small member, such as one of dist-info."""
        member = self.member(name)
        if member.size > SMALL:
            raise self.archive.error(f"{in_words(member.size)} is too large here", member)
        return b"".join(self.archive.stream(member))

    def content(self, name: str) -> Content:
        """Return the content of a member, for use in another wheel."""
        member = self.member(name)
        return Content(size=member.size, chunks=lambda: self.archive.stream(member))

    @cached_property
    def record(self) -> dict[str, Row]:
        member = self.member(f"{self.dist_info}/RECORD")
        try:
            return parse(self.read(member.name), most=1000 + 2 * len(self.members))
        except ValueError as error:
            raise self.archive.error(str(error), member) from None

    def mismatches(self) -> Iterator[Mismatch]:
        """Yield the differences between RECORD and the wheel that need no content."""
        return mismatches(self.record, self.members.values(), self.dist_info)

    def wrong_hashes(self, *, workers: int | None = None) -> Iterator[Mismatch]:
        """Yield the members whose content differs from their hash in RECORD."""
        listed = [member for name, member in self.members.items() if self._digest(name)]
        listed.sort(key=lambda member: -member.size)  # the largest first, to keep all threads busy
        with ThreadPoolExecutor(workers or process.threads()) as pool:
            for mismatch in pool.map(self._hashed, listed):
                if mismatch is not None:
                    yield mismatch

    def _hashed(self, member: Member) -> Mismatch | None:
        told = self._digest(member.name)
        digest = hashlib.new(told.partition("=")[0])
        for chunk in self.archive.stream(member):
            digest.update(chunk)
        if written(digest.name, digest.digest()) == told:
            return None
        return Mismatch(member=member.name, problem="the hash in RECORD is wrong")

    def _digest(self, name: str) -> str:
        """Return the hash in RECORD, or an empty string if there is none to compare with."""
        row = self.record.get(name)
        return row.digest if row and is_strong(row.digest) else ""


def dist_info_of(names: Iterable[str], path: Path) -> str:
    folders = {name.partition("/")[0] for name in names if "/" in name}
    found = sorted(folder for folder in folders if folder.endswith(".dist-info"))
    if len(found) != 1:
        what = " and ".join(found) if found else "no .dist-info folder"
        raise ArtifactError(f"not a valid wheel: it has {what}", file=str(path))
    return found[0]


@contextmanager
def open_wheel(path: Path, limits: Limits | None = None) -> Iterator[Wheel]:
    """Open a wheel and check everything except the contents: names, headers, layout."""
    with open_file(path) as file:
        yield Wheel(Archive(file, limits or Limits()))
