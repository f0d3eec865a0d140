"""Answers are used again for the same tree, settings and tools, if the program succeeded."""

import pytest
from msgspec.structs import replace

from stoker.ask import kept
from stoker.ask.room import Left, Question
from stoker.ask.values import Walls

LEFT = Left(status=0, ended_for="", seconds=1.0, notes="", files={}, output="")


def test_the_key_depends_on_the_settings() -> None:
    one = Question(tree="/t", python="p", words=("setup.py",), environment={"A": "1"})
    other = Question(tree="/t", python="p", words=("setup.py",), environment={"A": "2"})
    keys = {kept.key(one, "d", Walls.CLOSED), kept.key(other, "d", Walls.CLOSED)}
    keys |= {kept.key(one, "e", Walls.CLOSED), kept.key(one, "d", Walls.OPEN)}
    assert len(keys) == 4


@pytest.mark.parametrize(("status", "ended_for"), [(None, "time"), (1, "")])
def test_a_program_that_did_not_succeed_is_asked_again(status: int | None, ended_for: str) -> None:
    """A build that lacked a compiler was refused for it after the compiler had been installed."""
    kept.keep("failed", replace(LEFT, status=status, ended_for=ended_for))
    assert kept.recall("failed") is None
