"""Damaged libraries: truncated, or with wrong offsets, sizes and counts."""

import struct
from collections.abc import Callable

from hypothesis import strategies as st

from built_libraries import BytesReader
from stoker.wheel.elf.elf import Elf

_NUMBERS = [0, 1, 0xFF, 0xFFFF, 2**31, 2**32 - 1, 2**63, 2**64 - 1]


def places(content: bytes, *names: str, most: int) -> list[int]:
    """Return the offsets of headers and of the first bytes of the named sections."""
    file = Elf(BytesReader(content))
    parts = [(0, 64 + 56 * len(file.segments))]
    parts += [(section.offset, min(section.size, most)) for _, section in file.named(*names)]
    parts.append((file.header.sections_offset, 64 * len(file.sections)))
    return [place for start, size in parts for place in range(start, start + size, 2)]


@st.composite
def damaged(
    draw: st.DrawFn, original: Callable[[], bytes], known: Callable[[], list[int]]
) -> bytes:
    """Return a strategy; it calls ``original`` and ``known`` only when a test runs."""
    content = bytearray(original())
    for _ in range(draw(st.integers(1, 4))):
        number = draw(st.sampled_from(_NUMBERS) | st.integers(0, 4 * len(content)))
        form, width = draw(st.sampled_from([("<B", 1), ("<H", 2), ("<I", 4), ("<Q", 8)]))
        place = draw(st.sampled_from(known()) | st.integers(0, len(content) - 8))
        struct.pack_into(form, content, min(place, len(content) - 8), number % 256**width)
    if draw(st.booleans()):
        return bytes(content)
    return bytes(content[: draw(st.integers(0, len(content)))])
