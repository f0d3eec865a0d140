"""The table of names of releases: its reader, and what the shipped one has."""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stoker.knowledge import library_names
from stoker.knowledge.library_names import (
    NamedLibrary,
    NameRow,
    all_rows,
    libraries,
    library_names_table,
    named_library,
    rows_ending,
    rows_of,
)

_WORD = st.text("aZ_:/.", min_size=1, max_size=8)
_VERSION = st.builds("{}.{}".format, st.integers(0, 30), st.integers(0, 9))
_ROW = st.builds(
    NameRow,
    name=_WORD,
    library=st.just("sluice"),
    added=_VERSION | st.just(""),
    removed=_VERSION | st.just(""),
    moved=_VERSION.map(lambda version: f"{version} mill/stone.h") | st.just(""),
)
_LIBRARY = NamedLibrary(
    name="sluice", begins=("sl_", "sl::"), releases={"1.0": "2020-01", "2.0": ""}
)
TABLE = Path(library_names.__file__).with_name("library_names.z")


@pytest.fixture
def read_again(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes], None]]:
    """Yield what puts another table in place of the shipped one."""

    def put(table: bytes) -> None:
        monkeypatch.setattr(library_names, "file_content", lambda _: table)
        library_names.forget()

    yield put
    monkeypatch.undo()
    library_names.forget()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_ROW, unique_by=lambda row: row.name, max_size=6), st.integers(1, 3))
def test_what_is_written_is_read(
    read_again: Callable[[bytes], None], rows: list[NameRow], block: int
) -> None:
    read_again(library_names_table([_LIBRARY], rows, block))
    assert libraries() == (_LIBRARY,)
    assert sorted(all_rows(), key=lambda row: row.name) == sorted(rows, key=lambda row: row.name)
    for row in rows:
        assert rows_of(row.name) == (row,)
        end = row.name.rpartition("::")[2]
        assert (row in rows_ending(end)) == (end != row.name and not re.search("[/.]", end))


@given(_VERSION, _VERSION, _VERSION)
def test_a_release_has_a_name_from_its_addition_until_its_removal(
    added: str, removed: str, version: str
) -> None:
    row = NameRow(name="a", library="sluice", added=added, removed=removed)
    is_after, is_before = float(added) <= float(version), float(version) < float(removed)
    assert row.is_in(version) == (is_after and is_before)


def test_the_shipped_table_is_small_and_consistent() -> None:
    assert TABLE.stat().st_size <= 2_000_000  # of about eighty libraries
    known = {one.name: one for one in libraries()}
    rows = list(all_rows())
    assert {row.library for row in rows} == known.keys()
    for row in rows:
        library = known[row.library]
        assert row.name.startswith(library.begins), row
        assert {row.added, row.removed} <= {"", *library.releases}, row
        assert row.added or row.removed or row.moved, row


def test_no_common_word_is_in_the_table() -> None:
    plain = [row for row in all_rows() if re.fullmatch(r"[a-z]{1,8}", row.name)]
    assert not plain


def test_a_name_is_found_as_a_whole_or_by_its_end() -> None:
    (row,) = rows_of("fmt::localtime")
    assert (row.library, row.removed) == ("fmt", "12.0")
    assert named_library("fmt").before("12.0") == "11.2"
    assert rows_ending("localtime") == (row,)
    assert rows_of("localtime") == rows_of("fmt::localtim") == ()
