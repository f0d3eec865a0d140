import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.diagnose import cleaned
from stoker.diagnose.cleaned import clean

ERROR = "    a.cpp:1:2: error: no"


def test_quotes_that_a_pager_wrote_as_bytes_are_quotes() -> None:
    said = "a.c:1:2: error: unknown type name <E2><80><98>mill<E2><80><99>"
    assert clean(said) == "a.c:1:2: error: unknown type name \u2018mill\u2019"
    template = "std::pair<EA, std::vector<CB>> x;"
    assert clean(template) == template


@pytest.mark.parametrize(
    "line",
    [
        ERROR,
        f"2025-03-14T09:26:53.1234567Z {ERROR}",
        f"2025-03-14T09:26:53Z 01O {ERROR}",
        f"[2025-03-14T09:26:53.123Z] {ERROR}",
        f"2025-03-14 09:26:53,123 {ERROR}",
        f"[09:26:53] {ERROR}",
        f"build\tRun make\t2025-03-14T09:26:53.1234567Z {ERROR}",
        f"#14 37.125 {ERROR}",
        f"0.125 {ERROR}",
        f"37.12 {ERROR}",
        f"4814.8 {ERROR}",
        f"> {ERROR}",
        f" => => # {ERROR}",
        f"web-1  | {ERROR}",
        f"[rank14]: {ERROR}",
        f"(EngineCore_0 pid=36082) ERROR 11-06 16:17:19 [registry.py:548] {ERROR}",
        f"\x1b[0K\x1b[36;1m{ERROR}\x1b[0;m",
        f"2025-03-14T09:26:53.1234567Z #14 37.125 {ERROR}",
        "    a.cpp:1:2: \x1b[01;31m\x1b[Kerror: \x1b[m\x1b[Kno",
        f"\x1b]0;title\x07{ERROR}   ",
    ],
)
def test_prefixes_and_suffixes_of_other_tools_are_removed_from_a_line(line: str) -> None:
    assert clean(line) == ERROR


@pytest.mark.parametrize(
    "line",
    [
        "[ 12%] Building CXX object a.o",
        "[1/2] Linking a",
        "  530 |         operator=(_Functor&& __f)",
        "12.4",
        "10.1 is too old",
        "2.10 is too new",
        " > [builder 7/9] RUN make",
        "error: no",
        "3.11.2",
        "name | other",
    ],
)
def test_what_the_tool_printed_stays(line: str) -> None:
    assert clean(line) == line


@given(st.text(alphabet=st.sampled_from("ab \t\x1b[0;1m#]12.:-TZ|"), max_size=60))
def test_no_escape_is_left_that_was_whole_and_nothing_is_made_up(line: str) -> None:
    cleaned = clean(line)
    assert "\x1b[0m" not in cleaned or "\x1b[0m" not in line
    assert len(cleaned) <= len(line)


@given(st.from_regex(cleaned._PREFIX, fullmatch=True))
def test_every_prefix_is_tried(text: str) -> None:
    assert cleaned._may_have_prefix(text)
