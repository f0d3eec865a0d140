"""Decides where temporary files go, how much disk must stay free, and what can be removed. Pure.

Files in memory count towards every memory limit of the build, but not towards any step, so the
governor sees them as the memory of other processes. They get a small share, if there is plenty.
"""

from collections.abc import Iterable, Sequence

from stoker.model.cleaning import Cleaning, CleanupItem, Kind
from stoker.model.errors import UsageError
from stoker.model.machine import Disk, Scratch, Tmp
from stoker.model.value import size

_SHARE = 10  # temporary files may fill a tenth of memory
_TREE_SHARE = 2  # a build tree may fill half of the free memory
_LEAST = 256 << 20  # bytes; a smaller place fills up immediately
_LEAST_FOR_A_CPU = 64 << 20  # bytes; the assembler's input for a large C++ file
_LEAST_FREE = 256 << 20  # bytes of disk that the end of a build needs for logs, records and links
_LEAST_FREE_SHARE = 100  # of a small disk, a hundredth is enough
_NO_TREE = "leave out --build-in-ram"


def choose_scratch(
    wish: Tmp, places: Sequence[Disk], *, named: bool, memory: int, cpus: int
) -> Scratch:
    """Choose among ``places``, of which the first is the default or was ``named`` by the user."""
    usual, paths = places[0], tuple(place.path for place in places)
    on_disk = [place for place in places if not place.in_memory]
    disk = usual if named or not on_disk else on_disk[0]
    ram = _largest_in_memory(places)
    most = min(memory // _SHARE, ram.free // 2) if ram else 0
    plenty = most >= max(_LEAST, cpus * _LEAST_FOR_A_CPU)
    if wish is Tmp.RAM and not most:
        raise UsageError("there is no file system in memory here", hints=["leave out --tmp ram"])
    if ram is None or wish is Tmp.DISK or (wish is Tmp.AUTO and (named or not plenty)):
        return Scratch(disk=disk.path, places=paths)
    return Scratch(disk=disk.path, ram=ram.path, most=most, places=paths)


def room_for_tree(expected: float | None, places: Iterable[Disk], *, free: int) -> tuple[str, int]:
    """Return the place in memory for a build tree and its maximum size, given ``free`` memory.

    Raises UsageError if the ``expected`` size leaves too little memory for the build itself.
    """
    ram = _largest_in_memory(places)
    if ram is None:
        raise UsageError("there is no file system in memory here", hints=[_NO_TREE])
    most = min(free // _TREE_SHARE, ram.free)
    if expected is not None and expected > most:
        raise UsageError(
            f"the build tree takes about {size(expected)}, and memory has {size(most)} for it",
            hints=[_NO_TREE],
        )
    return ram.path, most


def _largest_in_memory(places: Iterable[Disk]) -> Disk | None:
    in_memory = (place for place in places if place.in_memory)
    return max(in_memory, key=lambda place: place.free, default=None)


def least_free(*, total: int, free: int) -> int:
    """Return the bytes that must stay free on a disk; with less, the build stops."""
    return min(_LEAST_FREE, total // _LEAST_FREE_SHARE, free // 2)


def choose(kept: Iterable[CleanupItem], *, before: float, keep: int = 0) -> Cleaning:
    """Choose what was last used before a time, except busy ones, links and the ``keep`` newest."""
    chosen: list[CleanupItem] = []
    spared: list[CleanupItem] = []
    seen = dict.fromkeys(Kind, 0)
    for entry in sorted(kept, key=lambda entry: (list(Kind).index(entry.kind), -entry.used)):
        seen[entry.kind] += 1
        free = not entry.busy and not entry.link
        goes = free and entry.used <= before and seen[entry.kind] > keep
        (chosen if goes else spared).append(entry)
    return Cleaning(chosen=tuple(chosen), spared=tuple(spared))
