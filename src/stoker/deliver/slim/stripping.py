"""Finds the unused parts of a library: symbol tables for debuggers, and space left by editors.

patchelf moves growing tables to the end of a file; the old ones stay in it, loaded and unused.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from stoker.artifact import elf
from stoker.artifact.elf import Elf
from stoker.deliver.slim.cutting import in_use, span_of
from stoker.deliver.slim.spans import Span, Spans


class Stripping(NamedTuple):
    """``dropped`` are the indexes of sections, ``freed`` their bytes and unused pages."""

    dropped: frozenset[int] = frozenset()
    freed: tuple[Span, ...] = ()


def find_unused(file: Elf) -> Stripping:
    dropped = frozenset(_symbol_sections(file))
    spans = [span_of(file.sections[index]) for index in dropped]
    return Stripping(dropped, (*spans, *_dead_space(file)))


def _symbol_sections(file: Elf) -> Iterator[int]:
    """Yield symbol tables and their strings if no other section refers to them."""
    users = Counter(section.link for section in file.sections)
    for index, section in enumerate(file.sections):
        if section.type != elf.SYMBOL_TABLE or section.flags & elf.ALLOCATED or users[index]:
            continue
        yield index
        strings = section.link
        own = users[strings] == 1 and strings not in (0, file.header.names_index)
        if own and strings < len(file.sections):
            yield strings


def _dead_space(file: Elf) -> Iterator[Span]:
    """Yield loaded pages that belong to no section."""
    if not _sections_tell_all(file):
        return
    used = Spans(in_use(file))
    for load in file.segments_of(elf.LOAD):
        for gap in used.left_of(span_of(load)):
            if gap.size >= 2 * file.page:  # so that it contains at least one whole page
                yield gap


def _sections_tell_all(file: Elf) -> bool:
    """Return whether sections cover all tables of the loader; section headers may be missing."""
    loaded = Spans(
        Span(section.address, section.address + section.size)
        for section in file.sections
        if section.flags & elf.ALLOCATED
    )
    read = [value for tag, value in file.dynamic if tag in elf.TABLES]
    return bool(read) and all(loaded.overlap(Span(place, place + 1)) for place in read)
