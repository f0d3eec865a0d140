"""What is known of a failure: what its log names, the run, and this machine.

Values only. The facts that follow from them are in run_facts.py and machine_facts.py.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from stoker.diagnose.installing import Here, Python
from stoker.diagnose.lines import compiled
from stoker.diagnose.sieve import Line
from stoker.diagnose.values import FailedRun
from stoker.knowledge.failures import Known

_PASTABLE = re.compile(r"[\w.,:+/@%=~-]{1,200}").fullmatch  # a log must not write our commands
_INTERPRETERS = (
    r"(?:^|[\s'\"=(])(/[^\s'\"]{1,200}/bin/python(?:3(?:\.\d{1,2})?)?)(?=[\s'\",:)]|$)",
    r"[\s'\"](/[^\s'\"]{1,200})/lib/python3\.\d{1,2}/(?:site|dist)-packages/",
)
_TEMPORARY = ("pip-build-env", "/builds-v0/")  # environments of pip and uv for one build


class About:
    """What is known of one cause in one log. ``groups`` are the values that its signs found."""

    def __init__(
        self,
        *,
        lines: Sequence[Line] = (),
        run: FailedRun | None = None,
        here: Here | None = None,
        groups: Mapping[str, Sequence[str]] | None = None,
        known: Mapping[str, Known] | None = None,
    ):
        self.lines = lines
        self.run = run or FailedRun()
        self.here = here or Here()
        self.groups = groups or {}
        self.known = known or {}
        self._first: dict[str, re.Match[str] | None] = {}

    def of_log(self, lines: Sequence[Line]) -> "About":
        """Return the same for another log."""
        return About(lines=lines, run=self.run, here=self.here)

    def with_groups(
        self, groups: Mapping[str, Sequence[str]], known: Mapping[str, Known]
    ) -> "About":
        """Return the same for another cause."""
        about = About(lines=self.lines, run=self.run, here=self.here, groups=groups, known=known)
        about._first = self._first
        return about

    def first(self, pattern: str) -> re.Match[str] | None:
        """Return the first match of a pattern in the log. It is kept: fixes need the same facts
        again and again, and a log may have thousands of lines.
        """
        if pattern not in self._first:
            search = compiled(pattern).search
            found = (match for line in self.lines if (match := search(line.text)))
            self._first[pattern] = next(found, None)
        return self._first[pattern]

    def words(self, group: str) -> Sequence[str]:
        """Return the values of a group that may stand in a command."""
        if found := self.groups.get(group):
            return [word for word in found if _PASTABLE(word)]
        return self.known[group].value.split() if group in self.known else ()

    @cached_property
    def python(self) -> str:
        return _python_in(self.lines) or self.here.which("python3", "python") or "python3"

    @cached_property
    def interpreter(self) -> Python | None:
        return self.here.python(self.python)


def pastable(text: str) -> bool:
    """Return whether a text from a log may stand in a command."""
    return bool(_PASTABLE(text))


def _python_in(lines: Sequence[Line]) -> str | None:
    """Return the interpreter that a log names, if it is on this machine and not in a temporary
    environment.
    """
    for pattern in _INTERPRETERS:
        for line in lines:
            for match in compiled(pattern).finditer(line.text):
                path = match[1] if "/bin/python" in match[1] else f"{match[1]}/bin/python3"
                lasts = not any(word in path for word in _TEMPORARY)
                if lasts and os.access(path, os.X_OK):
                    return path
    return None


Fact = Callable[[About], str | None]


class Facts(dict[str, tuple[str, Fact]]):
    """Facts by name, each with what it is and the function that reads it."""

    def add(self, name: str, what: str) -> Callable[[Fact], Fact]:
        def added(read: Fact) -> Fact:
            self[name] = (what, read)
            return read

        return added
