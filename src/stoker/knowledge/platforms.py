"""The platforms that stoker can plan for."""

from functools import cache

from stoker.knowledge import Row, rows
from stoker.model.variant import Backend, Platform


class PlatformRow(Row, frozen=True, kw_only=True):
    os: str
    cpu: str
    aliases: tuple[str, ...] = ()
    mobile: bool = False
    backends: tuple[Backend, ...] = ()
    cmake: dict[str, str] = {}
    environment: dict[str, str] = {}

    @property
    def platform(self) -> Platform:
        return Platform(os=self.os, cpu=self.cpu)

    @property
    def families(self) -> tuple[str, ...]:
        """The CPU families, as a CPU level names them, whose code runs there."""
        if self.cpu == "universal":
            return ("aarch64", "x86_64")
        return ("aarch64",) if self.cpu == "arm64" else (self.cpu,)


@cache
def platforms() -> dict[Platform, PlatformRow]:
    return {row.platform: row for row in rows("platforms", PlatformRow)()}
