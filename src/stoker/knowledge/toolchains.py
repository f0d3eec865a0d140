"""Toolchains that can be made out of a package index's wheels, and how."""

from functools import cache

from stoker.knowledge import Row, load


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


class Kind(Row, frozen=True, kw_only=True):
    """The head of toolchains.toml says what each field means."""

    package: str
    summary: str
    trees: tuple[tuple[str, str], ...]
    version: VersionCommand
    numbers: int = 0
    oldest: str | None = None
    because: str = ""
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
        """What can be asked for beyond the bare toolchain."""
        return tuple(sorted({*self.extras, *self.packages, *self.brings}))


@cache
def kinds() -> dict[str, Kind]:
    return load("toolchains", dict[str, Kind])
