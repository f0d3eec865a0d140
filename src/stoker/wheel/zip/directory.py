"""Reads the central directory of a zip file and checks all of it against the file.

Two programs must never read different contents from one file, so anything ambiguous is refused:
names that lead elsewhere, overlapping members, bytes outside of members, headers that contradict
each other.
"""

import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from stoker.model.errors import ArtifactError
from stoker.model.value import Value
from stoker.model.value import size as in_words
from stoker.wheel.reader import Reader
from stoker.wheel.zip import headers as zip_

_FORBIDDEN = re.compile(r"[\x00-\x1f\x7f\\\ud800-\udfff]|^[A-Za-z]:")
_LONGEST = 4096  # the longest path on Linux
_DEEPEST = 100  # nested folders
_DIRECTORY_LIMIT = 32 << 20  # a quarter of a million members
_NEWEST = 63  # version of the zip format
_KNOWN_FLAGS = zip_.DESCRIPTOR | zip_.UTF8 | zip_.DEFLATE_HINTS


def name_problem(name: str) -> str | None:
    """Return why a name is refused, for example because it leads to another folder, or None."""
    if _FORBIDDEN.search(name):
        return "the name has a backslash, a drive letter or an invalid character"
    if len(name) > _LONGEST:
        return "the name is too long"
    if name.startswith("/"):
        return "the name is an absolute path"
    parts = name.removesuffix("/").split("/")
    if ".." in parts:
        return "the name leads out of the wheel"
    if "." in parts or "" in parts:
        return "the name has an empty part"
    if len(parts) > _DEEPEST:
        return f"its folders are nested more than {_DEEPEST} deep"
    return None


def name_clash(names: Iterable[str]) -> str | None:
    """Return a name that is also a folder of another, such as ``a`` and ``a/b``, or None."""
    files = set(names)
    folders: set[str] = set()
    for name in files:
        folder = name.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return min(files & folders, default=None)


def name_place(name: str) -> tuple[bool, bool, str]:
    """Return a sort key: dist-info comes last and ends with RECORD, as the format recommends."""
    folder, _, rest = name.partition("/")
    in_dist_info = folder.endswith(".dist-info")
    return in_dist_info, in_dist_info and rest == "RECORD", name


class ZipLimits(Value, frozen=True, kw_only=True):
    """How large a wheel may be unpacked: ``free`` bytes, or ``ratio`` times its own size."""

    unpacked: int = 64 << 30
    ratio: int = 100
    free: int = 64 << 20


class Member(Value, frozen=True, kw_only=True):
    """A file in the archive. ``offset`` is where its header starts, ``data`` where its bytes do."""

    name: str
    size: int
    compressed_size: int
    crc: int
    mode: int  # permissions only
    method: int
    offset: int
    data: int

    @property
    def is_folder(self) -> bool:
        return self.name.endswith("/")


def read_directory(file: Reader, limits: ZipLimits) -> tuple[Member, ...]:
    """Return all members in file order."""
    end = _end(file)
    entries = _entries(file, end)
    _check_bomb(file, entries, limits)
    _check_names(file, entries)
    entries.sort(key=lambda entry: entry.offset)
    members = tuple(member_of(file, entry) for entry in entries)
    _check_layout(file, entries, members, end.offset)
    return members


def read_listed(file: Reader, limits: ZipLimits) -> dict[str, zip_.DirectoryEntry]:
    """Return the entries of the central directory by name, without folders. The members themselves
    are not compared with it, so that a few reads suffice for a wheel that lies on a server.
    """
    entries = _entries(file, _end(file))
    _check_bomb(file, entries, limits)
    _check_names(file, entries)
    return {entry.name.decode(): entry for entry in entries if not entry.name.endswith(b"/")}


def member_of(file: Reader, entry: zip_.DirectoryEntry) -> Member:
    """Return a member, after comparing its entry with its local header."""
    with _at(file, entry.offset, entry.name):
        header = file.read_at(entry.offset, zip_.LOCAL_SIZE + len(entry.name))
        local = zip_.unpack_local(header)
        data = entry.offset + zip_.LOCAL_SIZE + local.name_length
        extra = file.read_at(data, local.extra_length) if local.extra_length else b""
        _compare(entry, local, header[zip_.LOCAL_SIZE :], zip_.local_sizes(local, extra))
    return Member(
        name=entry.name.decode(),
        size=entry.sizes.unpacked,
        compressed_size=entry.sizes.compressed,
        crc=entry.sizes.crc,
        mode=stat.S_IMODE(_unix_mode(entry)) or 0o644,
        method=entry.method,
        offset=entry.offset,
        data=data + local.extra_length,
    )


@contextmanager
def _at(file: Reader, offset: int, member: bytes | None = None) -> Iterator[None]:
    """Turn a MalformedError into an error with the place in the file."""
    try:
        yield
    except zip_.MalformedError as error:
        shown = None if member is None else _shown(member)
        raise ArtifactError(str(error), file=file.name, member=shown, offset=offset) from None


def _shown(name: bytes) -> str:
    """Return a name for an error message, escaped if needed."""
    text = name.decode(errors="backslashreplace")
    return text if text.isprintable() else ascii(text)


def _end(file: Reader) -> zip_.End:
    position = max(0, file.size - zip_.END_SIZE)
    with _at(file, position):
        end = zip_.unpack_end(file.read_at(position, zip_.END_SIZE))
    before = max(0, position - zip_.END64_SIZE)
    with _at(file, before):
        wide = zip_.unpack_end64(file.read_at(before, zip_.END64_SIZE), before)
        if wide is not None:
            if not end.agrees(wide):
                raise zip_.MalformedError("the two end records contradict each other")
            end, position = wide, before
        if end.offset + end.size != position:
            raise zip_.MalformedError("the central directory is not where the end record says")
        if end.size > _DIRECTORY_LIMIT:
            raise zip_.MalformedError(f"a central directory of {in_words(end.size)}")
    return end


def _entries(file: Reader, end: zip_.End) -> list[zip_.DirectoryEntry]:
    entries = []
    with _at(file, end.offset):
        for position, entry in zip_.unpack_entries(file.read_at(end.offset, end.size), end.entries):
            if problem := _problem(entry):
                with _at(file, end.offset + position, entry.name):
                    raise zip_.MalformedError(problem)
            entries.append(entry)
    return entries


def _problem(entry: zip_.DirectoryEntry) -> str | None:
    """Return why an entry of the directory is refused, or None."""
    if entry.flags & zip_.ENCRYPTED:
        return "the member is encrypted"
    if entry.flags & ~_KNOWN_FLAGS or entry.version > _NEWEST:
        return f"version {entry.version} with flags {entry.flags:#06x} is not supported"
    if entry.method not in (zip_.STORED, zip_.DEFLATED):
        return f"compression method {entry.method} is not supported: only stored and deflate are"
    if entry.method == zip_.STORED and entry.sizes.compressed != entry.sizes.unpacked:
        return "a stored member with two sizes"
    if zip_.SECOND_NAME in entry.extra:
        return "the member has a second name"
    if not entry.name.isascii() and not entry.flags & zip_.UTF8:
        return "the name is neither ASCII nor marked as UTF-8"
    try:
        name = entry.name.decode()
    except UnicodeDecodeError:
        return "the name is not UTF-8"
    if problem := name_problem(name):
        return problem
    kind, is_folder = stat.S_IFMT(_unix_mode(entry)), name.endswith("/")
    if kind == stat.S_IFLNK:
        return "the member is a symbolic link"
    if kind not in (0, stat.S_IFDIR if is_folder else stat.S_IFREG):
        return "the member is not a regular file"
    return "a folder with content" if is_folder and entry.sizes.unpacked else None


def _unix_mode(entry: zip_.DirectoryEntry) -> int:
    return entry.attributes >> 16 if entry.system == zip_.UNIX else 0


def _check_bomb(file: Reader, entries: Iterable[zip_.DirectoryEntry], limits: ZipLimits) -> None:
    unpacked = sum(entry.sizes.unpacked for entry in entries)
    if unpacked > min(limits.unpacked, max(limits.free, limits.ratio * file.size)):
        largest = max(entries, key=lambda entry: entry.sizes.unpacked)
        with _at(file, largest.offset, largest.name):
            raise zip_.MalformedError(
                f"{in_words(file.size)} claim to unpack to {in_words(unpacked)}: a zip bomb"
            )


def _check_names(file: Reader, entries: Iterable[zip_.DirectoryEntry]) -> None:
    seen: set[bytes] = set()
    for entry in entries:
        with _at(file, entry.offset, entry.name):
            name = entry.name.removesuffix(b"/")
            if name in seen:
                raise zip_.MalformedError("the archive contains this member twice")
            seen.add(name)
    files = {entry.name.decode(): entry for entry in entries if not entry.name.endswith(b"/")}
    if clash := name_clash(files):
        with _at(file, files[clash].offset, files[clash].name):
            raise zip_.MalformedError("the member is both a file and a folder")


def _compare(entry: zip_.DirectoryEntry, local: zip_.Local, name: bytes, sizes: zip_.Sizes) -> None:
    other_flags = (local.flags ^ entry.flags) & ~zip_.DEFLATE_HINTS
    if other_flags or local.method != entry.method:
        raise zip_.MalformedError("the local header contradicts the central directory")
    if local.name_length != len(entry.name) or name != entry.name:
        raise zip_.MalformedError(f"the local header has another name, {_shown(name)}")
    told_later = entry.flags & zip_.DESCRIPTOR and sizes == (0, 0, 0)
    if sizes != entry.sizes and not told_later:
        raise zip_.MalformedError("the local header has other sizes or another checksum")


def _check_layout(
    file: Reader,
    entries: list[zip_.DirectoryEntry],
    members: Iterable[Member],
    directory: int,
) -> None:
    """Check that members follow one another, each with its descriptor if it has one."""
    starts = [*(entry.offset for entry in entries), directory]
    with _at(file, 0):
        if starts[0] != 0:
            raise zip_.MalformedError("bytes before the first member")
    for entry, member, following in zip(entries, members, starts[1:], strict=True):
        end = member.data + member.compressed_size
        with _at(file, end, entry.name):
            if end > following:
                raise zip_.MalformedError("the member overlaps what follows it")
            described = entry.flags & zip_.DESCRIPTOR
            # One byte more than the longest descriptor, so that a longer gap is detected.
            gap = file.read_at(end, min(following - end, 25)) if following > end else b""
            if gap not in (zip_.descriptors(entry.sizes) if described else (b"",)):
                raise zip_.MalformedError("bytes that belong to no member")
