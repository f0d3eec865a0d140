"""The members of a wheel to be written: each of new content, or kept as compressed bytes."""

from stoker.artifact.engine.archive import Archive
from stoker.artifact.engine.content import Content
from stoker.artifact.engine.directory import Member
from stoker.artifact.engine.record import Row
from stoker.model.value import Value


class Kept(Value, frozen=True, kw_only=True):
    """A member whose compressed bytes go over as they are, with its row of RECORD."""

    archive: Archive
    member: Member
    row: Row


class Entry(Value, frozen=True, kw_only=True):
    name: str
    source: Content | Kept
    mode: int = 0o644

    @property
    def size(self) -> int:
        return self.source.size if isinstance(self.source, Content) else self.source.member.size

    def read(self) -> bytes:
        if isinstance(self.source, Content):
            return self.source.read()
        return b"".join(self.source.archive.stream(self.source.member))
