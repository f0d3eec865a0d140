"""Answers are used again for the same tree, settings and tools, and only the newest are kept."""

import os
from pathlib import Path

import pytest

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


def test_a_program_that_ran_out_of_time_is_asked_again() -> None:
    kept.keep(
        "slow", Left(status=None, ended_for="time", seconds=1.0, notes="", files={}, output="")
    )
    assert kept.recall("slow") is None
