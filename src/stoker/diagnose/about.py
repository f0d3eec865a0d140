"""What is known of a failure: what its log names, the run, and this machine.

Values only. The facts that follow from them are in run_facts.py and machine_facts.py.
"""

import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path

from stoker.diagnose.here import Here, Python
from stoker.diagnose.lines import compiled
from stoker.diagnose.sieve import Line
from stoker.diagnose.values import FailedRun
from stoker.knowledge.failures import Known, shown_manager
from stoker.model.shell import Outside, ShellScript, is_plain, outside

_LONGEST = 200  # characters of a word of a log in a command
_INTERPRETERS = (
    r"(?:^|[\s'\"=(])(/[^\s'\"]{1,200}/bin/python(?:3(?:\.\d{1,2})?)?)(?=[\s'\",:)]|$)",
    r"[\s'\"](/[^\s'\"]{1,200})/lib/python3\.\d{1,2}/(?:site|dist)-packages/",
)
# An interpreter of a command: the folder of its programs, and one of them.
_PROGRAM = r"(.*/bin)/((?:python|pip|activate|uv)[\w.-]*)"
_PROGRAM_IN_SCRIPT = r"([^\s'\"();&|<>=]*/bin)/((?:python|pip|activate|uv)[\w.-]*)"
# Headers that builds generate, and those of torch, which no package of a distribution has.
_NO_PACKAGE = (
    r"\.pb\.h$|_generated\.h$|^(?:config|version)\.h(?:pp)?$|(?:^|/)(?:\w+_export|moc_\w+)\.h(?:pp)?$"
    r"|\.inc$|\.moc$"
    r"|^(?:torch|ATen|c10|caffe2|TH|THC|THCUNN|cutlass|cute)/"
)
_REFUSES = r"CMake Error at \S{0,300}/([\w.+]{1,60}?)(?:-c|C)onfig(?:-version|Version)?\.cmake:"
_MARKS = (
    ":\\",
    ":/",
    ".exe",
    "LNK",
    "rror C",
    "indows",
    "MSYS",
    "mingw64",
    "Visual",
    "Perhaps the",
    "WinError",
    "%PATH%",
    "DLL load",
    "recognized as",
    "CreateProcess",
    "NMAKE",
    "npipe:",
)  # of lines of Windows
_OF_WINDOWS = (
    r"(?:^|[\s\"'(=])[A-Za-z]:\\[\w.$ ()-]{1,60}\\|\bcl\.exe\b|\bLNK\d{4}\b|\b[Ee]rror C\d{4}\b"
    r"|(?:^|[\s\"'(=])(?:[C-H]:/\w|[B-Zb-z]:/(?:Users|Program Files|Windows|msys64|a/|vcpkg|dev"
    r"|src|git|hostedtoolcache))"
    r"|\b(?:cmake|cmd|git|link|nvcc|ninja|node|pip|python|swig|uv)\.exe\b"
    r"|was not found in the PATH\.  Perhaps the\b|executable file not found in %PATH%"
    r"|\[WinError \d|DLL load failed|Selecting Windows SDK version|-- Building for: Visual Studio"
    r"|pc-windows-(?:msvc|gnu)\b|\bwin-amd64\b|windows-(?:latest|20\d\d)\b|\bMINGW(?:32|64)_NT\b"
    r"|is not recognized as (?:an internal or external command|(?:the|a) name of a)"
    r"|\bCreateProcess(?:W\b|\(NULL|: )|^NMAKE : |\bnpipe:/"
)
# Folders that differ between machines, other than those of every distribution.
_OF_USERS = (
    r"(?<![\w/.])/(?!usr/|bin/|lib|etc/|dev/|proc/|sys/|var/|sbin/|tmp/?\b)"
    r"[\w.+@-]{1,60}/[\w.+@/-]{2,200}"
)
_MOST_PATHS = 60  # that are looked for
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
        self._here = here or Here()
        self.groups = groups or {}
        self.known = known or {}
        self._first: dict[str, re.Match[str] | None] = {}
        self._whole: list[str] = []

    def of_log(self, lines: Sequence[Line]) -> "About":
        """Return the same for another log."""
        return About(lines=lines, run=self.run, here=self._here)

    def of_run(self, run: FailedRun) -> "About":
        """Return the same for another run."""
        return About(lines=self.lines, run=run, here=self._here)

    def with_groups(
        self, groups: Mapping[str, Sequence[str]], known: Mapping[str, Known]
    ) -> "About":
        """Return the same for another cause."""
        about = About(lines=self.lines, run=self.run, here=self._here, groups=groups, known=known)
        about._first, about._whole = self._first, self._whole
        return about

    def first(self, pattern: str, having: str = "") -> re.Match[str] | None:
        """Return the first match of a pattern in the log, in a line that has a text. It is kept:
        fixes need the same facts again and again, and a log may have thousands of lines.
        """
        if pattern not in self._first:
            search = compiled(pattern).search
            texts = (line.text for line in self.lines if having in line.text)
            found = (match for text in texts if (match := search(text)))
            self._first[pattern] = next(found, None)
        return self._first[pattern]

    def shows(self, texts: Iterable[str]) -> bool:
        """Return whether the log, the command or its folder has one of the texts, which are in
        small letters.
        """
        ran = f"{self.run.command} {self.run.folder}".lower()
        return any(text in self._small or text in ran for text in texts)

    @property
    def _small(self) -> str:
        """The log in small letters; it is kept for all causes."""
        if not self._whole:
            self._whole.append("\n".join(line.text for line in self.lines).lower())
        return self._whole[0]

    def words(self, group: str) -> Sequence[str]:
        """Return the values of a group that may stand in a command."""
        if found := self.groups.get(group):
            return [word for word in found if is_plain(word) and len(word) <= _LONGEST]
        return self.known[group].value.split() if group in self.known else ()

    def missing(self, group: str) -> Sequence[str]:
        """Return the words of a group that a package may have: not a header that the build should
        have made, nor a package of CMake that is there and refuses something itself.
        """
        words = self.words(group)
        if group == "header":
            return [word for word in words if not compiled(_NO_PACKAGE).search(word)]
        if group == "cmake":
            texts = (line.text for line in self.lines if "CMake Error at" in line.text)
            found = map(compiled(_REFUSES).search, texts)
            refuses = {match[1].lower() for match in found if match}
            return [word for word in words if word.lower() not in refuses]
        return words

    @cached_property
    def here(self) -> Here:
        """This machine; for a log without a run, with the package manager of its system."""
        manager = None if self.run.command else shown_manager(self._small)
        if not manager or manager == self._here.manager:
            return self._here
        return self._here.with_manager(None if manager == "none" else manager)

    @cached_property
    def is_here(self) -> bool:
        """Whether the log is of a build on this machine: of a run, or it names a file or folder
        of a user that is here. Others say nothing of this machine.
        """
        if self.run.command:
            return True
        named = (
            found[0]
            for line in self.lines
            if "/" in line.text
            for found in compiled(_OF_USERS).finditer(line.text)
        )
        return any(Path(path).exists() for path in islice(dict.fromkeys(named), _MOST_PATHS))

    @cached_property
    def is_windows(self) -> bool:
        """Whether the log is of a build on Windows, where no command for sh can be typed."""
        marked = (line.text for line in self.lines if any(mark in line.text for mark in _MARKS))
        return not self.run.command and any(map(compiled(_OF_WINDOWS).search, marked))

    @cached_property
    def own_python(self) -> str | None:
        """The interpreter of the user's command, or the one on the PATH that the log names. Only
        these are executed or looked into: a log must not choose them.
        """
        on_path = self.here.environment.get("PATH", "").split(":")
        named = (one for one in self._named if str(Path(one).parent) in on_path)
        return self.commanded_python or next(named, None)

    @cached_property
    def commanded_python(self) -> str | None:
        """The interpreter that the user's command names by its path, or that beside its pip."""
        return next(self._commanded, None)

    @cached_property
    def python(self) -> str:
        """The interpreter of the build. After a run of stoker it may also be one that only the
        output names: a fix names it, as the build did.
        """
        ran = next(self._named, None) if self.run.command else None
        return self.own_python or ran or self.here.which("python3", "python") or "python3"

    @cached_property
    def interpreter(self) -> Python:
        """What the interpreter of the build says of itself, if it may be asked."""
        is_named_only = self.python.startswith("/") and self.python != self.own_python
        asked = None if is_named_only else self.here.python(self.python)
        return asked or Python(executable=self.python)

    @property
    def _commanded(self) -> Iterator[str]:
        """The interpreters that the user's command names, or those beside its pip."""
        try:
            words = shlex.split(self.run.command)
        except ValueError:
            return
        for word in words:
            whole = compiled(_PROGRAM).fullmatch(word)
            for match in [whole] if whole else compiled(_PROGRAM_IN_SCRIPT).finditer(word):
                folder = Path(self.run.folder, match[1])
                for name in (match[2], "python3"):
                    if name.startswith("python") and os.access(folder / name, os.X_OK):
                        yield str(folder / name)

    @property
    def _named(self) -> Iterator[str]:
        """The interpreters that the log names and this machine has, but for temporary ones."""
        for pattern in _INTERPRETERS:
            for line in self.lines:
                for match in compiled(pattern).finditer(line.text):
                    path = match[1] if "/bin/python" in match[1] else f"{match[1]}/bin/python3"
                    lasts = not any(word in path for word in _TEMPORARY)
                    if lasts and os.access(path, os.X_OK):
                        yield path


_Text = Callable[[About], str | None]
_Command = Callable[[About], ShellScript | None]
Read = Callable[[About], Outside | ShellScript | None]


class Facts(dict[str, tuple[str, Read]]):
    """Facts by name, each with what it is and the function that reads it."""

    def text(self, name: str, what: str) -> Callable[[_Text], _Text]:
        """Add a fact that is text, from outside as all text."""

        def added(read: _Text) -> _Text:
            def read_as_outside(about: About) -> Outside | None:
                return outside(text) if (text := read(about)) else None

            self[name] = (what, read_as_outside)
            return read

        return added

    def command(self, name: str, what: str) -> Callable[[_Command], _Command]:
        """Add a fact that is a command, or a part of one."""

        def added(read: _Command) -> _Command:
            self[name] = (what, read)
            return read

        return added
