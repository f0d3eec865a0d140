"""What macOS's programs print, as recorded; nothing of macOS is needed."""

from stoker.machine.macos import macos_answer, parse_macos_mounts, parse_memory
from stoker.model.machine import Memory

STATISTICS = """\
Mach Virtual Memory Statistics: (page size of 16384 bytes)
Pages free:                               100.
Pages active:                          400000.
Pages inactive:                           200.
Pages speculative:                         30.
Pages throttled:                            0.
Pages wired down:                      100000.
Pages purgeable:                            4.
"""
SWAP = "total = 2048.00M  used = 1024.50M  free = 1023.50M  (encrypted)"


def test_memory_that_can_be_taken_without_swapping() -> None:
    assert parse_memory("17179869184", STATISTICS, SWAP) == Memory.without_groups(
        total=16 << 30, available=334 * 16384, swap_total=2 << 30, swap_free=int(1023.5 * (1 << 20))
    )


def test_memory_that_is_not_told() -> None:
    assert parse_memory("", STATISTICS, SWAP) is None
    assert parse_memory("17179869184", "", SWAP) is None


def test_mounts() -> None:
    printed = """\
/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)
map auto_home on /System/Volumes/Data/home (autofs, automounted)
/dev/disk4s1 on /Volumes/My on disk (hfs, local)
"""
    assert [(mount.point, mount.filesystem) for mount in parse_macos_mounts(printed)] == [
        ("/", "apfs"),
        ("/System/Volumes/Data/home", "autofs"),
        ("/Volumes/My on disk", "hfs"),
    ]


def test_a_program_that_is_not_there_says_nothing() -> None:
    assert macos_answer("no-such-program-here") == ""
