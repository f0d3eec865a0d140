"""The commands that install on this machine what a log says is missing.

They use the package manager of the system, or conda where the build uses conda's compilers, or pip
for the interpreter that builds. A command that needs root has sudo where there is one.
"""

import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from stoker.knowledge.providers import ProvidedKind, Provider, library_folders, provider
from stoker.model.shell import NOTHING, Outside, ShellScript, Template, fill, joined, outside
from stoker.model.value import Value

if TYPE_CHECKING:  # a log is diagnosed sooner without them
    from stoker.model.machine import OperatingSystem

_CONDAS = ("mamba", "micromamba", "conda")
_DNFS = ("dnf", "microdnf", "yum")
# How a package manager names the package of a file; `{file}` is the end of the file's path.
_SEARCHES = {
    "apt": Template(
        "{sudo}apt-get install -y apt-file && {sudo}apt-file update"
        " && apt-file search --regexp '/{file}$'"
    ),
    "dnf": Template("{sudo}dnf provides '*/{file}'"),
    "pacman": Template("{sudo}pacman -Fy '{file}'"),
    "zypper": Template("{sudo}zypper search --provides --file-list '{file}'"),
    "conda": Template("conda search -c conda-forge '*{file}*'"),
}
_FILES = {
    ProvidedKind.LIBRARY: "lib{}.so",
    ProvidedKind.CMAKE: "{}Config.cmake",
    ProvidedKind.PKGCONFIG: "{}.pc",
    ProvidedKind.PROGRAM: "bin/{}",
}
# By hand, because these files are needed to install anything at all.
_LISTS = ("var/lib/apt/lists", "*_Packages*")


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
    def sudo(self) -> ShellScript:
        """The prefix of a command that needs root."""
        needed = not self.is_root and self.which("sudo")
        return (needed and fill(Template("sudo "), {})) or NOTHING

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
    from stoker.machine.python import Probe, ask_interpreter
    from stoker.model.errors import MissingError

    try:
        found = ask_interpreter(executable, Probe(environment=os.environ, timeout_s=10))
    except MissingError:
        return None
    return Python(
        executable=executable,
        version=".".join(found.version.split(".")[:2]),
        has_pip="pip" in found.packages,
        managed=found.managed,
    )


def install_commands(
    kind: ProvidedKind,
    names: Sequence[str],
    here: Here,
    *,
    python: Callable[[], Python],
    conda_build: bool,
) -> ShellScript | None:
    """Return the commands that install what provides all of the names that are known; ``None`` if
    none is.
    """
    found = [one for name in names if (one := provider(kind, name))]
    if not names:
        return None
    if kind is ProvidedKind.MODULE:
        return _module_commands(found, names, here, python())
    manager = _manager(here, conda_build)
    packages = _packages(found, manager)
    if not packages and kind is ProvidedKind.PROGRAM:
        on_index = _packages(found, "pip")
        return pip_install(on_index, here, python()) if on_index else None
    if not packages or manager is None:
        return None
    installs = system_commands(packages, here, manager)
    folders = search_settings(kind, found) if manager == "apt" else ()
    return installs and joined([installs, *folders])


def search_command(kind: ProvidedKind, name: str, here: Here) -> ShellScript | None:
    """Return the command that tells which package has a file."""
    template = _SEARCHES.get(here.manager or "")
    file = outside(_FILES.get(kind, "{}").replace("{}", name))
    return fill(template, {"file": file, "sudo": here.sudo}) if template else None


def system_commands(packages: Iterable[str], here: Here, manager: str) -> ShellScript | None:
    """Return the commands by which a package manager installs packages."""
    from stoker.knowledge.packages import managers

    values: dict[str, Outside | ShellScript] = {
        "packages": Outside(words=tuple(dict.fromkeys(packages))),
        "sudo": NOTHING if manager == "brew" else here.sudo,
        "conda": outside(here.conda or "conda"),
        "dnf": outside(here.which(*_DNFS) or "dnf"),
    }
    if manager == "conda":
        return fill(Template("{conda} install -y -c conda-forge {packages}"), values)
    if manager == "dnf":
        return fill(Template("{sudo}{dnf} install -y {packages}"), values)
    install = fill(managers()[manager], values)
    if install is None:
        return None
    command = Template("{sudo}{install}")
    if manager == "apt" and not here.has_lists:
        command = Template("{sudo}apt-get update\n{sudo}{install}")
    return fill(command, {**values, "install": install})


def pip_command(here: Here, python: Python) -> ShellScript | None:
    """Return the beginning of the command that installs into an interpreter with pip or uv."""
    executable = {"python": outside(python.executable)}
    if python.has_pip or not here.which("uv"):
        return fill(Template("{python} -m pip install"), executable)
    return fill(Template("uv pip install --python {python}"), executable)


def pip_install(packages: Sequence[str], here: Here, python: Python) -> ShellScript | None:
    """Return the command that installs packages into an interpreter."""
    pip = pip_command(here, python)
    values = {"packages": Outside(words=tuple(packages))}
    return fill(Template("{pip} {packages}"), {**values, "pip": pip}) if pip else None


def _manager(here: Here, conda_build: bool) -> str | None:
    if here.conda and (conda_build or not (here.is_root or here.sudo)):
        return "conda"
    return here.manager


def _packages(found: Iterable[Provider], manager: str | None) -> list[str]:
    return [name for one in found for name in one.packages.get(manager or "", "").split()]


def _module_commands(
    found: Sequence[Provider], names: Sequence[str], here: Here, python: Python
) -> ShellScript | None:
    if python.managed:
        packages = _packages(found, here.manager)
        return system_commands(packages, here, here.manager or "") if packages else None
    # A module that the table does not have usually has the name of its project.
    packages = _packages(found, "pip") or [name.partition(".")[0] for name in names]
    return pip_install(packages, here, python)


def search_settings(kind: ProvidedKind, found: Sequence[Provider]) -> Iterator[ShellScript]:
    """Yield what tells the compiler and the linker of folders that they do not search."""
    roots = [one.root for one in found if one.root]
    if kind is ProvidedKind.HEADER and roots:
        yield from _search_in(Template('export CPATH="{path}${CPATH:+:$CPATH}"'), roots)
        roots = [root for one in found for root in library_folders(one.packages.get("apt", ""))]
    if kind in (ProvidedKind.HEADER, ProvidedKind.LIBRARY) and roots:
        template = Template('export LIBRARY_PATH="{path}${LIBRARY_PATH:+:$LIBRARY_PATH}"')
        yield from _search_in(template, roots)


def _search_in(template: Template, folders: Iterable[str]) -> Iterator[ShellScript]:
    path = ":".join(dict.fromkeys(folder.replace("@", _triplet()) for folder in folders))
    if script := fill(template, {"path": outside(path)}):
        yield script


def _triplet() -> str:
    return f"{os.uname().machine}-linux-gnu"
