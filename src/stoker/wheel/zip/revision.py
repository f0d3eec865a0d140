"""A new wheel that is made from another: its version, its file name, its records, its bytes.

`stoker package` and `stoker slim` plan what changes; a plan can be printed. Both apply their plan
as a ``Revision``, which is written in one pass, with the record of what was done in dist-info.
"""

from pathlib import Path
from typing import TypeVar

import msgspec
from packaging.version import InvalidVersion, Version

from stoker.model.distribution import read_version
from stoker.model.errors import ArtifactError, UsageError
from stoker.model.slimming import PACKAGE_MEMBER, PackageRecord
from stoker.model.value import UNDECODABLE, Value, prepared
from stoker.wheel.elf.edit import ElfEdit, make_patch
from stoker.wheel.elf.elf import Elf
from stoker.wheel.reader import Reader
from stoker.wheel.zip import Content, Edit, Wheel, rewrite
from stoker.wheel.zip.rewriting import identify

_Record = TypeVar("_Record")


class Revision(Value, frozen=True, kw_only=True):
    """``metadata`` and ``kind`` are the new METADATA and WHEEL. ``contents`` are by member, and
    ``records`` by their names in dist-info.
    """

    metadata: bytes
    kind: bytes
    contents: dict[str, Content] = {}
    records: dict[str, bytes] = {}

    def file_name(self, wheel: Wheel) -> str:
        return new_file_name(self.metadata, self.kind, dist_info=wheel.dist_info, path=wheel.path)

    def write(self, wheel: Wheel, into: Path, *, compress: bool = False) -> Path:
        """Write the new wheel to the folder ``into``, where it appears when it is complete."""
        notes = {"METADATA": self.metadata, "WHEEL": self.kind, **self.records}
        contents = self.contents | {
            f"{wheel.dist_info}/{name}": Content.of_bytes(text) for name, text in notes.items()
        }
        return rewrite(wheel, Edit(contents=contents, compress=compress), into)


def edited_library(reader: Reader, content: Content, edit: ElfEdit) -> Content:
    """Return the content of a library with an edit, which is made while it is streamed."""
    patch = make_patch(Elf(reader), edit)
    return Content(size=patch.size, chunks=lambda: patch.applied(content.chunks()))


def new_file_name(metadata: bytes, kind: bytes, *, dist_info: str, path: Path) -> str:
    """Return the file name that follows from METADATA and WHEEL of a new wheel."""
    try:
        return identify(metadata, kind, present=dist_info.removesuffix(".dist-info")).file_name
    except ValueError as error:
        raise ArtifactError(str(error), file=str(path), member=dist_info) from None


def new_version(version: str, label: str | None) -> str:
    """Return the version with another local label; an empty label removes it, None keeps it."""
    if label is None:
        return version
    public = extensible(version).public
    try:
        return str(read_version(f"{public}+{label}")) if label else public
    except InvalidVersion:
        raise UsageError(
            f"'{label}' is not a local version label",
            hints=["use letters, digits and dots, such as cu128.sm90"],
        ) from None


def extensible(version: str) -> Version:
    """Return the version that METADATA names, or raise an error if no label can be added to it."""
    try:
        return read_version(version)
    except InvalidVersion as error:
        raise ArtifactError(f"METADATA has no version that can be extended: {error}") from None


def check_replaceable(target: Path, *, force: bool) -> None:
    """Raise an error if something exists at the target; ``force`` allows a regular file."""
    if not target.exists():
        return
    if not target.is_file():
        raise UsageError(f"{target} exists and is not a regular file: choose another --out")
    if not force:
        raise UsageError(f"{target} already exists", hints=["replace it with --force"])


def check_new(target: Path, wheel: Path, *, refusal: UsageError, force: bool) -> None:
    """Raise an error if a new wheel may not be written; ``refusal`` if the original is there."""
    if target.exists() and target.samefile(wheel):
        raise refusal
    check_replaceable(target, force=force)


def read_record(wheel: Wheel, name: str, kind: type[_Record]) -> _Record | None:
    """Return a record in the dist-info of a wheel, or None if there is none.

    Raise an ArtifactError or one of the ``UNDECODABLE`` errors if it cannot be read.
    """
    member = f"{wheel.dist_info}/{name}"
    if member not in wheel.members:
        return None
    return msgspec.json.decode(wheel.read(member), type=prepared(kind))


def read_excluded(wheel: Wheel) -> tuple[str, ...]:
    """Return the patterns of libraries that a wheel was packaged without."""
    try:
        record = read_record(wheel, PACKAGE_MEMBER, PackageRecord)
    except (*UNDECODABLE, ArtifactError):
        return ()
    return record.excluded if record else ()
