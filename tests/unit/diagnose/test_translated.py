"""Tools speak many languages; the signs of causes are in English."""

import tomllib
from pathlib import Path

import pytest

from stoker.diagnose.sieve import Line
from stoker.diagnose.translated import in_english

SAID = tomllib.loads(Path(__file__).with_name("translated.toml").read_text())


def english(text: str) -> str:
    lines = [Line(number=number, text=line) for number, line in enumerate(text.splitlines(), 1)]
    return "\n".join(line.text for line in in_english(lines))


@pytest.mark.parametrize("pair", SAID["gnu"])
def test_the_words_of_tools_are_restored(pair: dict[str, str]) -> None:
    assert english(pair["said"]) == pair["means"].strip()


@pytest.mark.parametrize(
    "line",
    [
        "a.c:1:10: fatal error: zstd.h: No such file or directory",
        "gate.cpp(12): error C2039: 'grind': is not a member of 'mill'",
        "-- Looking for sniffel: found",
        "checking for Fehler.h... no",
        "install: 100 %",
    ],
)
def test_english_stays_as_it_is(line: str) -> None:
    assert english(line) == line


def test_a_line_keeps_what_the_tool_said() -> None:
    said = "make: *** [Makefile:5: main.o] Fehler 1"
    (line,) = in_english([Line(number=1, text=said)])
    assert line.said == said
