"""Reading compiles from the commands of a build tool."""

import pytest

from stoker.headers.commands import compiles_in, making_command, sample_command, scan_command
from stoker.model.headers import Compile, Scan, SharedHeader

LINE = "/usr/bin/g++ -DA='b c' -I../src -O2 -MD -MT a.o -MF a.o.d -o a.o -c ../src/a.cpp"


def read(*lines: str) -> list[Compile]:
    return list(compiles_in(lines, "/build"))


def test_a_compile_is_read_without_the_names_of_its_own_files() -> None:
    (found,) = read(LINE)
    assert found.flags == ("-DA=b c", "-I../src", "-O2", "-MD")
    assert (found.source, found.output) == ("../src/a.cpp", "a.o")
    assert found.group == read(LINE.replace("a.", "b."))[0].group
    assert found.group != read(LINE.replace("-O2", "-O3"))[0].group


@pytest.mark.parametrize(
    "line",
    [
        "",
        "ccache " + LINE,
        "clang++ -c a.cpp -o a.o",
        "nvcc -c a.cu -o a.o",
        LINE + " && touch b",
        LINE + " > log",
        "cd x; " + LINE,
        LINE + " -g",
        LINE + " -include config.h",
        LINE + " @more",
        LINE + " b.cpp",
        LINE.replace("-MF a.o.d", ""),
        LINE.replace("-c ", "-E "),
        LINE.replace("a.cpp", "a.s"),
        "g++ 'unbalanced",
        "g++ -shared a.o -o a.so",
    ],
)
def test_other_commands_are_left_alone(line: str) -> None:
    assert read(line) == []


def test_the_commands_of_a_header_have_the_flags_of_its_users() -> None:
    (found,) = read(LINE)
    header = SharedHeader(name="n", group=found.group, text="", scan=Scan(inclusions=()))
    assert scan_command(found)[1:4] == ("-DA=b c", "-I../src", "-O2")
    assert making_command(header, "n.hpp", "n.gch") == (
        *("/usr/bin/g++", "-DA=b c", "-I../src", "-O2"),
        *("-MD", "-MT", "n.gch", "-MF", "n.gch.d", "-x", "c++-header", "n.hpp", "-o", "n.gch"),
    )
    assert sample_command(found, "s.o", header="/h/n.hpp")[:3] == (
        *("/usr/bin/g++", "-include", "/h/n.hpp"),
    )
