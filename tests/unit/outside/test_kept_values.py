"""Values are found again by what they depend on, and only the newest are kept."""

import os
from pathlib import Path

from stoker.model.value import Value
from stoker.outside.kept_values import KeptValues, name_of, root, tree_digest


class _Said(Value, frozen=True, kw_only=True):
    text: str


def test_a_change_of_the_tree_changes_its_digest(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int a;")
    before = tree_digest(tmp_path)
    assert tree_digest(tmp_path) == before
    os.utime(tmp_path / "a.c", ns=(1, 1))
    assert tree_digest(tmp_path) != before


def test_the_oldest_values_are_removed() -> None:
    values = KeptValues("words", _Said, most=2)
    for number in range(4):
        values.keep(f"n{number}", _Said(text=str(number)))
        os.utime(root() / "words" / f"n{number}.json", (number, number))
    assert values.recall("n3") == _Said(text="3")
    assert values.recall("n0") is None


def test_a_damaged_value_is_not_found() -> None:
    values = KeptValues("words", _Said, most=2)
    values.keep("one", _Said(text="1"))
    (root() / "words" / "one.json").write_text('{"text": 1')
    assert values.recall("one") is None


def test_names_differ_as_their_parts_do() -> None:
    assert name_of("a", ("b", 1)) == name_of("a", ["b", 1])
    assert name_of("a", "b") != name_of("ab", "")
