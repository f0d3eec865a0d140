"""CUDA releases: their targets, host compilers and drivers."""

from collections.abc import Iterable
from functools import cache

from stoker.knowledge import Row, load
from stoker.model.artifact import Compression


class CudaRelease(Row, frozen=True, kw_only=True):
    version: str
    archs: tuple[str, ...]
    gcc_max: int
    clang_below: int
    driver: int
    checked: bool = True


class _Toolkits(Row, frozen=True, kw_only=True):
    toolkit: tuple[CudaRelease, ...]


class _DeviceCode(Row, frozen=True, kw_only=True):
    driver: dict[Compression, str]


@cache
def cuda_releases() -> dict[str, CudaRelease]:
    """Return the known releases by version, oldest first."""
    return {release.version: release for release in load("cuda", _Toolkits).toolkit}


@cache
def cuda_archs() -> tuple[str, ...]:
    """Return every architecture that any release makes."""
    return tuple(dict.fromkeys(arch for row in cuda_releases().values() for arch in row.archs))


@cache
def _drivers() -> dict[Compression, str]:
    return load("device_code", _DeviceCode).driver


def oldest_driver(compressions: Iterable[Compression]) -> str | None:
    """Return the oldest driver that unpacks all of these; None if any driver does."""
    drivers = [_drivers()[kind] for kind in compressions if kind in _drivers()]
    return max(
        drivers, key=lambda version: [int(part) for part in version.split(".")], default=None
    )
