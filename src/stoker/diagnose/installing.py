"""The commands that install on this machine what a log says is missing.

They use the package manager of the system, or conda where the build uses conda's compilers, or pip
for the interpreter that builds. A command that needs root has sudo where there is one.
"""

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.knowledge.providers import ProvidedKind, Provider, library_folders, provider
from stoker.model.value import Value

if TYPE_CHECKING:  # a log is diagnosed sooner without them
    from stoker.model.machine import OperatingSystem

_CONDAS = ("mamba", "micromamba", "conda")
_DNFS = ("dnf", "microdnf", "yum")
# How a package manager names the package of a file; `{}` is the end of the file's path.
_SEARCHES = {
    "apt": "apt-get install -y apt-file && apt-file update && apt-file search --regexp '/{}$'",
    "dnf": "dnf provides '*/{}'",
    "pacman": "pacman -Fy '{}'",
    "zypper": "zypper search --provides --file-list '{}'",
    "conda": "conda search -c conda-forge '*{}*'",
}
_FILES = {
    ProvidedKind.HEADER: "{}",
    ProvidedKind.LIBRARY: "lib{}.so",
    ProvidedKind.SHARED: "{}",
    ProvidedKind.CMAKE: "{}Config.cmake",
    ProvidedKind.PKGCONFIG: "{}.pc",
    ProvidedKind.PROGRAM: "bin/{}",
}
# By hand, because these files are needed to install anything at all.
_LISTS = ("var/lib/apt/lists", "*_Packages*")


class Python(Value, frozen=True, kw_only=True):
    """The interpreter that a build uses. ``managed``: the distribution forbids pip to change it."""

    executable: str
    version: str  # "3.11"
    has_pip: bool
    managed: bool


class Here:
    """This machine, as far as it matters for installing; each part is read when it is needed."""

    def __init__(self, environment: Mapping[str, str] | None = None, root: Path = Path("/")):
        self.environment = os.environ if environment is None else environment
        self.root = root

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
    def is_root(self) -> bool:
        return os.geteuid() == 0

    @cached_property
    def sudo(self) -> str:
        """The prefix of a command that needs root."""
        return "" if self.is_root or not self.which("sudo") else "sudo "

    @cached_property
    def has_lists(self) -> bool:
        """Whether apt knows the packages that it could install."""
        folder, pattern = _LISTS
        return any((self.root / folder).glob(pattern))

    def python(self, executable: str) -> Python | None:
        """Return what an interpreter says of itself; ``None`` if it does not answer."""
        return _asked(executable)


@cache
def _asked(executable: str) -> Python | None:
    question = (
        "import sys, sysconfig, os, importlib.util as u;"
        "m = os.path.join(sysconfig.get_path('stdlib'), 'EXTERNALLY-MANAGED');"
        "print('%d.%d' % sys.version_info[:2], bool(u.find_spec('pip')) + 0,"
        " (sys.prefix == sys.base_prefix and os.path.exists(m)) + 0)"
    )
    from stoker.model.errors import StokerError
    from stoker.outside import process

    try:
        answer = process.run([executable, "-c", question], timeout=10).stdout.split()
    except StokerError:
        return None
    if len(answer) != 3:
        return None
    version, has_pip, managed = answer
    return Python(
        executable=executable, version=version, has_pip=has_pip == "1", managed=managed == "1"
    )


def install_commands(
    kind: ProvidedKind, names: Sequence[str], here: Here, *, python: str, conda_build: bool
) -> list[str]:
    """Return the commands that install what provides all of the names that are known; empty if
    none is.
    """
    found = [one for name in names if (one := provider(kind, name))]
    if kind is ProvidedKind.MODULE:
        return _module_commands(found, names, here, python)
    manager = _manager(here, conda_build)
    packages = _packages(found, manager)
    if not packages and kind is ProvidedKind.PROGRAM:
        return _pip_commands(_packages(found, "pip"), here, python)
    if not packages or manager is None:
        return []
    folders = search_folders(kind, found) if manager == "apt" else []
    return [*system_commands(packages, here, manager), *folders]


def search_command(kind: ProvidedKind, name: str, here: Here) -> str | None:
    """Return the command that tells which package has a file."""
    if template := _SEARCHES.get(here.manager or ""):
        return here.sudo + template.replace("{}", _FILES.get(kind, "{}").replace("{}", name))
    return None


def system_commands(packages: Iterable[str], here: Here, manager: str) -> list[str]:
    """Return the commands by which a package manager installs packages."""
    from stoker.knowledge.packages import managers

    words = " ".join(dict.fromkeys(packages))
    if manager == "conda":
        return [f"{here.conda or 'conda'} install -y -c conda-forge {words}"]
    command = managers()[manager].replace("{}", words)
    if manager == "dnf":
        command = command.replace("dnf", here.which(*_DNFS) or "dnf", 1)
    sudo = "" if manager == "brew" else here.sudo
    refresh = [f"{sudo}apt-get update"] if manager == "apt" and not here.has_lists else []
    return [*refresh, f"{sudo}{command}"]


def pip_command(python: Python | None, executable: str, here: Here) -> str:
    """Return the beginning of the command that installs into an interpreter with pip or uv."""
    if (python and python.has_pip) or not here.which("uv"):
        return f"{executable} -m pip install"
    return f"uv pip install --python {executable}"


def _manager(here: Here, conda_build: bool) -> str | None:
    if here.conda and (conda_build or not (here.is_root or here.sudo)):
        return "conda"
    return here.manager


def _packages(found: Iterable[Provider], manager: str | None) -> list[str]:
    return [name for one in found if (name := one.packages.get(manager or ""))]


def _pip_commands(packages: Sequence[str], here: Here, executable: str) -> list[str]:
    if not packages:
        return []
    return [f"{pip_command(here.python(executable), executable, here)} {' '.join(packages)}"]


def _module_commands(
    found: Sequence[Provider], names: Sequence[str], here: Here, executable: str
) -> list[str]:
    python = here.python(executable)
    if python and python.managed:
        packages = _packages(found, here.manager)
        return system_commands(packages, here, here.manager or "") if packages else []
    # A module that the table does not have usually has the name of its project.
    packages = _packages(found, "pip") or [name.partition(".")[0] for name in names]
    return _pip_commands(packages, here, executable)


def search_folders(kind: ProvidedKind, found: Sequence[Provider]) -> Iterator[str]:
    """Yield what tells the compiler and the linker of folders that they do not search."""
    roots = [one.root for one in found if one.root]
    if kind is ProvidedKind.HEADER and roots:
        yield _search_in("CPATH", roots)
        roots = [root for one in found for root in library_folders(one.packages.get("apt", ""))]
    if kind in (ProvidedKind.HEADER, ProvidedKind.LIBRARY) and roots:
        yield _search_in("LIBRARY_PATH", roots)


def _search_in(variable: str, folders: Iterable[str]) -> str:
    path = ":".join(dict.fromkeys(folder.replace("@", _triplet()) for folder in folders))
    return f'export {variable}="{path}${{{variable}:+:${variable}}}"'


def _triplet() -> str:
    return f"{os.uname().machine}-linux-gnu"
