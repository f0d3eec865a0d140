"""The table of names of releases: its reader, and what the shipped one has."""

import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from stoker.knowledge import library_names
from stoker.knowledge.library_names import (
    NamedLibrary,
    NameRow,
    libraries_in,
    library_names_table,
    named_library,
    rows_ending,
    rows_in,
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
TABLE = Path(library_names.__file__).with_name("library_names.tsv")


@given(st.lists(_ROW, unique_by=lambda row: row.name, max_size=6))
def test_what_is_written_is_read(rows: list[NameRow]) -> None:
    table = library_names_table([_LIBRARY], rows)
    assert list(libraries_in(table)) == [_LIBRARY]
    assert list(rows_in(table)) == sorted(rows, key=lambda row: row.name)


@given(_VERSION, _VERSION, _VERSION)
def test_a_release_has_a_name_from_its_addition_until_its_removal(
    added: str, removed: str, version: str
) -> None:
    row = NameRow(name="a", library="sluice", added=added, removed=removed)
    is_after, is_before = float(added) <= float(version), float(version) < float(removed)
    assert row.is_in(version) == (is_after and is_before)


def test_the_shipped_table_is_small_and_consistent() -> None:
    text = TABLE.read_text()
    assert len(text) <= 1_500_000
    libraries = {one.name: one for one in libraries_in(text)}
    rows = list(rows_in(text))
    assert {row.library for row in rows} == libraries.keys()
    for row in rows:
        library = libraries[row.library]
        assert row.name.startswith(library.begins), row
        assert {row.added, row.removed} <= {"", *library.releases}, row
        assert row.added or row.removed or row.moved, row


def test_no_common_word_is_in_the_table() -> None:
    plain = [row for row in rows_in(TABLE.read_text()) if re.fullmatch(r"[a-z]{1,8}", row.name)]
    assert not plain


def test_a_name_is_found_as_a_whole_or_by_its_end() -> None:
    (row,) = rows_of("fmt::localtime")
    assert (row.library, row.removed) == ("fmt", "12.0")
    assert named_library("fmt").before("12.0") == "11.2"
    assert rows_ending("localtime") == (row,)
    assert rows_of("localtime") == rows_of("fmt::localtim") == ()
