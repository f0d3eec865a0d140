"""Reads the facts of wheels, of files in folders and of installed distributions.

A wheel is read as a stream; nothing is unpacked to disk.
"""

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from zlib_ng import zlib_ng

from stoker.model.artifact import LibraryFacts, WheelFacts
from stoker.model.errors import ArtifactError, StorageError
from stoker.outside.long_work import stage
from stoker.wheel.elf.elf import MAGIC, Elf
from stoker.wheel.elf.fatbin import FatbinLookout
from stoker.wheel.inspect.library import read_library
from stoker.wheel.reader import InflatedReader, Reader, open_file, printable
from stoker.wheel.zip import record
from stoker.wheel.zip.archive import Wheel
from stoker.wheel.zip.directory import Member
from stoker.wheel.zip.headers import STORED
from stoker.wheel.zip.metadata import read_fields
from stoker.wheel.zip.threads import threads

Also = Callable[[Elf], None] | None  # what else is to be read of each ELF file

_MOST_THREADS = 4  # each needs about 50 MB to read a library
_PEEK = 1024  # compressed bytes that contain the first of a file, after the code tables


def read_wheel(
    wheel: Wheel, also: Also = None
) -> tuple[WheelFacts, tuple[LibraryFacts, ...], tuple[str, ...]]:
    """Return the metadata of a wheel, the facts of its ELF files, and all member names."""
    metadata, found = metadata_of(wheel), elf_members(wheel)

    def read(member: Member) -> LibraryFacts:
        facts = read_member(wheel.archive.file, member, also)
        advance(member.size)
        return facts

    total = sum(member.size for member in found)
    workers = min(_MOST_THREADS, threads())
    with stage("reading libraries", total) as advance, ThreadPoolExecutor(workers) as pool:
        libraries = sorted(pool.map(read, found), key=lambda library: library.path)
    return metadata, tuple(libraries), tuple(wheel.members)


def metadata_of(wheel: Wheel, kind: bytes | None = None) -> WheelFacts:
    """Return the metadata of a wheel; ``kind`` is read in place of its own WHEEL."""
    return wheel_facts(
        wheel.read(f"{wheel.dist_info}/METADATA"),
        wheel.read(f"{wheel.dist_info}/WHEEL") if kind is None else kind,
        members=len(wheel.members),
        unpacked=sum(member.size for member in wheel.members.values()),
    )


def wheel_facts(metadata: bytes, wheel: bytes, *, members: int, unpacked: int) -> WheelFacts:
    """Return the facts from the texts of METADATA and WHEEL."""
    said, made = _fields(metadata), _fields(wheel)
    return WheelFacts(
        name=said("Name")[0],
        version=said("Version")[0],
        tags=tuple(filter(None, made("Tag"))),
        build=made("Build")[0] or None,
        generator=made("Generator")[0] or None,
        requires_python=said("Requires-Python")[0] or None,
        requires=tuple(filter(None, said("Requires-Dist"))),
        members=members,
        unpacked_bytes=unpacked,
    )


def _fields(text: bytes) -> Callable[[str], list[str]]:
    """Return a function from a name to its fields; a missing field gives one empty value."""
    try:
        headers = read_fields(text)
    except ValueError as error:
        raise ArtifactError(f"METADATA or WHEEL: {error}") from None
    return lambda name: [printable(value) for value in headers.get_all(name, [""])]


def elf_members(wheel: Wheel) -> list[Member]:
    """Return the ELF files, largest first, so that no thread works on it alone at the end."""
    with stage("looking for libraries"):
        found = [one for one in wheel.members.values() if _is_elf(wheel.archive.file, one)]
    return sorted(found, key=lambda member: -member.size)


def _is_elf(file: Reader, member: Member) -> bool:
    start = file.read(member.data, min(_PEEK, member.compressed_size))
    if member.method != STORED:
        try:
            start = zlib_ng.decompressobj(-15).decompress(start, len(MAGIC))
        except zlib_ng.error:  # type: ignore[misc]  # its stub says: no class
            return False
    return start.startswith(MAGIC)


def read_member(file: Reader, member: Member, also: Also) -> LibraryFacts:
    """Return the facts of one library of a wheel."""
    try:
        return read_library(open_member(file, member), also)
    except ArtifactError as error:
        return LibraryFacts(path=printable(member.name), size_bytes=member.size, problem=str(error))


def open_member(file: Reader, member: Member) -> Reader:
    """Return a reader of the unpacked bytes of a member."""
    name = printable(member.name)
    packed = file.part(start=member.data, size=member.compressed_size, member=name)
    if member.method == STORED:
        return packed
    return InflatedReader(packed, size=member.size, crc=member.crc, lookout=FatbinLookout())


def read_library_file(path: Path, name: str, also: Also = None) -> LibraryFacts | None:
    """Return the facts of an ELF file, or None for other files. ``name`` is used in messages."""
    with open_file(path, name) as reader:
        return read_library(reader, also) if reader.read_at(0, len(MAGIC)) == MAGIC else None


def is_elf(path: Path) -> bool:
    """Return whether a regular file, which is no link, is an ELF file."""
    if path.is_symlink() or not path.is_file():
        return False
    with open_file(path) as reader:
        return reader.read_at(0, len(MAGIC)) == MAGIC


def files_below(folder: Path) -> tuple[str, ...]:
    """Return all files in a folder and its subfolders, with links, relative to it. A subfolder that
    disappears meanwhile has none: another stoker process may slim a part of the folder.
    """

    def fail(error: OSError) -> None:
        if isinstance(error, FileNotFoundError) and Path(error.filename) != folder:
            return
        raise StorageError(f"cannot read {error.filename}: {error.strerror}") from error

    found = []
    for parent, folders, names in os.walk(folder, onerror=fail):
        folders.sort()
        found += [str(Path(parent, name).relative_to(folder)) for name in sorted(names)]
    return tuple(found)


def read_files(root: Path, files: Iterable[str], also: Also = None) -> tuple[LibraryFacts, ...]:
    """Return the facts of the ELF files among ``files``; links are skipped."""
    libraries = []
    for name in files:
        path = root / name
        if path.is_symlink() or not path.is_file():
            continue
        try:
            library = read_library_file(path, printable(name), also)
        except StorageError as error:
            problem = printable(str(error))
            library = LibraryFacts(path=printable(name), size_bytes=0, problem=problem)
        if library:
            libraries.append(library)
    return tuple(libraries)


def installed_facts(dist_info: Path) -> tuple[WheelFacts, tuple[str, ...]]:
    """Return the metadata of a distribution, and its files relative to site-packages."""
    root, listed = dist_info.parent, dist_info / "RECORD"
    try:
        rows = record.parse_record(listed.read_bytes())
    except FileNotFoundError:
        raise ArtifactError(
            "the distribution has no RECORD, so its files are unknown", file=str(listed)
        ) from None
    except ValueError as error:
        raise ArtifactError(str(error), file=str(listed)) from None
    files = tuple(file for file in rows if os.path.lexists(root / file))
    paths = (dist_info / "METADATA", dist_info / "WHEEL")
    facts = wheel_facts(
        *(path.read_bytes() if path.is_file() else b"" for path in paths),
        members=len(files),
        unpacked=sum((root / file).lstat().st_size for file in files),
    )
    return facts, files
