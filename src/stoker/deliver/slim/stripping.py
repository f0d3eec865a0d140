"""What a library holds for nobody: symbol tables for debuggers, and space that edits left behind.

patchelf moves tables that grow to the end of a file; the old ones stay behind, loaded and unused.
"""

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from stoker.artifact import elf
from stoker.artifact.elf import Elf
from stoker.deliver.slim.cutting import in_use, span_of
from stoker.deliver.slim.spans import Span, Spans


class Stripping(NamedTuple):
    """``dropped`` are indexes of sections."""

    dropped: frozenset[int] = frozenset()
    freed: tuple[Span, ...] = ()


def find_unused(file: Elf) -> Stripping:
    dropped = frozenset(_symbol_sections(file))
    spans = [span_of(file.sections[index]) for index in dropped]
    return Stripping(dropped, (*spans, *_dead_space(file)))


def _symbol_sections(file: Elf) -> Iterator[int]:
    """Symbol tables and their strings, if nothing else goes by them."""
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
    """Pages that are loaded, but of no section."""
    if not _sections_tell_all(file):
        return
    used = Spans(in_use(file))
    for load in file.segments_of(elf.LOAD):
        for gap in used.left_of(span_of(load)):
            if gap.size >= 2 * file.page:  # so that one page at least is whole
                yield gap


def _sections_tell_all(file: Elf) -> bool:
    """Whether everything is in a section that the loader reads; a tool may have removed headers."""
    loaded = Spans(
        Span(section.address, section.address + section.size)
        for section in file.sections
        if section.flags & elf.ALLOCATED
    )
    read = [value for tag, value in file.dynamic if tag in elf.TABLES]
    return bool(read) and all(loaded.overlap(Span(place, place + 1)) for place in read)
