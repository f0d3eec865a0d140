"""`stoker watch`: the running builds of this user, and the events of one of them."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from stoker.govern.broadcast import Watching, running
from stoker.model.errors import UsageError
from stoker.model.events import RunBegins
from stoker.model.value import duration


@contextmanager
def watched(word: str | None) -> Iterator[Watching]:
    """Connect to a running build: the one of that process or run folder, else the only one."""
    found = running()
    try:
        yield choose(found, word)
    finally:
        for each in found:
            each.close()


def choose(found: Sequence[Watching], word: str | None) -> Watching:
    """Return the build that ``word`` names; raise UsageError if that is none or more than one."""
    fitting = [each for each in found if word is None or _is_named(each.begins, word)]
    if len(fitting) == 1:
        return fitting[0]
    lines = [_line(each.begins) for each in fitting or found]
    if fitting:
        raise UsageError("several builds are running; name one of them", hints=lines)
    if word is not None and found:
        raise UsageError(f"no running build is called '{word}'", hints=lines)
    hints = [
        "`stoker run -- ninja` or `stoker build` starts one",
        "`stoker history` lists the builds that have ended",
    ]
    raise UsageError("no build of yours is running", hints=hints)


def _is_named(begins: RunBegins, word: str) -> bool:
    return word in (str(begins.process), begins.command.rpartition(" ")[2])


def _line(begins: RunBegins) -> str:
    age = duration(max(0.0, time.time() - begins.at))
    return f"`stoker watch {begins.process}`: {begins.command} in {begins.directory}, for {age}"
