"""CUDA toolkits: what each release can make and which host compilers it accepts."""

from functools import cache

from stoker.knowledge.loader import Row, load


class CudaRelease(Row, frozen=True, kw_only=True):
    version: str
    archs: tuple[str, ...]
    gcc_max: int
    clang_below: int
    driver: int
    checked: bool = True


class _Table(Row, frozen=True, kw_only=True):
    toolkit: tuple[CudaRelease, ...]


@cache
def cuda_releases() -> dict[str, CudaRelease]:
    return {release.version: release for release in load("cuda", _Table).toolkit}


@cache
def cuda_archs() -> tuple[str, ...]:
    """Every architecture that any release makes."""
    return tuple(dict.fromkeys(arch for row in cuda_releases().values() for arch in row.archs))
