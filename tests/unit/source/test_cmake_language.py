"""The parser of the CMake language, against its rules and against cmake itself."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conftest import Need, slow
from stoker.outside import process
from stoker.source.cmake import Argument, ArgumentKind, CMakeCommand, Problem, parse_script

UNQUOTED, QUOTED, BRACKET = ArgumentKind


def arguments(text: str) -> list[tuple[ArgumentKind, str]]:
    """The kinds and values of the arguments of the only command of a text."""
    script = parse_script(text)
    assert script.problem is None
    (command,) = script.commands
    return [(argument.kind, argument.value) for argument in command.arguments]


def test_commands_have_a_name_in_lower_case_and_a_line() -> None:
    script = parse_script("\n# first\nproject(x)\n\nIF (a)\n endif()")
    assert [(command.name, command.line) for command in script.commands] == [
        ("project", 3),
        ("if", 5),
        ("endif", 6),
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('a("")', [(QUOTED, "")]),
        ('a("x;y" z)', [(QUOTED, "x;y"), (UNQUOTED, "z")]),
        ('a("one\\\n two")', [(QUOTED, "one two")]),
        ('a("say \\"hi\\" \\\\ \\n \\; \\$")', [(QUOTED, 'say "hi" \\ \n \\; $')]),
        ("a(x\\ y \\# \\()", [(UNQUOTED, "x y"), (UNQUOTED, "#"), (UNQUOTED, "(")]),
        ("a([[one ]=] two]])", [(BRACKET, "one ]=] two")]),
        ("a([==[\n]] ${x} \\n]==])", [(BRACKET, "]] ${x} \\n")]),
        ('a(-Dx="y z" $(CONFIG)/lib)', [(UNQUOTED, '-Dx="y z"'), (UNQUOTED, "$(CONFIG)/lib")]),
        ("a(b#c)\n d #[[ ) ]] e[f])", [(UNQUOTED, "b"), (UNQUOTED, "d"), (UNQUOTED, "e[f]")]),
        ("a([=x)", [(UNQUOTED, "[=x")]),
        ("a($<$<C:D>:-g> ${${x}_y})", [(UNQUOTED, "$<$<C:D>:-g>"), (UNQUOTED, "${${x}_y}")]),
    ],
)
def test_arguments(text: str, expected: list[tuple[ArgumentKind, str]]) -> None:
    assert arguments(text) == expected


def test_parentheses_within_a_condition_are_arguments() -> None:
    values = [value for _, value in arguments("if(A AND(NOT (B) OR C))")]
    assert values == ["A", "AND", "(", "NOT", "(", "B", ")", "OR", "C", ")"]


def test_comments_of_any_kind_are_skipped() -> None:
    text = "#[[ one(\n ]] a() # b()\n#[=[ ]] c() ]=]\n#[==\nd()"
    assert [(command.name, command.line) for command in parse_script(text).commands] == [
        ("a", 2),
        ("d", 5),
    ]


def test_placeholders_of_a_template_are_skipped_between_commands() -> None:
    assert [command.name for command in parse_script("a()\n@CONTENT@\nb()").commands] == ["a", "b"]


@pytest.mark.parametrize(
    ("rest", "line", "message"),
    [
        ('option(X "help', 2, "the quoted argument is never closed"),
        ("option(X\n  [==[ ]=]", 3, "the bracket argument is never closed"),
        ("option(X\n\n #[[ ", 4, "the bracket comment is never closed"),
        ("#[[ ", 2, "the bracket comment is never closed"),
        ("option(X (\n  ON)\n", 2, "option( is never closed"),
        ("option(X \\\n ON)", 2, "a backslash ends the line"),
        ("option", 2, "expected a command, found 'option'"),
        ("\n<<<<<<< HEAD\nb()", 3, "expected a command, found '<<<<<<< HEAD'"),
        (")", 2, "expected a command, found ')'"),
    ],
)
def test_a_broken_text_gives_what_came_before_and_the_line(
    rest: str, line: int, message: str
) -> None:
    script = parse_script(f"before(it)\n{rest}")
    assert [command.name for command in script.commands] == ["before"]
    assert script.problem == Problem(line=line, message=message)


def plain(source: str) -> Argument:
    return Argument(kind=UNQUOTED, source=source)


def quoted(value: str) -> Argument:
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return Argument(kind=QUOTED, source=f'"{escaped}"')


def bracketed(value: str) -> Argument:
    """With just as many = as it takes to hold the value."""
    level = next(n for n in range(len(value) + 2) if f"]{'=' * n}]" not in f"{value}]{'=' * n}")
    return Argument(kind=BRACKET, source=f"[{'=' * level}[{value}]{'=' * level}]")


def nested(*groups: list[Argument]) -> list[Argument]:
    """Each group in parentheses within the one before."""
    opened = [argument for group in groups for argument in (*group, plain("("))]
    return [*opened, *[plain(")")] * len(groups)]


CHARACTERS = [*"abXY019_-./:;=+*,!%&|<>{}@'", "$", "\\(", '\\"', "\\;", "\\\\", "é", 'a"b c"']
PLAIN = st.lists(st.sampled_from(CHARACTERS), min_size=1, max_size=5).map("".join)
TEXT = st.text(max_size=8)
GROUP = st.lists(
    PLAIN.map(plain) | TEXT.map(quoted) | st.text("]=ab\n[", max_size=8).map(bracketed), max_size=3
)
ARGUMENTS = GROUP | st.builds(nested, GROUP, GROUP)
COMMANDS = st.lists(st.tuples(st.text("abz_", min_size=1, max_size=3), ARGUMENTS), max_size=4)
GAPS = st.sampled_from([" ", "\n", "\t", " # (\n", "#[=[ ) ]=]", "\r\n"])


def printed(commands: list[tuple[str, list[Argument]]], gap: str) -> tuple[str, list[CMakeCommand]]:
    """A text with a gap wherever there may be one, and the commands that it holds."""
    text, expected = "", []
    for name, inside in commands:
        text += f"{gap}\n"
        line = text.count("\n") + 1
        expected.append(CMakeCommand(name=name, arguments=tuple(inside), line=line))
        text += f"{name} ({gap}" + "".join(f"{argument.source}{gap}" for argument in inside) + ")"
    return text, expected


@given(COMMANDS, GAPS)
def test_what_is_printed_is_parsed_to_itself(
    commands: list[tuple[str, list[Argument]]], gap: str
) -> None:
    text, expected = printed(commands, gap)
    script = parse_script(text)
    assert list(script.commands) == expected
    assert script.problem is None


@given(COMMANDS, GAPS, st.integers(min_value=0))
def test_a_cut_text_gives_the_commands_before_the_cut(
    commands: list[tuple[str, list[Argument]]], gap: str, cut: int
) -> None:
    text, expected = printed(commands, gap)
    script = parse_script(text[: cut % (len(text) + 1)])
    assert list(script.commands) == expected[: len(script.commands)]


# A semicolon is passed on with its backslash, a first line break in brackets not at all.
@given(st.text().filter(lambda text: ";" not in text), st.text("]=ab[\n").map("x".__add__))
def test_values_come_back_from_quotes_and_brackets(first: str, second: str) -> None:
    assert quoted(first).value == first
    assert bracketed(second).value == second


@given(st.text() | st.text('()[]="\\#\n a$@{}'))
def test_no_text_is_too_strange(text: str) -> None:
    script = parse_script(text)
    lines = [command.line for command in script.commands]
    assert lines == sorted(lines)
    if script.problem:
        assert 1 <= script.problem.line <= text.count("\n") + 1


SCRIPT = r"""
set(a "quoted \"text\" with \\ and \t tab" un\ quoted "cont\
inued" [=[bracket ]] \n
]=]) # comment
#[[ a bracket
comment ]]
set(b x;y "x;y" -DNAME="some words" #[[inside]] last)
IF ((NOT a) AND(b STREQUAL "c") OR
    "d" MATCHES "^(e|f)+$")
  set(never reached)
ENDIF(whatever)
set(c [[
first newline dropped]] "" 'single' a=b [x] {y} \; $<1:z>)
"""


def test_cmake_sees_the_same(tmp_path: Path, need: Need) -> None:
    """Its trace tells name, line and values of each command that it runs."""
    script, trace = tmp_path / "script.cmake", tmp_path / "trace"
    script.write_text(SCRIPT)
    tracing = ["--trace-expand", "--trace-format=json-v1", f"--trace-redirect={trace}"]
    process.check([need("cmake"), *tracing, "-P", script], timeout=60)
    traced = [json.loads(line) for line in trace.read_text().splitlines()]
    steps = [(step["cmd"].lower(), step["line"], step["args"]) for step in traced if "cmd" in step]
    seen = [step for step in steps if step[0] != "endif"]  # CMake 4 traces it, older ones do not
    ours = [
        (command.name, command.line, [argument.value for argument in command.arguments])
        for command in parse_script(SCRIPT).commands
    ]
    assert seen == [step for step in ours if step[0] != "endif" and step[2] != ["never", "reached"]]


# Seconds are plenty; time that grew with the square of the length would be far longer.
@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "inside", ['"', "[[", "[=", "#[[", 'b"', 'b" ', "$(", "(", "\\\\", ")", "]="]
)
@pytest.mark.parametrize("outside", ["a(", *map(slow, ("#", "@", ""))])
def test_long_texts_take_no_more_than_their_length(outside: str, inside: str) -> None:
    for text in ((outside + inside) * 30_000, outside + inside * 100_000):
        parse_script(text)
