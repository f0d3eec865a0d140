"""Keeps the answers of builds: they are the same as long as tree, settings and tools are."""

from stoker.ask.room import Left, Question, programs
from stoker.ask.values import Walls
from stoker.outside.kept_values import KeptValues, name_of, time_of

# Each of them has some megabytes for a large project.
_ANSWERS = KeptValues("builds", Left, most=256)


def key(question: Question, tree: str, walls: Walls) -> str:
    """Return a name for what the answer depends on. ``tree`` is the digest of the tree."""
    tools = [(path, time_of(path)) for path in sorted(question.shown)]
    tools += [(path, time_of(path)) for _, path in sorted(question.tools.items())]
    variables = sorted(question.environment.items())
    own = sorted(programs().items())
    how = (walls, question.words, question.fetches, question.pretended)
    return name_of(own, tree, how, variables, tools)


def recall(name: str) -> Left | None:
    return _ANSWERS.recall(name)


def keep(name: str, left: Left) -> None:
    """Keep what a program left. One that failed or ran out of time may do better next time: what it
    lacks may be installed then.
    """
    if left.status == 0:
        _ANSWERS.keep(name, left)
