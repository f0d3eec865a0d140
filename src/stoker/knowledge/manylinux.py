"""manylinux tags: which symbol versions and system libraries each of them promises."""

from collections.abc import Mapping
from fnmatch import fnmatchcase

from stoker.knowledge import Row, table
from stoker.model.value import version_numbers


class PlatformPolicy(Row, frozen=True, kw_only=True):
    """``newest``: of each machine, the newest version of each series of symbols."""

    name: str
    aliases: tuple[str, ...] = ()
    newest: dict[str, dict[str, str]]


class _ManylinuxTable(Row, frozen=True, kw_only=True):
    loaders: tuple[str, ...]
    libraries: dict[str, tuple[str, ...]]
    policy: tuple[PlatformPolicy, ...]


_manylinux_table = table("manylinux", _ManylinuxTable)


def policies() -> tuple[PlatformPolicy, ...]:
    """Return the policies, oldest first: a wheel that runs on one runs on all later ones."""
    return _manylinux_table().policy


def excess(policy: PlatformPolicy, machine: str, versions: Mapping[str, str]) -> dict[str, str]:
    """Return the required versions that the tag does not promise."""
    promised = policy.newest.get(machine, {})
    series = {name for row in policies() for name in row.newest.get(machine, {})}
    return {
        name: version
        for name, version in versions.items()
        if name in series and version_numbers(version) > version_numbers(promised.get(name, ""))
    }


def oldest_policy(machine: str, versions: Mapping[str, str]) -> PlatformPolicy | None:
    """Return the first tag that promises all required versions on that machine."""
    able = (policy for policy in policies() if machine in policy.newest)
    return next((policy for policy in able if not excess(policy, machine, versions)), None)


def is_system_library(name: str) -> bool:
    """Return whether some manylinux tag lets a wheel use that library of the system."""
    table = _manylinux_table()
    return any(name in names for names in table.libraries.values()) or any(
        fnmatchcase(name, pattern) for pattern in table.loaders
    )
