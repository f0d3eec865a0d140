"""Toolchains that can be made from wheels of the package index."""

from stoker.knowledge import Row, table


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


kinds = table("toolchains", dict[str, ToolchainKind])
