"""The list of architectures behind torch.cuda.get_arch_list(): one string in libtorch_python.so.

PyTorch uses it for warnings, so it has to name the architectures that are left. The string ends
with a zero byte and only becomes shorter, so it is overwritten in place.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path, PurePosixPath

from stoker.model.errors import ArtifactError
from stoker.model.slimming import LibrarySlim
from stoker.model.variant import GpuTarget
from stoker.wheel.elf.elf import Elf
from stoker.wheel.inspect.runs_on import needed_code
from stoker.wheel.reader import Reader, open_file

# It may carry an ABI suffix, as in libtorch_python.cpython-312-x86_64-linux-gnu.so.
_LISTING = re.compile(r"libtorch_python(\.[\w-]+)?\.so")
_LISTED = "libtorch_cuda.so"  # holds the code that the list describes
_SECTION = ".rodata"
_WORD = rb"(?:sm|compute)_\d{2,3}[af]?"
# It continues behind a match, so that no string is searched more than once.
_LIST = re.compile(rb"%b(?: %b)*+" % (_WORD, _WORD))
_POOL = 16  # alignment of strings behind constants that end without a zero byte
_MOST = 256 << 20  # bytes of the section that are searched


def kept_words(path: Path, gpus: Sequence[GpuTarget]) -> tuple[str, ...] | None:
    """Return the new words of the list, or None if there is no list or nothing changes."""
    _, words = _find(path)
    needed = needed_code(words, gpus)
    kept = tuple(word for word in words if word in needed)
    return kept if kept and kept != words else None


def write_words(path: Path, words: Sequence[str]) -> None:
    """Overwrite the list in a file that only this process uses."""
    offset, old = _find(path)
    if not old:
        raise ArtifactError("the list of architectures was not found", file=str(path))
    content = " ".join(words).encode().ljust(len(" ".join(old)), b"\0")
    with path.open("r+b") as stream:
        stream.seek(offset)
        stream.write(content)


def _find(path: Path) -> tuple[int, tuple[str, ...]]:
    """Return the offset and the words of the list; no words if there is not exactly one."""
    found = []
    with open_file(path) as reader, suppress(ArtifactError):  # the plan of the library reports it
        found = list(islice(_lists(reader), 2))
    return found[0] if len(found) == 1 else (0, ())


def _lists(reader: Reader) -> Iterator[tuple[int, tuple[str, ...]]]:
    sections = Elf(reader).named(_SECTION)
    if len(sections) != 1:
        return
    _, section = sections[0]
    data = reader.read(section.offset, min(section.file_size, _MOST))
    for match in _LIST.finditer(data):
        start, end = match.span()
        words = tuple(match[0].decode().split())
        ends = data[end : end + 1] == b"\0"
        # Constants may precede it without a zero byte. Then it is aligned, and only a list of
        # several words is taken for one.
        before = data[start - 1 : start] if start else b"\0"
        is_aligned = (section.address + start) % _POOL == 0
        if ends and (not b" " <= before <= b"~" or (is_aligned and len(words) > 1)):
            yield section.offset + start, words


def is_about(listing: str, libraries: Collection[LibrarySlim]) -> bool:
    """Return whether a file holds the list, and the code that it describes was read."""
    path = PurePosixPath(listing)
    described = str(path.with_name(_LISTED))
    return _LISTING.fullmatch(path.name) is not None and any(
        library.path == described and library.archs and not library.skipped_because
        for library in libraries
    )
