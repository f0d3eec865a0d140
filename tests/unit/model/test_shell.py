"""Text from outside becomes words of a command, or the command is not made."""

import ast
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stoker
from stoker.model.shell import (
    Outside,
    ShellScript,
    Template,
    fill,
    outside,
    quoted,
    recorded,
    with_arguments,
)

SOURCES = Path(stoker.__file__).parent


@pytest.mark.parametrize(
    ("template", "word", "made"),
    [
        ("mv {a} {a}.old", "/x y", "mv '/x y' '/x y'.old"),
        ("mv {a} b", "; rm x", "mv '; rm x' b"),
        ("mv {a} b", "a'b", "mv 'a'\"'\"'b' b"),
        ('export F="${F:-} -W={a}"', "shadow", 'export F="${F:-} -W=shadow"'),
        ('export F="${F:-} -W={a}"', "$(x)", None),
        ('export F="${F:-} -W={a}"', "a b", None),
        ("pip install '{a}>=1'", "numpy", "pip install 'numpy>=1'"),
        ("pip install '{a}>=1'", "x'; y '", None),
        (
            """P="$({a} -c 'print(1)')/lib\"""",
            "/x y/python",
            """P="$('/x y/python' -c 'print(1)')/lib\"""",
        ),
        ("""P="$(echo "{a}")\"""", "x y", None),
        ("""P="${X:-{a}}\"""", "x;y", None),
        ("P=`{a}`", "x;y", None),
        (r"echo \"{a}", "x;y", "echo \\\"'x;y'"),
        ("pip install {a}", "--index-url=x", None),
        ("make -j{a}", "-1", "make -j-1"),
        ("cd {a}", "", None),
        ("cd {a}", "a\nb", None),
        ("cd {a}", "\u202ea", None),
        ("cd {a}", "a\x1b[2Jb", None),
        ("cd {b}", "a", None),
    ],
)
def test_a_word_is_one_word_or_refused(template: str, word: str, made: str | None) -> None:
    assert fill(Template(template), {"a": outside(word)}) == made


@given(st.lists(st.text(), min_size=1, max_size=3))
def test_any_words_stay_what_they_are(words: list[str]) -> None:
    made = fill(Template("run -- {words} > log"), {"words": Outside(words=tuple(words))})
    if made is not None:
        assert shlex.split(made) == ["run", "--", *words, ">", "log"]


def test_a_script_within_quotes_has_no_quotes_of_its_own() -> None:
    template = Template('export LIBS="{flags}"')
    flags = fill(Template("-l{name} -lm"), {"name": outside("z")})
    assert flags
    assert fill(template, {"flags": flags}) == 'export LIBS="-lz -lm"'
    other = quoted(["-l", "a b"])
    assert other
    assert fill(template, {"flags": other}) is None


def test_the_command_of_a_run_is_its_words() -> None:
    assert recorded("sh -c 'make; true'") == "sh -c 'make; true'"
    assert recorded("make -v; touch X #") == "make '-v;' touch X '#'"
    assert recorded("pip install https://***@host/a") is None
    assert recorded("make 'x") is None
    assert recorded("") is None


def test_the_arguments_of_a_script_replace_its_command() -> None:
    build, command = quoted(["stoker", "run", "--", "make"]), quoted(["make"])
    assert build
    assert command
    assert with_arguments(build, command) == 'stoker run -- "$@"'
    assert with_arguments(command, command) == '"$@"'
    assert with_arguments(ShellScript(""), ShellScript("")) == '"$@"'


def _calls(name: str) -> Iterator[tuple[str, ast.Call]]:
    for file in SOURCES.rglob("*.py"):
        if name not in (text := file.read_text()):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == name:
                yield file.relative_to(SOURCES).as_posix(), node


def test_only_one_module_makes_scripts() -> None:
    assert {file for file, _ in _calls("ShellScript")} == {"model/shell.py"}


def test_templates_are_constants_or_knowledge() -> None:
    others = [
        (file, ast.unparse(call))
        for file, call in _calls("Template")
        if not file.startswith("knowledge/") and not isinstance(call.args[0], ast.Constant)
    ]
    assert others == []
