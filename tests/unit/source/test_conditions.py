"""Conditions as text."""

import pytest

from stoker.source import conditions
from stoker.source.cmake import parse_script


def test_a_condition_is_written_on_one_line() -> None:
    (command,) = parse_script('if((A AND\n    NOT ( B )) OR "x y" MATCHES z)').commands
    assert conditions.condition_text(command.arguments) == '(A AND NOT (B)) OR "x y" MATCHES z'


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (["A"], "A"),
        (["A OR B"], "A OR B"),
        (["A OR B", "UNIX", "NOT APPLE"], "(A OR B) AND UNIX AND NOT APPLE"),
        (["A", "B", "A"], "A AND B"),
        (["A", "", " B\n AND C"], "A AND B AND C"),
        ([""], "TRUE"),
    ],
)
def test_all_parts_hold(parts: list[str], expected: str) -> None:
    assert conditions.conjunction(parts) == expected


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("A", "NOT A"),
        ("NOT A", "A"),
        ("A OR B", "NOT (A OR B)"),
        ("NOT A OR B", "NOT (NOT A OR B)"),
        ("NOT (A)", "NOT (NOT (A))"),
        ("DEFINED A", "NOT (DEFINED A)"),
    ],
)
def test_negation(condition: str, expected: str) -> None:
    assert conditions.negation(condition) == expected


def test_names_that_a_condition_reads() -> None:
    condition = (
        "NOT A AND DEFINED B OR C STREQUAL Linux AND TARGET lib OR D VERSION_LESS 3 "
        "AND x IN_LIST E OR POLICY CMP0077 AND ON"
    )
    assert set(conditions.names_read(condition.split())) == {"A", "B", "C", "D", "x", "E"}


def test_words_of_a_condition_in_one_argument() -> None:
    assert conditions.condition_words('"A OR (NOT B);UNIX"') == ["A", "OR", "NOT", "B", "UNIX"]
