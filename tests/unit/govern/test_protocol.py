"""Lines of the wire protocol: any bytes are preserved, invalid lines are refused."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.govern.protocol import (
    VERSION,
    ProtocolError,
    decode,
    encode,
    read_ask,
    read_done,
    read_numbers,
    read_usage,
)

WORDS = st.from_regex(r"[a-z_]+", fullmatch=True)


@given(WORDS, st.lists(st.binary()))
def test_any_field_survives(word: str, fields: list[bytes]) -> None:
    line = encode(word, *fields)
    assert line.count(b"\n") == 1
    assert decode(line[:-1]) == (word, tuple(fields))


@given(st.binary())
def test_any_line_is_read_or_refused(line: bytes) -> None:
    for read in (read_ask, read_done, read_usage):
        with suppress(ProtocolError):
            read(decode(line.replace(b"\n", b""))[1])


def test_ask() -> None:
    line = encode("ask", VERSION, 12, "/b é", 2, 7, "compile", "", "g++", "-c", "a b.cpp")
    ask = read_ask(decode(line[:-1])[1])
    assert (ask.run, ask.directory, ask.cpus) == (12, "/b é", 2)
    assert (ask.within, ask.custom) == (7, False)
    assert ask.command == ("g++", "-c", "a b.cpp")
    assert read_ask(decode(line.replace(b"compile", b"custom")[:-1])[1]).custom
    assert read_ask(decode(line.replace(b"compile", b"remote")[:-1])[1]).remote


def test_ask_of_another_version_needs_no_more_than_its_number() -> None:
    assert read_ask((b"9", b"1")).version == 9


def test_names_that_are_not_utf8_come_back_as_they_were() -> None:
    _, fields = decode(encode("ask", VERSION, 1, "/b", 1, 0, "compile", "", b"g++", b"\xff.c")[:-1])
    assert read_ask(fields).command[1].encode(errors="surrogateescape") == b"\xff.c"


@pytest.mark.parametrize("fields", [(), (b"1",), (b"x", b"2"), (b"1", b"")])
def test_numbers_that_are_missing_or_none(fields: tuple[bytes, ...]) -> None:
    with pytest.raises(ProtocolError):
        read_numbers(fields, 2)


def test_done_and_usage() -> None:
    _, fields = decode(encode("done", 1, 0, 5, 6, 7, 8, "tail\n")[:-1])
    done = read_done(fields)
    assert (done.status, done.signal, done.tail) == (1, 0, b"tail\n")
    assert done.usage == read_usage((b"5", b"6", b"7", b"8"))
