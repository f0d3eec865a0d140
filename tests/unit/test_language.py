"""The language checker finds what it bans and reports where."""

import re

import pytest

from language import Rule, offences, read_rules, text_files

RULE = Rule(re.compile(r"(?<![a-zA-Z])goes\s+on", re.IGNORECASE), "'resume'")


@pytest.mark.parametrize(
    ("text", "line"),
    [("It goes on.", 1), ("First.\nIt Goes\non.", 2), ("x = 1  # goes on", 1), ("_goes on", 1)],
)
def test_a_banned_phrase_is_found_with_its_line(text: str, line: int) -> None:
    assert [found.line for found in offences(text, [RULE])] == [line]


def test_part_of_a_longer_word_is_no_offence() -> None:
    rules = read_rules()
    assert list(offences("The mender recommends the renewal of sanewords.", rules)) == []
    assert [found.phrase for found in offences("It mends whoever.", rules)] == ["whoever", "mends"]


def test_the_pages_and_the_code_are_read_but_not_the_rules() -> None:
    files = text_files()
    assert {"README.md", "Makefile", "src/stoker/__main__.py", "launcher/launcher.c"} <= set(files)
    assert "tests/language.toml" not in files
