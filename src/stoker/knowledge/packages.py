"""The commands that install missing tools and libraries, by distribution.

The names of packages are in packages.toml, the managers of distributions in package_managers.toml.
"""

from collections.abc import Iterable

from stoker.knowledge import Row, table
from stoker.model.machine import OperatingSystem
from stoker.model.shell import ShellScript, Template, fill, outside

_FIRST_NVCC_ON_INDEX = 13  # the wheels of earlier toolkits hold no nvcc
_FIRST_CUDA_ON_INDEX = 12  # some of NVIDIA's libraries have no wheels for earlier toolkits


class _Managers(Row, frozen=True, kw_only=True):
    manager: dict[str, Template]
    distribution: dict[str, str]
    gcc: dict[str, tuple[int, ...]]


_managers = table("package_managers", _Managers)
_packages = table("packages", dict[str, dict[str, Template]])


def install_command(
    what: str, system: OperatingSystem, cuda: str | None = None
) -> tuple[ShellScript, ...]:
    """Return the command that installs something; nothing if no package is known."""
    names = _packages().get(what, {})
    manager = system_manager(system)
    major = int((cuda or "0").partition(".")[0])
    everywhere = ("stoker", "pip") if major >= _FIRST_NVCC_ON_INDEX else ("pip",)
    for each in (manager, *everywhere):
        package = names.get(each or "")
        if package and ("{cuda" not in package or major >= _FIRST_CUDA_ON_INDEX):
            versions = {"cuda_major": outside(str(major)), "cuda": outside(cuda or "")}
            if packages := fill(package, versions):
                command = fill(managers()[each or ""], {"packages": packages})
                return (command,) if command else ()
    return ()


def packages_of(what: str, manager: str) -> list[str]:
    """Return the packages in which a package manager has something; empty if it has none."""
    return _packages().get(what, {}).get(manager, "").split()


def managers() -> dict[str, Template]:
    """Return the command of each package manager, with ``{packages}``."""
    return _managers().manager


def system_manager(system: OperatingSystem) -> str | None:
    """Return the package manager of an operating system."""
    names = (system.id, *system.like) if system.system == "linux" else (system.system,)
    return next((known for name in names if (known := _managers().distribution.get(name))), None)


def gcc_versions(system: OperatingSystem) -> tuple[int, ...]:
    """Return the major versions of g++ that this release of a distribution has as packages."""
    return _managers().gcc.get(f"{system.id}-{system.version}", ())


def fitting_gcc(
    available: Iterable[int], *, least: int | None = None, most: int | None = None
) -> int | None:
    """Return the oldest of these versions from ``least``, or the newest up to ``most``."""
    if least is not None:
        return min((version for version in available if version >= least), default=None)
    return max((version for version in available if most and version <= most), default=None)
