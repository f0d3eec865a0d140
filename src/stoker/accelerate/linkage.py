"""What a linked file offers and needs, and how two links of the same inputs differ.

Two linkers never write the same bytes. Their files are equivalent if the loader and other links see
the same: exported symbols with version, binding, type and visibility, needed libraries, name, run
paths, and the flags that change how the file is loaded.
"""

from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from stoker.knowledge.compiler_modes import symbols_of_linkers
from stoker.model.value import Value, first_of
from stoker.wheel.elf import elf
from stoker.wheel.elf.elf import Elf, Table
from stoker.wheel.elf.tables import symbol_tables, version_indexes
from stoker.wheel.reader import open_file

_VERSIONS_DEFINED = 0x6FFFFFFD  # a type of section
_STACK = 0x6474E551  # a type of segment
_FLAGS, _FLAGS_1, _TEXT_RELOCATIONS, _SYMBOLIC, _BIND_NOW = 30, 0x6FFFFFFB, 22, 16, 24  # tags
_CONSTRUCTORS, _DESTRUCTORS = 27, 28  # tags: bytes of the arrays
# Bits of both flags, by what they do. NOW has a tag and a bit in each.
_NOW, _NOW_1 = 8, 1
_BITS = {"symbolic": 2, "text relocations": 4, "static TLS": 16}
_BITS_1 = {"global": 2, "no delete": 8, "first": 32, "no dlopen": 64}
_OBJECT, _TLS = 1, 6  # types of symbols whose size a program copies or reserves
_BINDINGS = {1: "global", 2: "weak", 10: "unique"}
_VISIBILITIES = {0: "default", 1: "internal", 2: "hidden", 3: "protected"}
_HIDDEN = 0x8000  # a version that new links do not use: name@VERSION, not name@@VERSION
_ABSOLUTE = 0xFFF1
_MOST_SHOWN = 3


class Linkage(Value, frozen=True, kw_only=True):
    """``facts`` is what the loader reads, by name; ``exported`` are lines such as
    ``f@@V1 global function``.
    """

    facts: dict[str, str]
    exported: frozenset[str]


def read_linkage(path: Path) -> Linkage:
    """Read a 64-bit program or library."""
    with open_file(path) as reader:
        return linkage_of(Elf(reader))


def linkage_of(file: Elf) -> Linkage:
    if not file.is_wide_and_little:
        raise file.reader.error("only 64-bit little-endian files can be compared")
    return Linkage(facts=_facts(file), exported=frozenset(_exported(file)))


def differences(before: Linkage, after: Linkage) -> tuple[str, ...]:
    """Return how a link differs from another one of the same inputs; nothing if equivalent."""
    facts = tuple(
        f"{name}: {after.facts[name] or 'none'}, not {before.facts[name] or 'none'}"
        for name in before.facts
        if before.facts[name] != after.facts[name]
    )
    missing, added = before.exported - after.exported, after.exported - before.exported
    return (*facts, *_listed("does not export", missing), *_listed("also exports", added))


def _listed(how: str, symbols: frozenset[str]) -> Iterator[str]:
    if symbols:
        yield f"{how} {first_of(sorted(symbols), _MOST_SHOWN)}"


def _facts(file: Elf) -> dict[str, str]:
    flags, flags_1 = file.value(_FLAGS) or 0, file.value(_FLAGS_1) or 0
    now = flags & _NOW or flags_1 & _NOW_1 or file.value(_BIND_NOW) is not None
    set_bits = {name for name, bit in _BITS.items() if flags & bit}
    set_bits |= {name for name, bit in _BITS_1.items() if flags_1 & bit}
    set_bits |= {"symbolic"} if file.value(_SYMBOLIC) is not None else set()
    set_bits |= {"text relocations"} if file.value(_TEXT_RELOCATIONS) is not None else set()
    stacks = file.segments_of(_STACK)
    return {
        "type": str(file.header.type),
        "machine": file.machine,
        "soname": " ".join(file.strings(elf.SONAME)),
        "needed": " ".join(file.strings(elf.NEEDED)),
        "rpath": ":".join(file.strings(elf.RPATH)),
        "runpath": ":".join(file.strings(elf.RUNPATH)),
        "needed versions": " ".join(sorted(file.needed_versions)),
        "defined versions": " ".join(sorted(_defined_versions(file).values())),
        "loader": "".join(_text(file, segment) for segment in file.segments_of(elf.INTERPRETER)),
        "flags": ", ".join(sorted(set_bits | ({"bind now"} if now else set()))),
        "executable stack": "yes" if any(stack.flags & 1 for stack in stacks) else "no",
        "constructors": str((file.value(_CONSTRUCTORS) or 0) // 8),
        "destructors": str((file.value(_DESTRUCTORS) or 0) // 8),
    }


def _text(file: Elf, segment: elf.Segment) -> str:
    return (
        file.reader.read(segment.offset, segment.file_size).rstrip(b"\0").decode("ascii", "replace")
    )


def _exported(file: Elf) -> Iterator[str]:
    """Yield the defined symbols that other files can see, without those that linkers add."""
    versions, marks = _defined_versions(file), version_indexes(file)
    own = symbols_of_linkers() | set(versions.values())
    rows = chain.from_iterable(rows for _, rows in symbol_tables(file, elf.DYNAMIC_SYMBOLS))
    for index, row in enumerate(rows):
        mark = marks[index] if index < len(marks) else 1
        if not row.section or row.binding not in _BINDINGS:
            continue
        text = file.dynamic_strings.string(row.name)
        if text in own and (row.section == _ABSOLUTE or text not in versions.values()):
            continue
        version = versions.get(mark & ~_HIDDEN)
        sign = "@" if mark & _HIDDEN else "@@"
        where = f"{sign}{version}" if version else ""
        sized = f" of {row.size} bytes" if row.type in (_OBJECT, _TLS) else ""
        seen = _VISIBILITIES[row.visibility]
        yield f"{text}{where} ({_BINDINGS[row.binding]}, type {row.type}, {seen}{sized})"


def _defined_versions(file: Elf) -> dict[int, str]:
    """Return the versions that the file defines, by index, without its own name."""
    section = next((part for part in file.sections if part.type == _VERSIONS_DEFINED), None)
    if section is None or not section.file_size:
        return {}
    content = file.reader.read(section.offset, section.file_size)
    table = Table(file.reader, "<", section.offset, content)
    found: dict[int, str] = {}
    position, following = 0, -1
    while following and len(found) < section.info:
        _, flags, index, _, _, names, following = table.record("HHHHIII", position)
        name, _ = table.record("II", position + names)
        if not flags & 1:  # the base definition is the name of the file
            found[index] = file.dynamic_strings.string(name)
        position += following
    return found
