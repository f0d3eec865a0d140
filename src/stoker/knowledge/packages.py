"""How a missing thing is installed on this distribution."""

from functools import cache

from stoker.knowledge.loader import Row, load
from stoker.model.machine import OperatingSystem

_FIRST_CUDA_ON_INDEX = 13  # the wheels of earlier toolkits hold no nvcc


class _Table(Row, frozen=True, kw_only=True):
    manager: dict[str, str]
    distribution: dict[str, str]
    package: dict[str, dict[str, str]]


@cache
def _table() -> _Table:
    return load("packages", _Table)


def install_command(what: str, system: OperatingSystem, cuda: str | None = None) -> tuple[str, ...]:
    """The command that installs it, or nothing where no package is known."""
    table = _table()
    names = table.package.get(what, {})
    families = (system.id, *system.like) if system.system == "linux" else (system.system,)
    managers = [table.distribution[family] for family in families if family in table.distribution]
    major = (cuda or "").partition(".")[0]
    everywhere = ("stoker", "pip") if major and int(major) >= _FIRST_CUDA_ON_INDEX else ("pip",)
    for manager in (*managers, *everywhere):
        package = names.get(manager)
        if package and ("{cuda" not in package or cuda):
            package = package.replace("{cuda_major}", major).replace("{cuda}", cuda or "")
            return (table.manager[manager].replace("{}", package),)
    return ()
