"""The C side of the wire protocol against the golden bytes."""

import subprocess
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from unit.govern.golden import FROM_GOVERNOR, FROM_LAUNCHER, Example
from unit.launcher.scripted import decoded, encoded


def selftest(launcher: Path, received: bytes) -> bytes:
    done = subprocess.run(
        [launcher, "--protocol-selftest"], input=received, capture_output=True, check=True
    )
    sent = b"".join(example.line for example in FROM_LAUNCHER)
    assert done.stdout.startswith(sent)
    return done.stdout.removeprefix(sent)


def in_hexadecimal(*fields: bytes) -> bytes:
    return b" ".join(field.hex().encode() for field in fields) + b"\n"


def test_what_the_launcher_says_is_golden(launcher: Path) -> None:
    assert selftest(launcher, b"") == b""


def test_what_the_governor_says_is_understood(launcher: Path) -> None:
    received = b"".join(example.line for example in FROM_GOVERNOR)
    assert selftest(launcher, received) == b"".join(
        in_hexadecimal(example.word.encode(), *example.fields) for example in FROM_GOVERNOR
    )


def test_the_scripted_governor_speaks_the_same_language() -> None:
    for example in FROM_LAUNCHER + FROM_GOVERNOR:
        assert encoded(example.word, *example.fields) == example.line
        assert Example(example.word, tuple(decoded(example.line)[1:]), example.line) == example


messages = st.lists(st.lists(st.binary(max_size=20), min_size=1, max_size=8), max_size=20)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(received=messages)
def test_any_bytes_survive_the_way(launcher: Path, received: list[list[bytes]]) -> None:
    lines = b"".join(encoded(*fields) for fields in received)
    assert selftest(launcher, lines) == b"".join(in_hexadecimal(*fields) for fields in received)


def test_nonsense_is_taken_literally_and_too_many_fields_are_cut(launcher: Path) -> None:
    assert selftest(launcher, b"a\\x\\\n") == in_hexadecimal(b"a\\x\\")
    assert selftest(launcher, b"1\t2\t3\t4\t5\t6\t7\t8\t9\n") == in_hexadecimal(
        *b"1 2 3 4 5 6 7 8".split()
    )
