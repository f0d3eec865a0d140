"""Packages of distributions, libraries, build tools and toolchains."""

import re
from functools import cache

from stoker.knowledge import Row, load
from stoker.model.machine import OperatingSystem
from stoker.model.shell import ShellScript, Template, fill, outside

# -- packages --------------------------------------------------------------------------------------
# The commands that install missing tools and libraries, by distribution.


_FIRST_NVCC_ON_INDEX = 13  # the wheels of earlier toolkits hold no nvcc
_FIRST_CUDA_ON_INDEX = 12  # some of NVIDIA's libraries have no wheels for earlier toolkits


class _PackageTable(Row, frozen=True, kw_only=True):
    manager: dict[str, Template]
    distribution: dict[str, str]
    gcc: dict[str, tuple[int, ...]]
    package: dict[str, dict[str, Template]]


@cache
def _package_table() -> _PackageTable:
    return load("packages", _PackageTable)


def install_command(
    what: str, system: OperatingSystem, cuda: str | None = None
) -> tuple[ShellScript, ...]:
    """Return the command that installs something; nothing if no package is known."""
    table = _package_table()
    names = table.package.get(what, {})
    manager = system_manager(system)
    major = int((cuda or "0").partition(".")[0])
    everywhere = ("stoker", "pip") if major >= _FIRST_NVCC_ON_INDEX else ("pip",)
    for each in (manager, *everywhere):
        package = names.get(each or "")
        if package and ("{cuda" not in package or major >= _FIRST_CUDA_ON_INDEX):
            versions = {"cuda_major": outside(str(major)), "cuda": outside(cuda or "")}
            if packages := fill(package, versions):
                command = fill(table.manager[each or ""], {"packages": packages})
                return (command,) if command else ()
    return ()


def managers() -> dict[str, Template]:
    """Return the command of each package manager, with ``{packages}``."""
    return _package_table().manager


def system_manager(system: OperatingSystem) -> str | None:
    """Return the package manager of an operating system."""
    names = (system.id, *system.like) if system.system == "linux" else (system.system,)
    return next(
        (known for name in names if (known := _package_table().distribution.get(name))), None
    )


def gcc_versions(system: OperatingSystem) -> tuple[int, ...]:
    """Return the major versions of g++ that this release of a distribution has as packages."""
    return _package_table().gcc.get(f"{system.id}-{system.version}", ())


# -- libraries -------------------------------------------------------------------------------------
# The libraries that a build may link. ``stoker.machine.tools`` finds them.


class LibraryRow(Row, frozen=True, kw_only=True):
    name: str
    headers: tuple[str, ...]
    libraries: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    versions: tuple[tuple[str, ...], ...] = ()
    version_files: tuple[str, ...] = ()

    def version(self, text: str) -> str | None:
        """Return the version that a header's text defines."""
        for patterns in self.versions:
            found = [_define(pattern).search(text) for pattern in patterns]
            if all(found):
                numbers = (number for match in found if match for number in match.groups())
                # One part of a number such as 3021012 comes with zeros before it.
                return ".".join(re.sub(r"^0+(?=\d)", "", number) for number in numbers)
        return None


class LibrarySearch(Row, frozen=True, kw_only=True):
    """The folders in which all libraries are searched."""

    includes: tuple[str, ...]
    libraries: tuple[str, ...]
    prefix_variables: tuple[str, ...]
    packages: tuple[str, ...]
    prefixes: tuple[str, ...]


class LibraryTable(Row, frozen=True, kw_only=True):
    search: LibrarySearch
    library: tuple[LibraryRow, ...]


@cache
def table() -> LibraryTable:
    return load("libraries", LibraryTable)


@cache
def _define(pattern: str) -> re.Pattern[str]:
    spaced = pattern.replace(" ", r"\s+")
    return re.compile(rf"^\s*#\s*define\s+{spaced}", re.MULTILINE | re.ASCII)


# -- tools -----------------------------------------------------------------------------------------
# The programs that a build may use, by role, which ``stoker.machine`` finds; and the names by
# which a command of a build is recognised as a compiler, a linker or a wrapper of one.


DOTTED_NUMBER = r"(\d+(?:\.\d+)+)"


class KnownProgram(Row, frozen=True, kw_only=True):
    name: str
    commands: tuple[str, ...] = ()
    variable: str | None = None
    folders: tuple[str, ...] = ()
    version: str = DOTTED_NUMBER
    launcher: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return self.commands or (self.name,)


class _ToolTable(Row, frozen=True, kw_only=True):
    program: tuple[KnownProgram, ...]


@cache
def programs() -> tuple[KnownProgram, ...]:
    return load("tools", _ToolTable).program


@cache
def launchers() -> frozenset[str]:
    return frozenset(name for program in programs() if program.launcher for name in program.names)


@cache
def _names() -> dict[str, tuple[str, ...]]:
    return load("compiler_names", dict[str, tuple[str, ...]])


def names(group: str) -> tuple[str, ...]:
    """Return the names of a group of programs, such as ``compilers`` or ``wrappers``."""
    return _names()[group]


@cache
def named(group: str) -> re.Pattern[str]:
    """Match a name of the group with a target's prefix and a version: aarch64-linux-gnu-gcc-13.
    Also g++-real, which a script named g++ starts.
    """
    known, ends = ("|".join(map(re.escape, names(each))) for each in (group, "originals"))
    return re.compile(rf"(?:.*-)?(?:{known})(?:-[\d.]+)?(?:{ends})?")


# -- toolchains ------------------------------------------------------------------------------------
# Toolchains that can be made from wheels of the package index.


class VersionCommand(Row, frozen=True, kw_only=True):
    command: tuple[str, ...]
    pattern: str


class HostCompiler(Row, frozen=True, kw_only=True):
    program: str
    variable: str  # that names another


class Stub(Row, frozen=True, kw_only=True):
    prefix: str  # of its functions' names; an upper case letter follows
    headers: tuple[str, ...]
    library: str
    soname: str


class Proof(Row, frozen=True, kw_only=True):
    file: str
    source: str
    commands: tuple[tuple[str, ...], ...]
    without: tuple[str, ...] = ()  # variables that would change the commands
    hint: str


class ToolchainKind(Row, frozen=True, kw_only=True):
    """A kind of toolchain. The comment at the top of toolchains.toml explains the fields."""

    package: str
    summary: str
    trees: tuple[tuple[str, str], ...]
    version: VersionCommand
    numbers: int = 0
    oldest: str | None = None
    because: str = ""
    earlier: str = ""
    platforms: tuple[str, ...] = ()
    always: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    packages: dict[str, str] = {}
    brings: dict[str, tuple[str, ...]] = {}
    constraints: tuple[str, ...] = ()
    links: dict[str, str] = {}
    sonames: tuple[str, ...] = ()
    environment: dict[str, tuple[str, ...]] = {}
    host: HostCompiler | None = None
    stubs: tuple[Stub, ...] = ()
    proof: Proof | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the optional components."""
        return tuple(sorted({*self.extras, *self.packages, *self.brings}))


@cache
def kinds() -> dict[str, ToolchainKind]:
    return load("toolchains", dict[str, ToolchainKind])
