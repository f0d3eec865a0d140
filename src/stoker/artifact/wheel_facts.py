"""Reads the facts of a wheel and of its libraries as a stream; nothing is unpacked to disk."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from zlib_ng import zlib_ng

from stoker.artifact.elf import MAGIC
from stoker.artifact.engine.directory import Limits, Member, read_directory
from stoker.artifact.engine.wheel import dist_info_of
from stoker.artifact.engine.zip_records import STORED
from stoker.artifact.fatbin import FatbinLookout
from stoker.artifact.headers import read_fields
from stoker.artifact.inflated import InflatedReader
from stoker.artifact.library import read_library
from stoker.artifact.reader import FileReader, Reader, open_file, printable
from stoker.model.artifact import LibraryFacts, WheelFacts
from stoker.model.errors import ArtifactError
from stoker.outside import process

_LARGEST_METADATA = 16 << 20
_MOST_THREADS = 4  # each needs about 50 MB to read a library
_PEEK = 1024  # compressed bytes that contain the first of a file, after the code tables


def read_wheel(path: Path) -> tuple[WheelFacts, tuple[LibraryFacts, ...], tuple[str, ...]]:
    """Return the metadata of a wheel, the facts of its ELF files, and all member names."""
    with open_file(path) as file:
        members = {m.name: m for m in read_directory(file, Limits()) if not m.is_folder}
        dist_info = dist_info_of(members, path)
        facts = wheel_facts(
            _text(file, members, f"{dist_info}/METADATA"),
            _text(file, members, f"{dist_info}/WHEEL"),
            members=len(members),
            unpacked=sum(member.size for member in members.values()),
        )
        return facts, _libraries(file, members.values()), tuple(members)


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
        unpacked=unpacked,
    )


def _fields(text: bytes) -> Callable[[str], list[str]]:
    """Return a function from a name to its fields; a missing field gives one empty value."""
    try:
        headers = read_fields(text)
    except ValueError as error:
        raise ArtifactError(f"METADATA or WHEEL: {error}") from None
    return lambda name: [printable(value) for value in headers.get_all(name, [""])]


def _text(file: FileReader, members: dict[str, Member], name: str) -> bytes:
    member = members.get(name)
    if member is None:
        raise ArtifactError("the wheel has no such member", file=file.file, member=name)
    if member.size > _LARGEST_METADATA:
        raise ArtifactError(f"{member.size} bytes of metadata", file=file.file, member=name)
    return _open(file, member).read(0, member.size)


def _libraries(file: FileReader, members: Iterable[Member]) -> tuple[LibraryFacts, ...]:
    """Read the largest first, to keep all threads busy; return the facts by name."""
    found = [member for member in members if _is_elf(file, member)]
    found.sort(key=lambda member: -member.size)
    with ThreadPoolExecutor(min(_MOST_THREADS, process.threads())) as pool:
        libraries = list(pool.map(lambda member: _library(file, member), found))
    return tuple(sorted(libraries, key=lambda library: library.path))


def _is_elf(file: FileReader, member: Member) -> bool:
    start = file.read(member.data, min(_PEEK, member.compressed_size))
    if member.method != STORED:
        try:
            start = zlib_ng.decompressobj(-15).decompress(start, len(MAGIC))
        except zlib_ng.error:  # type: ignore[misc]  # its stub says: no class
            return False
    return start.startswith(MAGIC)


def _library(file: FileReader, member: Member) -> LibraryFacts:
    try:
        return read_library(_open(file, member))
    except ArtifactError as error:
        return LibraryFacts(path=printable(member.name), size=member.size, problem=str(error))


def _open(file: FileReader, member: Member) -> Reader:
    name = printable(member.name)
    packed = file.part(start=member.data, size=member.compressed_size, member=name)
    if member.method == STORED:
        return packed
    return InflatedReader(packed, size=member.size, crc=member.crc, lookout=FatbinLookout())
