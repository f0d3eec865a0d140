"""The commands that install on this machine what a log says is missing.

They use the package manager of the system, or conda where the build uses conda's compilers, or pip
for the interpreter that builds. A command that needs root has sudo where there is one.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence

from stoker.diagnose.here import Here, Python
from stoker.knowledge.providers import ProvidedKind, Provider, library_folders, provider
from stoker.model.shell import NOTHING, Outside, ShellScript, Template, fill, joined, outside

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
        "dnf": outside(here.dnf),
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
    known = {name: provider(ProvidedKind.MODULE, name) for name in names}
    by_name = {name: _packages([one], "pip") if one else [] for name, one in known.items()}
    packages = [one for name in names for one in by_name[name] or [name.partition(".")[0]]]
    return pip_install(list(dict.fromkeys(packages)), here, python)


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
    triplet = f"{os.uname().machine}-linux-gnu"
    path = ":".join(dict.fromkeys(folder.replace("@", triplet) for folder in folders))
    if script := fill(template, {"path": outside(path)}):
        yield script
