"""Reads the facts of one ELF file: loader information, machine, symbol versions, device code."""

import re
import struct
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter

from stoker.model.artifact import (
    CxxAbi,
    DeviceCode,
    DeviceKind,
    ElfKind,
    LibraryFacts,
    RegionPattern,
)
from stoker.model.errors import ArtifactError
from stoker.model.value import version_numbers
from stoker.wheel.elf import elf, fatbin
from stoker.wheel.elf.elf import Elf
from stoker.wheel.elf.fatbin import FatbinEntry, Region, device_regions
from stoker.wheel.reader import Reader

_MOST_FOLDERS = 256  # of a search path: every needed name is searched in each

_VERSION = re.compile(r"([A-Z]+)_([0-9]{1,9}(?:\.[0-9]{1,9})*)")
_RELATIVE_RELOCATIONS = "GLIBC_ABI_DT_RELR"  # a version by name only, of glibc 2.36

# Parts of mangled names: the inline namespace of the C++11 std::string, and the old abbreviation.
_ENOUGH_NAMES = 1 << 20  # bytes of names that suffice to find the C++ ABI
_CXX11_NAME = b"__cxx11"
_OLD_NAMES = (b"RKSs", b"_ZNSs", b"_ZNKSs")

_GNU, _BUILD_ID, _PROPERTIES = b"GNU", 3, 5
_PROPERTY_BITS = {  # by machine and type of property
    ("x86_64", 0xC0008002): ("x86-64-baseline", "x86-64-v2", "x86-64-v3", "x86-64-v4"),
    ("x86_64", 0xC0000002): ("ibt", "shstk"),
    ("aarch64", 0xC0000000): ("bti", "pac"),
}


def read_library(reader: Reader, also: Callable[[Elf], None] | None = None) -> LibraryFacts:
    """Return everything that can be read; for a malformed file: path, size and problem.

    ``also`` is called with the file while it is open.
    """
    try:
        file = Elf(reader)
        facts = _read(file)
        if also:
            also(file)
        return facts
    except ArtifactError as error:
        return LibraryFacts(path=reader.name, size_bytes=reader.size, problem=str(error))


def _read(file: Elf) -> LibraryFacts:
    notes = [note for note in file.notes() if note.owner == _GNU]
    regions = list(device_regions(file))
    sizes: Counter[str] = Counter()
    for name, section in zip(file.section_names, file.sections, strict=True):
        if section.file_size:
            sizes[name] += section.file_size
    return LibraryFacts(
        path=file.reader.name,
        size_bytes=file.reader.size,
        kind=_kind(file),
        machine=file.machine,
        soname=next(iter(file.strings(elf.SONAME)), None),
        needed=file.strings(elf.NEEDED),
        rpath=_folders(file, elf.RPATH),
        runpath=_folders(file, elf.RUNPATH),
        versions=newest_versions(file.needed_versions),
        cxx_abi=_cxx_abi(file.dynamic_strings.content[:_ENOUGH_NAMES]),
        isa=tuple(
            word
            for note in notes
            if note.type == _PROPERTIES
            for word in _isa(file.machine, note.content)
        ),
        build_id=next((note.content.hex() for note in notes if note.type == _BUILD_ID), None),
        stripped=all(section.type != elf.SYMBOL_TABLE for section in file.sections),
        sections=dict(sizes),
        device_code=_device_code(regions),
        regions=_patterns(regions),
    )


def _kind(file: Elf) -> ElfKind:
    if file.header.type == elf.RELOCATABLE:
        return ElfKind.OBJECT
    # A position-independent program is a shared object that names its loader, as libc does too.
    if file.header.type == elf.EXECUTABLE or (
        file.segments_of(elf.INTERPRETER) and not file.strings(elf.SONAME)
    ):
        return ElfKind.PROGRAM
    return ElfKind.LIBRARY if file.header.type == elf.SHARED else ElfKind.OTHER


def _folders(file: Elf, tag: int) -> tuple[str, ...]:
    folders = [folder for path in file.strings(tag) for folder in path.split(":") if folder]
    if len(folders) > _MOST_FOLDERS:
        raise file.reader.error(f"a search path of {len(folders)} folders")
    return tuple(folders)


def newest_versions(names: Iterable[str]) -> dict[str, str]:
    """Return the newest of each series: ``GLIBC_2.5``, ``GLIBC_2.17`` -> ``{"GLIBC": "2.17"}``."""
    newest: dict[str, str] = {}
    for name in names:
        match = _VERSION.fullmatch("GLIBC_2.36" if name == _RELATIVE_RELOCATIONS else name)
        if match:
            series, version = match.groups()
            newest[series] = max(version, newest.get(series, version), key=version_numbers)
    return dict(sorted(newest.items()))


def _cxx_abi(names: bytes) -> CxxAbi | None:
    """Return the ABI of the majority: code of gcc's toolsets, linked statically, may differ."""
    new = names.count(_CXX11_NAME)
    old = sum(names.count(name) for name in _OLD_NAMES)
    if not new and not old:
        return None
    return CxxAbi.CXX11 if new >= old else CxxAbi.OLD


def _isa(machine: str, properties: bytes) -> Iterator[str]:
    """Yield the names of the bits that are set in a property note."""
    position = 0
    while len(properties) - position >= 12:
        kind, size, bits = struct.unpack_from("<III", properties, position)
        for index, word in enumerate(_PROPERTY_BITS.get((machine, kind), ())):
            if bits >> index & 1:
                yield word
        position += 8 + -(-size // 8) * 8


def _device_code(regions: Iterable[tuple[str, Region]]) -> tuple[DeviceCode, ...]:
    """Return the totals by section, kind and architecture, in that order."""
    groups: dict[tuple[int, DeviceKind, int, str], list[FatbinEntry]] = {}
    for section, region in regions:
        for entry in region.entries:
            key = (fatbin.SECTIONS.index(section), entry.kind, entry.number, entry.suffix)
            groups.setdefault(key, []).append(entry)
    return tuple(
        DeviceCode(
            kind=entries[0].kind,
            arch=entries[0].arch,
            size_bytes=sum(entry.payload_size for entry in entries),
            count=len(entries),
            unpacked_bytes=sum(entry.unpacked_size for entry in entries),
            compression=tuple(sorted({entry.compression for entry in entries})),
            section=fatbin.SECTIONS[section],
            linked=fatbin.SECTIONS[section] != fatbin.RELOCATABLE,
        )
        for (section, *_), entries in sorted(groups.items(), key=itemgetter(0))
    )


def _patterns(regions: Iterable[tuple[str, Region]]) -> tuple[RegionPattern, ...]:
    """Return the combinations of architectures, the most frequent first."""
    counts = Counter(
        tuple(dict.fromkeys(entry.arch for entry in region.entries))
        for section, region in regions
        if section != fatbin.RELOCATABLE and region.entries
    )
    return tuple(RegionPattern(archs=archs, count=count) for archs, count in counts.most_common())
