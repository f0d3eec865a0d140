"""Deciding whether memory ran out: every form of an OOM kill, and failures that only look
like one.
"""

import pytest

from stoker.govern.policy.repeats import Surroundings, ran_out_of_memory

GIB = 1024**3
FACES = [
    b"c++: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.\n",
    b"g++: internal compiler error: Killed (program cc1plus)\n",
    b"nvcc error   : 'cicc' died due to signal 9 (Kill signal)\n",
    b"nvcc error   : 'ptxas' died due to signal 9 (Kill signal)\n",
    b"Killed\n",
    b"/bin/sh: line 1: 1234 Killed\n",
]
REFUSALS = [
    b"cc1plus: out of memory allocating 65536 bytes after a total of 1 bytes\n",
    b"Catastrophic error: out of memory\ncatastrophic error: out of memory\n",
    b"virtual memory exhausted: Cannot allocate memory\n",
    b"terminate called after throwing an instance of 'std::bad_alloc'\n",
    b"collect2: fatal error: vfork: Cannot allocate memory\n",
    b"LLVM ERROR: out of memory\n",
]


def around(kills: int | None = 0, free: int = 8 * GIB) -> Surroundings:
    return Surroundings(oom_kills=kills, least_free=free, limit=16 * GIB)


@pytest.mark.parametrize("tail", FACES)
def test_a_kill_that_the_group_counted(tail: bytes) -> None:
    assert ran_out_of_memory(1, 0, tail, around(kills=1))
    assert not ran_out_of_memory(1, 0, tail, around(kills=0))


@pytest.mark.parametrize("tail", FACES)
def test_without_a_counter_the_memory_must_have_been_tight(tail: bytes) -> None:
    assert ran_out_of_memory(1, 0, tail, around(kills=None, free=0))
    assert not ran_out_of_memory(1, 0, tail, around(kills=None))


@pytest.mark.parametrize("tail", REFUSALS)
def test_a_refusal_is_no_oom_where_memory_was_plenty(tail: bytes) -> None:
    """`ulimit -v` refuses while the machine has room."""
    assert not ran_out_of_memory(1, 0, tail, around())
    assert ran_out_of_memory(1, 0, tail, around(free=10 << 20))
    assert ran_out_of_memory(1, 0, tail, around(kills=2))


@pytest.mark.parametrize(("status", "signal"), [(137, 0), (9, 0), (0, 9)])
def test_a_status_without_a_word(status: int, signal: int) -> None:
    assert ran_out_of_memory(status, signal, b"", around(kills=1))
    assert not ran_out_of_memory(status, signal, b"", around(kills=0))


@pytest.mark.parametrize(
    "tail",
    [
        b"a.cpp:3:1: error: expected ';' before '}' token\n",
        b"a.cpp:1: note: in 'void Killed()'\na.cpp:2: error: no\n",
        b"undefined reference to `foo'\n",
        b"",
    ],
)
def test_a_genuine_error_stays_one_whatever_happened_beside_it(tail: bytes) -> None:
    assert not ran_out_of_memory(1, 0, tail, around(kills=5, free=0))
