"""Memory or disk for temporary files and build trees; how much disk must stay free."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stoker.govern.client.scratch import choose_scratch, least_free, room_for_tree
from stoker.model.errors import UsageError
from stoker.model.machine import Disk, Scratch, Tmp

GIB = 1 << 30
TMP = Disk(path="/tmp", filesystem="ext4", total=100 * GIB, free=50 * GIB, in_memory=False)
SHM = Disk(path="/dev/shm", filesystem="tmpfs", total=16 * GIB, free=16 * GIB, in_memory=True)
SMALL_SHM = Disk(path="/dev/shm", filesystem="tmpfs", total=64 << 20, free=64 << 20, in_memory=True)
TMP_IN_MEMORY = Disk(path="/tmp", filesystem="tmpfs", total=GIB, free=GIB, in_memory=True)
CACHE = Disk(path="/home/me/.cache", filesystem="ext4", total=GIB, free=GIB, in_memory=False)


def chosen(
    *disks: Disk, wish: Tmp = Tmp.AUTO, memory: int = 32 * GIB, cpus: int = 8, named: bool = False
) -> Scratch:
    scratch = choose_scratch(wish, disks, named=named, memory=memory, cpus=cpus)
    assert scratch.places == tuple(disk.path for disk in disks)
    return replace(scratch, places=())


def test_memory_where_there_is_plenty() -> None:
    assert chosen(TMP, SHM) == Scratch(disk="/tmp", ram="/dev/shm", most=32 * GIB // 10)


@pytest.mark.parametrize(
    ("scratch", "why"),
    [
        (chosen(TMP), "no file system in memory"),
        (chosen(TMP, SMALL_SHM), "a container's is too small"),
        (chosen(TMP, SHM, memory=2 * GIB), "a tenth of little memory is nothing"),
        (chosen(TMP, SHM, cpus=64), "too little for so many steps at once"),
        (chosen(TMP, SHM, wish=Tmp.DISK), "asked for"),
        (chosen(TMP, SHM, named=True), "the user named another place"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_disk_where_there_is_not(scratch: Scratch, why: str) -> None:
    assert scratch == Scratch(disk="/tmp"), why


def test_memory_that_is_asked_for() -> None:
    assert chosen(TMP, SHM, wish=Tmp.RAM, named=True, memory=2 * GIB).ram == "/dev/shm"
    with pytest.raises(UsageError, match="no file system in memory"):
        chosen(TMP, wish=Tmp.RAM)


def test_a_tmp_that_lies_in_memory_is_no_disk() -> None:
    assert chosen(TMP_IN_MEMORY, CACHE, wish=Tmp.DISK) == Scratch(disk="/home/me/.cache")
    assert chosen(TMP_IN_MEMORY, CACHE, SHM).disk == "/home/me/.cache"
    assert chosen(TMP_IN_MEMORY, wish=Tmp.DISK) == Scratch(disk="/tmp")  # there is nothing else
    assert chosen(TMP_IN_MEMORY, CACHE, named=True) == Scratch(disk="/tmp")


@given(st.integers(0, 1 << 44), st.integers(1, 1024), st.integers(0, 1 << 44), st.sampled_from(Tmp))
def test_never_more_than_a_tenth_or_than_there_is(
    memory: int, cpus: int, free: int, wish: Tmp
) -> None:
    shm = Disk(path="/dev/shm", filesystem="tmpfs", total=1 << 44, free=free, in_memory=True)
    try:
        scratch = chosen(TMP, shm, wish=wish, memory=memory, cpus=cpus)
    except UsageError:
        assert wish is Tmp.RAM
        return
    assert scratch.most <= memory / 10
    assert scratch.most <= free / 2
    assert (scratch.ram is None) == (scratch.most == 0)


def test_a_tree_that_fits() -> None:
    assert room_for_tree(3 * GIB, [TMP, SHM], free=8 * GIB) == ("/dev/shm", 4 * GIB)
    assert room_for_tree(None, [TMP, SHM], free=64 * GIB) == ("/dev/shm", 16 * GIB)


@pytest.mark.parametrize(
    ("expected", "disks", "free"), [(5 * GIB, [SHM], 8 * GIB), (GIB, [SMALL_SHM], 8 * GIB)]
)
def test_a_tree_that_does_not(expected: int, disks: list[Disk], free: int) -> None:
    with pytest.raises(UsageError, match="build tree takes about") as caught:
        room_for_tree(expected, disks, free=free)
    assert "--build-in-ram" in caught.value.hints[0]


def test_a_tree_without_memory_to_lie_in() -> None:
    with pytest.raises(UsageError, match="no file system in memory"):
        room_for_tree(1, [TMP], free=8 * GIB)


def test_room_that_must_stay() -> None:
    assert least_free(total=200 * GIB, free=50 * GIB) == 256 << 20
    assert least_free(total=GIB, free=GIB) == GIB // 100
    assert least_free(total=200 * GIB, free=10 << 20) == 5 << 20  # a small build may still do
