"""The members of a wheel to be written: each of new content, or kept as compressed bytes."""

from stoker.artifact.engine.archive import Archive
from stoker.artifact.engine.content import SMALL, Content
from stoker.artifact.engine.directory import Member
from stoker.artifact.engine.record import Row
from stoker.model.errors import ArtifactError
from stoker.model.units import size as in_words
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
        """The whole content of a small member."""
        if self.size > SMALL:
            raise ArtifactError(f"{in_words(self.size)} are too much to read", member=self.name)
        if isinstance(self.source, Content):
            return b"".join(self.source.chunks())
        return b"".join(self.source.archive.stream(self.source.member))
