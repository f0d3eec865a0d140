"""The programs that a build may use, by role. ``stoker.machine`` finds them."""

from functools import cache

from stoker.knowledge import Row, load

DOTTED_NUMBER = r"(\d+(?:\.\d+)+)"


class Program(Row, frozen=True, kw_only=True):
    name: str
    commands: tuple[str, ...] = ()
    variable: str | None = None
    folders: tuple[str, ...] = ()
    version: str = DOTTED_NUMBER
    launcher: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        return self.commands or (self.name,)


class _Table(Row, frozen=True, kw_only=True):
    program: tuple[Program, ...]


@cache
def programs() -> tuple[Program, ...]:
    return load("tools", _Table).program


@cache
def launchers() -> frozenset[str]:
    return frozenset(name for program in programs() if program.launcher for name in program.names)
