"""The commands that install missing tools and libraries, by distribution."""

from functools import cache

from stoker.knowledge import Row, load
from stoker.model.machine import OperatingSystem

_FIRST_NVCC_ON_INDEX = 13  # the wheels of earlier toolkits hold no nvcc
_FIRST_CUDA_ON_INDEX = 12  # some of NVIDIA's libraries have no wheels for earlier toolkits


class _Table(Row, frozen=True, kw_only=True):
    manager: dict[str, str]
    distribution: dict[str, str]
    gcc: dict[str, tuple[int, ...]]
    package: dict[str, dict[str, str]]


@cache
def _table() -> _Table:
    return load("packages", _Table)


def install_command(what: str, system: OperatingSystem, cuda: str | None = None) -> tuple[str, ...]:
    """Return the command that installs something; nothing if no package is known."""
    table = _table()
    names = table.package.get(what, {})
    families = (system.id, *system.like) if system.system == "linux" else (system.system,)
    managers = [table.distribution[family] for family in families if family in table.distribution]
    major = int((cuda or "0").partition(".")[0])
    everywhere = ("stoker", "pip") if major >= _FIRST_NVCC_ON_INDEX else ("pip",)
    for manager in (*managers, *everywhere):
        package = names.get(manager)
        if package and ("{cuda" not in package or major >= _FIRST_CUDA_ON_INDEX):
            package = package.replace("{cuda_major}", str(major)).replace("{cuda}", cuda or "")
            return (table.manager[manager].replace("{}", package),)
    return ()


def gcc_versions(system: OperatingSystem) -> tuple[int, ...]:
    """Return the major versions of g++ that this release of a distribution has as packages."""
    return _table().gcc.get(f"{system.id}-{system.version}", ())
