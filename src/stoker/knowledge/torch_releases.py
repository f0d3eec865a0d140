"""Releases of PyTorch, and the environment variables that its front ends pass to CMake."""

from functools import cache

from stoker.knowledge import Row, table
from stoker.model.value import minor_release, version_numbers


class TorchRelease(Row, frozen=True, kw_only=True):
    version: str  # "2.6"
    cuda_newest: str
    cuda_usual: str | None = None  # of the wheels for x86-64 on the usual package index
    python: tuple[str, str]  # oldest and newest
    gcc_min: int
    cmake_below: str | None = None
    macos: str | None = None  # the oldest that its wheels are built for
    cxx: int = 17  # the C++ standard that its headers need


class Forwarding(Row, frozen=True, kw_only=True):
    prefixes: tuple[str, ...]
    suffixes: tuple[str, ...]
    names: tuple[str, ...]
    aliases: dict[str, str]

    def variable(self, option: str) -> str | None:
        """Return the environment variable that sets a CMake option; ``None`` if there is none."""
        if alias := self.aliases.get(option):
            return alias
        passes = (
            option in self.names
            or option.startswith(self.prefixes)
            or option.endswith(self.suffixes)
        )
        return option if passes else None


class _FrontEnd(Row, frozen=True, kw_only=True):
    names: tuple[str, ...]


class _TorchTable(Row, frozen=True, kw_only=True):
    instead: dict[str, str]
    first: dict[str, str]
    wheel: dict[str, tuple[str, ...]]
    release: tuple[TorchRelease, ...]
    forwarding: Forwarding
    front_end: _FrontEnd


_torch_table = table("torch", _TorchTable)


def forwarding() -> Forwarding:
    return _torch_table().forwarding


def front_end_variables() -> tuple[str, ...]:
    return _torch_table().front_end.names


def instead_of() -> dict[str, str]:
    """Return the variables of guides that no release reads, and what to set instead."""
    return _torch_table().instead


def first_releases() -> dict[str, str]:
    """Return the first release of PyTorch that compiles for a GPU architecture."""
    return _torch_table().first


def wheel_targets() -> dict[str, tuple[str, ...]]:
    """Return the machine code of the official wheels by the major version of their CUDA."""
    return _torch_table().wheel


@cache
def torch_releases() -> dict[str, TorchRelease]:
    return {row.version: row for row in _torch_table().release}


@cache
def oldest_python() -> str:
    """Return the oldest Python that any known release of PyTorch supports."""
    oldest = (row.python[0] for row in _torch_table().release)
    return min(oldest, key=version_numbers)


@cache
def newest_python() -> str:
    """Return the newest Python that any known release of PyTorch supports."""
    return max((row.python[1] for row in _torch_table().release), key=version_numbers)


def torch_release(version: str | None) -> TorchRelease | None:
    """Return the release of a version such as ``2.6.0a0+git1234``."""
    return torch_releases().get(minor_release(version or ""))
