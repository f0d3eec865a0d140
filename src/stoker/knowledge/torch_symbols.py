"""The symbols that PyTorch's official wheels export, by release, machine and CUDA.

The table, torch_symbols.xz, is made by release/torch_symbols.py. It holds every exported name once,
in order, and for each name the number of a mask: which builds export it. A release changes few
names, so the names of all releases need little more room than those of one.
"""

import lzma
import re
from array import array
from collections.abc import Collection, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache

import msgspec

from stoker.knowledge import Row, file_content, table
from stoker.model.value import prepared

OLDEST = "2.4.0"  # the oldest release in the table
_TABLE = "torch_symbols.xz"


class TorchBuild(Row, frozen=True, kw_only=True):
    """A build of PyTorch. ``cuda`` is its major CUDA version, or None for a CPU build."""

    release: str
    machine: str
    cuda: str | None = None
    libraries: tuple[str, ...]


class _Head(Row, frozen=True, kw_only=True):
    builds: tuple[TorchBuild, ...]
    masks: tuple[str, ...]  # in hexadecimal; bit 0 is the first build


class _Table(Row, frozen=True, kw_only=True):
    builds: tuple[TorchBuild, ...]
    masks: Mapping[str, int]  # by name


def known_builds() -> tuple[TorchBuild, ...]:
    """Return the builds in the table, the oldest release first."""
    return _table().builds


def exporters(name: str) -> int:
    """Return which builds export a name, as bits in the order of `builds`."""
    return _table().masks.get(name, 0)


def pack_symbols(found: Iterable[tuple[TorchBuild, Collection[str]]]) -> bytes:
    """Return the table of builds with the names that they export."""
    masks: dict[str, int] = {}
    ordered = list(found)
    for place, (_, names) in enumerate(ordered):
        for name in names:
            masks[name] = masks.get(name, 0) | 1 << place
    distinct = sorted(set(masks.values()))
    number = {mask: place for place, mask in enumerate(distinct)}
    names = sorted(masks)
    head = _Head(
        builds=tuple(build for build, _ in ordered), masks=tuple(f"{mask:x}" for mask in distinct)
    )
    numbers = array("H", (number[masks[name]] for name in names)).tobytes()
    # The low bytes and the high bytes apart compress better.
    parts = (msgspec.json.encode(head), "\n".join(names).encode(), numbers[::2] + numbers[1::2])
    return lzma.compress(b"\0".join(parts), preset=9 | lzma.PRESET_EXTREME)


def unpack_symbols(packed: bytes) -> _Table:
    head, names, numbers = lzma.decompress(packed).split(b"\0", 2)
    described = msgspec.json.decode(head, type=prepared(_Head))
    masks = [int(mask, 16) for mask in described.masks]
    half = len(numbers) // 2
    return _Table(
        builds=described.builds,
        masks={
            name: masks[low + 256 * high]
            for name, low, high in zip(
                names.decode().split("\n"), numbers[:half], numbers[half:], strict=True
            )
        },
    )


@cache
def _table() -> _Table:
    return unpack_symbols(file_content(_TABLE))


class _Names(Row, frozen=True, kw_only=True):
    namespaces: tuple[str, ...]
    shim: tuple[str, ...]
    other: tuple[str, ...]


class _Abi(Row, frozen=True, kw_only=True):
    libraries: tuple[str, ...]
    back_ends: dict[str, tuple[str, ...]]
    names: _Names


_abi = table("torch_abi", _Abi)


def is_torch_library(name: str) -> bool:
    """Return whether a library is one of PyTorch's own, by its name."""
    return any(fnmatchcase(name, pattern) for pattern in _abi().libraries)


def back_end_of(library: str) -> str | None:
    """Return the back end without which PyTorch does not have that library, such as CUDA."""
    for back_end, patterns in _abi().back_ends.items():
        if any(fnmatchcase(library, pattern) for pattern in patterns):
            return back_end
    return None


def is_of_shim(name: str) -> bool:
    """Return whether a symbol belongs to the C interface that all later releases keep."""
    return name.startswith(_abi().names.shim)


def is_torchs(name: str) -> bool:
    """Return whether only PyTorch can export a symbol."""
    return bool(_own_names().match(name)) or name.startswith(
        (*_abi().names.shim, *_abi().names.other)
    )


@cache
def _own_names() -> re.Pattern[str]:
    spaces = "|".join(f"{len(name)}{name}" for name in _abi().names.namespaces)
    # _Z, the kind of special names (tables of types, guards, thunks), qualifiers, the namespace.
    # The standard library counts with types of PyTorch: torch has compiled those templates.
    special, qualified = "(?:T[VTISW]|GV|T[hv][n0-9_]+)?Z?", "(?:N[rVKRO]*)?"
    return re.compile(rf"_Z{special}{qualified}(?:{spaces}|S[tabsiod].*N(?:{spaces}))")
