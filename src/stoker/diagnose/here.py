"""This machine, as far as fixes need it: its package manager, its privileges, its interpreters."""

import os
import shutil
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.model.shell import NOTHING, ShellScript, Template, fill
from stoker.model.value import Value, minor_release

if TYPE_CHECKING:  # a log is diagnosed sooner without them
    from stoker.model.machine import OperatingSystem

_CONDAS = ("mamba", "micromamba", "conda")
_DNFS = ("dnf", "microdnf", "yum")


class Python(Value, frozen=True, kw_only=True):
    """The interpreter that a build uses. ``managed``: the distribution forbids pip to change it.
    One that was not asked has no ``version``.
    """

    executable: str
    version: str = ""  # "3.11"
    has_pip: bool = True
    managed: bool = False


class Here:
    """This machine, as far as it matters for installing; each part is read when it is needed."""

    def __init__(self, environment: Mapping[str, str] | None = None, root: Path = Path("/")):
        self.environment = os.environ if environment is None else environment
        self.root = root

    def with_manager(self, name: str | None) -> "Here":
        """Return the same with another package manager, for a log of another system."""
        there = Here(self.environment, self.root)
        there.manager = name
        if name != "apt":
            there.gccs = frozenset()  # those of this machine say nothing of another system
        return there

    def which(self, *programs: str) -> str | None:
        """Return the first of the programs that is on the PATH."""
        path = self.environment.get("PATH", "")
        return next((name for name in programs if shutil.which(name, path=path)), None)

    @cached_property
    def system(self) -> "OperatingSystem":
        from stoker.machine.file_tree import FileTree
        from stoker.machine.system import read_system

        return read_system(FileTree(self.root), self.environment)

    @cached_property
    def gccs(self) -> frozenset[int]:
        """The versions of g++ that are installed, or that the system has as packages."""
        from stoker.knowledge.packages import gcc_versions
        from stoker.machine.file_tree import installed_gccs

        packaged = gcc_versions(self.system) if self.manager == "apt" else ()
        return frozenset({*installed_gccs(self.environment), *packaged})

    def gcc(self, *, least: int | None = None, most: int | None = None) -> str | None:
        """Return the oldest of these versions from ``least``, or the newest up to ``most``."""
        from stoker.knowledge.packages import fitting_gcc

        version = fitting_gcc(self.gccs, least=least, most=most)
        return str(version) if version else None

    @cached_property
    def manager(self) -> str | None:
        """The package manager of the system: apt, dnf, ..."""
        from stoker.knowledge.packages import system_manager

        name = system_manager(self.system)
        programs = {"apt": ("apt-get",), "dnf": _DNFS}.get(name or "", (name or "",))
        return name if self.which(*programs) else None

    @cached_property
    def conda(self) -> str | None:
        """The program that installs into conda's active environment."""
        return self.which(*_CONDAS) if self.environment.get("CONDA_PREFIX") else None

    @property
    def dnf(self) -> str:
        """The program of dnf, which has other names on small and on old systems."""
        return self.which(*_DNFS) or "dnf"

    @property
    def is_root(self) -> bool:
        return os.geteuid() == 0

    @cached_property
    def sudo(self) -> ShellScript:
        """The prefix of a command that needs root."""
        needed = not self.is_root and self.which("sudo")
        return (needed and fill(Template("sudo "), {})) or NOTHING

    @cached_property
    def has_lists(self) -> bool:
        """Whether apt knows the packages that it could install."""
        return any((self.root / "var/lib/apt/lists").glob("*_Packages*"))

    def python(self, executable: str) -> Python | None:
        """Return what an interpreter says of itself; ``None`` if it does not answer."""
        return _asked(executable)


@cache
def _asked(executable: str) -> Python | None:
    from stoker.machine.python import Probe, ask_interpreter
    from stoker.model.errors import MissingError

    try:
        found = ask_interpreter(executable, Probe(environment=os.environ, timeout_s=10))
    except MissingError:
        return None
    return Python(
        executable=executable,
        version=minor_release(found.version),
        has_pip="pip" in found.packages,
        managed=found.managed,
    )
