"""Answers are used again for the same tree, settings and tools, and only the newest are kept."""

import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from stoker.ask import kept
from stoker.ask.room import Left, Question
from stoker.ask.values import Walls
from stoker.outside import folders

LEFT = Left(status=0, ended_for="", seconds=1.0, notes="", files={}, output="")


def test_a_change_of_the_tree_changes_its_digest(tmp_path: Path) -> None:
    (tmp_path / "a.c").write_text("int a;")
    before = kept.tree_digest(tmp_path)
    assert kept.tree_digest(tmp_path) == before
    os.utime(tmp_path / "a.c", ns=(1, 1))
    assert kept.tree_digest(tmp_path) != before


def test_the_key_depends_on_the_settings() -> None:
    one = Question(tree="/t", python="p", words=("setup.py",), environment={"A": "1"})
    other = Question(tree="/t", python="p", words=("setup.py",), environment={"A": "2"})
    keys = {kept.key(one, "d", Walls.CLOSED), kept.key(other, "d", Walls.CLOSED)}
    keys |= {kept.key(one, "e", Walls.CLOSED), kept.key(one, "d", Walls.OPEN)}
    assert len(keys) == 4


def test_the_oldest_answers_are_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_MOST_KEPT", 2)
    for number in range(4):
        kept.keep(f"n{number}", LEFT)
        os.utime(folders.cache() / "answers" / f"n{number}.json", (number, number))
    assert kept.recall("n3") == LEFT
    assert kept.recall("n0") is None


@pytest.mark.parametrize(("status", "ended_for"), [(None, "time"), (1, "")])
def test_a_program_that_did_not_succeed_is_asked_again(status: int | None, ended_for: str) -> None:
    """A build that lacked a compiler was refused for it after the compiler had been installed."""
    kept.keep("failed", replace(LEFT, status=status, ended_for=ended_for))
    assert kept.recall("failed") is None
