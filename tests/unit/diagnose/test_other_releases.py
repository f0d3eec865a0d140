"""Names that another release of a library has: what a diagnosis says, and when it says nothing."""

from collections.abc import Iterator
from io import BytesIO

import pytest

from stoker.diagnose import other_releases
from stoker.diagnose.sieve import read_log
from stoker.diagnose.values import FoundCause
from stoker.diagnose.verdict import diagnose
from stoker.knowledge import library_names
from stoker.knowledge.library_names import NamedLibrary, NameRow, library_names_table

STOPPED = "make: *** [Makefile:3: mill.o] Error 1"
# What releases did that no cause written by hand knows: the name, what added and removed it, moved.
SLUICE = NamedLibrary(
    name="sluice",
    begins=("sluice::", "SLUICE_", "sluice/", "sluice."),
    shown=("libsluice",),
    pip="sluice",
    releases={"1.0": "2021-02", "2.0": "2022-05", "3.0": "2025-06"},
)
OTHER = NamedLibrary(name="other", begins=("other::",), releases={"1.0": "2020-01", "2.0": ""})
NAMES = {
    "SLUICE_WIDE_GATE": ("sluice", "", "3.0", ""),
    "other::back_and_forth": ("other", "1.0", "2.0", ""),
    "other::open_quickly": ("other", "", "2.0", ""),
    "sluice.gate": ("sluice", "", "3.0", ""),
    "sluice/old_gate.h": ("sluice", "", "3.0", "3.0 sluice/gate.h"),
    "sluice/older_gate.h": ("sluice", "", "2.0", ""),
    "other::open_later": ("other", "", "2.0", ""),
    "sluice::Gate::width": ("sluice", "2.0", "", ""),
    "sluice::Gate::old_width": ("sluice", "", "3.0", ""),
    "sluice::back_and_forth": ("sluice", "2.0", "3.0", ""),
    "sluice::open_slowly": ("sluice", "", "", "2.0 sluice/slow.h"),
}
TABLE = library_names_table(
    [SLUICE, OTHER],
    [
        NameRow(name=name, library=library, added=added, removed=removed, moved=moved)
        for name, (library, added, removed, moved) in NAMES.items()
    ],
)


@pytest.fixture(autouse=True)
def small_table(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(library_names, "file_content", lambda _: TABLE)
    library_names.forget()
    yield
    library_names.forget()


def found(*lines: str) -> FoundCause | None:
    diagnosis = diagnose(read_log(BytesIO("\n".join([*lines, STOPPED]).encode())))
    of_table = [one for one in diagnosis.findings if one.cause.startswith("name-")]
    return of_table[0] if of_table else None


REMOVED = [
    "mill.cpp:7:3: error: 'old_width' is not a member of 'sluice::Gate'",
    "mill.cpp:7:3: error: 'class sluice::v3::Gate<int>' has no member named 'old_width'",
    "mill.cpp:7:3: error: no member named 'old_width' in 'sluice::Gate'",
    'mill.cu(7): error: class "sluice::Gate" has no member "old_width"',
    "mill.c:7:3: error: 'SLUICE_WIDE_GATE' undeclared (first use in this function)",
    'mill.cu(7): error: identifier "SLUICE_WIDE_GATE" is undefined',
    "mill.cpp:7:3: error: use of undeclared identifier 'SLUICE_WIDE_GATE'",
    "mill.cpp(7): error C2065: 'SLUICE_WIDE_GATE': undeclared identifier",
    "mill.cpp(7): error C2039: 'old_width': is not a member of 'sluice::Gate'",
]


@pytest.mark.parametrize("line", REMOVED)
def test_a_name_that_was_removed(line: str) -> None:
    cause = found(line)
    assert cause
    assert cause.cause == "name-removed"
    assert cause.title.startswith("sluice 3.0 no longer has ")
    assert cause.title.endswith("the source is for sluice 2.0 or older")


def test_a_removed_module_is_pinned_by_pip() -> None:
    cause = found(
        "Traceback (most recent call last):",
        "ImportError: cannot import name 'wide' from 'sluice.gate'",
    )
    assert cause
    assert cause.cause == "name-removed"
    assert "echo 'sluice<3.0' >> build-constraints.txt" in cause.fix[0].commands


def test_a_name_that_newer_releases_have() -> None:
    cause = found("mill.cpp:7:3: error: 'class sluice::Gate' has no member named 'width'")
    assert cause
    assert cause.cause == "name-not-added-yet"
    assert cause.title == "sluice has sluice::Gate::width since 2.0: the installed release is older"


def test_a_name_in_another_header() -> None:
    cause = found("mill.cpp:7:3: error: 'open_slowly' is not a member of 'sluice'")
    assert cause
    assert cause.cause == "name-moved"
    assert any("-include sluice/slow.h" in line for line in cause.fix[0].commands)


def test_the_installed_release_decides() -> None:
    error = "mill.cpp:7:3: error: 'back_and_forth' is not a member of 'sluice'"
    newer = found('-- Found sluice: /usr/lib/libsluice.so (found version "3.1")', error)
    older = found("  Downloading sluice-1.4.tar.gz", error)
    between = found("sluice/2.1: Already installed!", error)
    assert newer
    assert older
    assert newer.cause == "name-removed"
    assert older.cause == "name-not-added-yet"
    assert between is None


def test_a_name_that_came_and_went_long_ago_says_nothing_without_a_version() -> None:
    assert found("mill.cpp:7:3: error: 'back_and_forth' is not a member of 'other'") is None


def test_a_header_that_was_removed_long_ago_needs_another_sign_of_its_library() -> None:
    error = "mill.c:1:10: fatal error: sluice/older_gate.h: No such file or directory"
    assert found(error) is None
    cause = found("gcc -I/opt/include/libsluice/ -c mill.c", error)
    assert cause
    assert cause.cause == "name-removed"


def test_a_name_without_its_namespace_needs_a_sign_of_the_only_library_that_has_it() -> None:
    error = "mill.cpp:7:3: error: 'open_quickly' was not declared in this scope"
    assert found(error) is None
    assert found("/usr/include/x.h:3:9: note: other::open_slowly", error)
    ambiguous = "mill.cpp:7:3: error: 'back_and_forth' was not declared in this scope"
    assert found("x: note: other::open sluice::open", ambiguous) is None


def test_files_of_the_library_itself_are_not_explained() -> None:
    error = "/src/sluice-3.0/src/mill.cpp:7:3: error: 'old_width' is not a member of 'sluice::Gate'"
    assert found(error) is None


def test_words_that_no_library_has_are_not_explained() -> None:
    assert found("mill.cpp:7:3: error: 'grind' was not declared in this scope") is None
    assert found("mill.cpp:7:3: error: 'grind' is not a member of 'sluice'") is None


def test_the_table_is_not_read_without_an_unknown_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_names, "file_content", lambda _: pytest.fail("it was read"))
    assert found("mill.c:7:3: error: expected ';' before 'int'") is None
    assert found("nvcc fatal   : Unsupported gpu architecture 'compute_30'") is None


def test_names_are_compared_without_what_belongs_to_one_release() -> None:
    assert other_releases._plain("struct fmt::v11::detail::x<a::b>") == "fmt::detail::x"
    assert other_releases._plain("absl::lts_20250814::any") == "absl::any"


def test_two_names_that_one_release_removed_show_their_library() -> None:
    first = "mill.cpp:7:3: error: 'open_quickly' was not declared in this scope"
    second = "mill.cpp:9:3: error: 'open_later' was not declared in this scope"
    assert found(first) is None
    cause = found(first, second)
    assert cause
    assert cause.title.startswith("other 2.0 no longer has open_quickly and open_later")


def test_a_header_that_a_recent_release_removed_is_known_by_its_path() -> None:
    assert found("mill.c:1:10: fatal error: sluice/new_gate.h: No such file or directory") is None
    cause = found("mill.c:1:10: fatal error: sluice/old_gate.h: No such file or directory")
    assert cause
    assert cause.cause == "name-removed"


def test_a_name_in_a_line_of_its_own_is_read() -> None:
    cause = found(
        "/src/mill.cpp(7,3):",
        "      error: use of undeclared identifier",
        "      'SLUICE_WIDE_GATE'",
    )
    assert cause
    assert cause.cause == "name-removed"


def test_a_folder_for_a_major_release_is_not_the_source_of_the_library() -> None:
    error = ":7:3: error: 'old_width' is not a member of 'sluice::Gate'"
    assert found(f"/home/x/mill/Sluice3/mill.cpp{error}")
    assert found(f"/home/x/sluice-3/mill.cpp{error}") is None
