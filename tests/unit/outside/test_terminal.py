"""Pages at every width: nothing is lost, nothing is broken inside a word, nothing is padded."""

import io
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import stoker
from stoker.model.errors import UsageError
from stoker.model.finding import Finding, Severity
from stoker.outside.streams import STYLES, coloured, styled
from stoker.outside.terminal import (
    Group,
    Indented,
    Listing,
    Page,
    Text,
    finding_lines,
    print_json,
    show,
    tell_error,
    whole,
)
from stoker.plan.shown import plan_page
from subjects import plan, pytorch_tree

Printed = Callable[[Page, int | None], list[str]]

COMMAND = "apt-get install -y --no-install-recommends libopenblas-dev libnuma-dev"
PATH = "/usr/local/lib/python3.13/site-packages/nvidia/cu13/lib/libcublasLt.so.13"
WIDTHS = [None, 120, 80, 40, 20, 1]


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Printed:
    """The lines of a page where COLUMNS has a value, or has none; there is no terminal."""

    def lines(page: Page, width: int | None) -> list[str]:
        monkeypatch.delenv("COLUMNS", raising=False)
        if width is not None:
            monkeypatch.setenv("COLUMNS", str(width))
        show(page)
        return capsys.readouterr().out.splitlines()

    return lines


def listing() -> Listing:
    rows = Listing("name", ">size", "", "what", title="Libraries", indent=2)
    rows.add("libone", "12 MB", Text("new", style="green"), "a sentence of some length " * 4)
    rows.add("libtwo", "1 MB", "", PATH)
    rows.add("libthree")
    return rows


def test_a_listing_in_columns(printed: Printed) -> None:
    assert printed(listing(), None) == [
        "Libraries",
        "  name       size       what",
        "  libone    12 MB  new  " + ("a sentence of some length " * 4).strip(),
        f"  libtwo     1 MB       {PATH}",
        "  libthree",
    ]


def test_a_listing_whose_last_column_wraps(printed: Printed) -> None:
    lines = printed(listing(), 98)
    assert lines[2].endswith("some length a sentence of some length a sentence of some")
    assert lines[3] == " " * 24 + "length a sentence of some length"
    assert lines[4] == f"  libtwo     1 MB       {PATH}"


def test_a_listing_that_is_too_wide_for_columns(printed: Printed) -> None:
    assert printed(listing(), 40) == [
        "Libraries",
        "  libone",
        "      size 12 MB  new",
        "      what a sentence of some length a",
        "      sentence of some length a sentence",
        "      of some length a sentence of some",
        "      length",
        "  libtwo",
        "      size 1 MB",
        "      what",
        f"      {PATH}",
        "  libthree",
    ]


@pytest.mark.parametrize("width", WIDTHS)
def test_a_command_and_a_path_are_never_broken(width: int | None, printed: Printed) -> None:
    finding = Finding(
        name="x", severity=Severity.ERROR, title=f"no {PATH} here", evidence=PATH, fix=(COMMAND,)
    )
    lines = printed(Group(*finding_lines(finding), Text(f"see {PATH}"), listing()), width)
    assert f"       $ {COMMAND}" in lines
    assert sum(PATH in line for line in lines) == 4


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_padded(width: int | None, printed: Printed) -> None:
    for page in (listing(), plan_page(plan("cu124-sm90-avx2", tree=pytorch_tree()))):
        assert all(line == line.rstrip() for line in printed(page, width))


@pytest.mark.parametrize("width", [80, 40])
def test_lines_are_as_narrow_as_asked(width: int, printed: Printed) -> None:
    planned = plan("cu124-sm90-avx2", tree=pytorch_tree())
    for line in printed(plan_page(planned), width):
        assert len(line) <= width or len(line.split()) == 1 or "python" in line


def test_a_plan_in_a_pipe_has_one_line_for_each_setting(printed: Printed) -> None:
    planned = plan("cu124-sm90-avx512", tree=pytorch_tree())
    lines = printed(plan_page(planned), None)
    for setting in planned.environment:
        assert any(setting.name in line and str(setting.origin) in line for line in lines)


def test_marks_precede_the_first_line_only(printed: Printed) -> None:
    assert printed(Indented("one two three", 6, "ok"), 12) == [
        "ok    one",
        "      two",
        "      three",
    ]


WORDS = st.text(st.sampled_from("ab/.-[]:{}%é世"), min_size=1, max_size=30)
CELLS = st.lists(WORDS, max_size=6).map(" ".join)
ROWS = st.lists(st.tuples(CELLS, CELLS, CELLS), max_size=4)


@given(rows=ROWS, width=st.integers(1, 130))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_word_is_there_at_any_width(
    rows: list[tuple[str, str, str]], width: int, printed: Printed
) -> None:
    page = Listing("", ">", "")
    for row in rows:
        page.add(*row)
    words = " ".join(" ".join(row) for row in rows).split()
    assert sorted(" ".join(printed(page, width)).split()) == sorted(words)


def test_a_whole_line_keeps_its_styles() -> None:
    line = whole("  ", ("$ ", "dim"), COMMAND)
    assert (line.plain, line.no_wrap) == (f"  $ {COMMAND}", True)
    assert [style for _, style in line.parts] == ["", "dim", ""]


def test_styles_are_codes_of_the_terminal() -> None:
    head = Text("mill", style="bold").append(" 1.0", style="not bold")
    line = Text.assemble(head, ("\tERROR", "error"))
    blanks = " " * (16 - len("mill 1.0"))  # a tab ends at column 16, whatever the parts
    assert line.shown(styled=True) == f"\x1b[1mmill\x1b[0m 1.0\x1b[1;31m{blanks}ERROR\x1b[0m"
    assert line.shown(styled=False) == f"mill 1.0{blanks}ERROR"


def test_messages_break_between_words_at_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A terminal breaks a line that is too long inside a word."""
    hints = [f"name another folder, or run `{COMMAND}`"]
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")  # colours, but no width: it is still a pipe
    tell_error(UsageError("there is no wheel for this machine in any catalogue", hints=hints))
    assert len(capsys.readouterr().err.splitlines()) == 2
    monkeypatch.delenv("FORCE_COLOR")
    monkeypatch.setenv("COLUMNS", "40")
    tell_error(UsageError("there is no wheel for this machine in any catalogue", hints=hints))
    assert capsys.readouterr().err.splitlines() == [
        "stoker: there is no wheel for this",
        "machine in any catalogue",
        "  name another folder, or run",
        f"  `{COMMAND}`",
    ]


def test_wide_and_combining_characters_take_their_columns() -> None:
    assert [Text(text).cell_len for text in ("a\u0301b", "世界", "ab")] == [2, 4, 2]


@pytest.mark.parametrize(
    ("environment", "styled"),
    [
        ({}, False),
        ({"FORCE_COLOR": "1"}, True),
        ({"FORCE_COLOR": "1", "NO_COLOR": "1"}, False),
        ({"FORCE_COLOR": "1", "TERM": "dumb"}, False),
    ],
)
def test_styles_are_shown_where_a_terminal_takes_them(
    environment: dict[str, str],
    styled: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("FORCE_COLOR", "NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    show(Text("one", style="ok"))
    assert capsys.readouterr().out == ("\x1b[32mone\x1b[0m\n" if styled else "one\n")


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("stream", "environment", "coloured"),
    [
        (_Terminal(), {"TERM": "xterm"}, True),
        (_Terminal(), {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (_Terminal(), {"TERM": "dumb"}, False),
        (_Terminal(), {}, False),
        (io.StringIO(), {"TERM": "xterm"}, False),
    ],
)
def test_errors_have_colours_only_at_terminals_that_show_them(
    stream: io.StringIO,
    environment: dict[str, str],
    coloured: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("TERM", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert styled("no", "error", stream) == ("\033[1;31mno\033[0m" if coloured else "no")


def test_one_place_defines_what_colours_mean() -> None:
    """All other modules name a style by its meaning; every style has codes."""
    colour = re.compile(r"""["'](?:bold |dim )?(?:red|green|yellow|blue|magenta|cyan)["']""")
    folder = Path(stoker.__file__).parent
    found = {
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*.py")
        if colour.search(path.read_text())
    }
    assert found == {"outside/streams.py"}
    for style in STYLES:
        assert coloured("x", style).startswith("\033[")


def test_json_of_a_file_name_that_is_not_utf8(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"file": b"a\xff.o".decode(errors="surrogateescape")})
    assert json.loads(capsys.readouterr().out)["file"] == "a\\udcff.o"
