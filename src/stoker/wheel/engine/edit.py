"""Describes changes to a wheel, and turns them into the list of members to write."""

from collections.abc import Iterable

from stoker.model.errors import ArtifactError
from stoker.model.value import Value
from stoker.model.value import size as in_words
from stoker.wheel.engine import directory
from stoker.wheel.engine import zip_records as zip_
from stoker.wheel.engine.archive import SMALL, Archive, Content, Wheel
from stoker.wheel.engine.directory import Member
from stoker.wheel.engine.record import UNLISTED, RecordRow


class CopiedMember(Value, frozen=True, kw_only=True):
    """A member whose compressed bytes are copied unchanged, with its row of RECORD."""

    archive: Archive
    member: Member
    row: RecordRow


class OutputMember(Value, frozen=True, kw_only=True):
    """``row`` is what RECORD says of a content that is not copied; writing checks it."""

    name: str
    source: Content | CopiedMember
    mode: int = 0o644
    row: RecordRow | None = None

    @property
    def size(self) -> int:
        return self.source.size if isinstance(self.source, Content) else self.source.member.size

    def read(self) -> bytes:
        """Return the whole content of a small member."""
        if self.size > SMALL:
            raise ArtifactError(f"{in_words(self.size)} is too large here", member=self.name)
        if isinstance(self.source, Content):
            return b"".join(self.source.chunks())
        return b"".join(self.source.archive.stream(self.source.member))


class Edit(Value, frozen=True, kw_only=True):
    """``contents`` are by the new name of a member, which may be kept, renamed or added. With
    ``compress``, members are compressed that the wheel only stores.
    """

    contents: dict[str, Content] = {}
    renamed: dict[str, str] = {}
    dropped: frozenset[str] = frozenset()
    compress: bool = False


def edited(wheel: Wheel, edit: Edit) -> list[OutputMember]:
    """Return all members to write, without RECORD and signatures, which apply to the old one."""
    _check_record(wheel)
    for name in (*edit.renamed, *edit.dropped):
        wheel.member(name)
    gone = edit.dropped | {f"{wheel.dist_info}/{name}" for name in UNLISTED}
    entries = [
        _entry(wheel, name, edit.renamed.get(name, name), edit)
        for name in wheel.members
        if name not in gone
    ]
    present = {entry.name for entry in entries}
    entries += [
        OutputMember(name=name, source=content, mode=content.mode or 0o644)
        for name, content in edit.contents.items()
        if name not in present
    ]
    check_names([entry.name for entry in entries], str(wheel.path))
    return entries


def _entry(wheel: Wheel, old: str, new: str, edit: Edit) -> OutputMember:
    member, row = wheel.members[old], wheel.record[old]
    if content := edit.contents.get(new):
        return OutputMember(name=new, source=content, mode=content.mode or member.mode)
    if edit.compress and member.method == zip_.STORED and row.digest.startswith("sha256="):
        return OutputMember(name=new, source=wheel.content(old), mode=member.mode, row=row)
    kept = CopiedMember(archive=wheel.archive, member=member, row=row)
    return OutputMember(name=new, source=kept, mode=member.mode)


def _check_record(wheel: Wheel) -> None:
    """Raise an error if RECORD does not match, since rows of kept members are copied."""
    for mismatch in wheel.mismatches():
        member = wheel.members.get(mismatch.member)
        raise ArtifactError(
            mismatch.problem,
            file=str(wheel.path),
            member=mismatch.member,
            offset=member.offset if member else None,
        )


def check_names(written: Iterable[str], file: str) -> None:
    """Apply the rules for reading to the names of members that are written."""
    seen: set[str] = set()
    for name in written:
        problem = directory.name_problem(name) or (
            "a file needs a name" if name.endswith("/") else None
        )
        if problem or name in seen:
            raise ArtifactError(problem or "two members of this name", file=file, member=name)
        seen.add(name)
    if clash := directory.name_clash(seen):
        raise ArtifactError("both a file and a folder", file=file, member=clash)
