"""Features and BLAS libraries: the names people use and the CMake names behind them."""

from functools import cache

from stoker.knowledge import Row, table
from stoker.model.variant import Backend


class FeatureRow(Row, frozen=True, kw_only=True):
    name: str
    help: str
    option: str  # of CMake
    backends: tuple[Backend, ...] = ()
    library: str | None = None
    python_package: str | None = None
    needs: str | None = None  # another feature, which must not be switched off
    submodule: str | None = None  # a copy inside the tree that serves instead of the library


class BlasRow(Row, frozen=True, kw_only=True):
    name: str
    value: str
    vendor: str | None = None
    library: str | None = None
    families: tuple[str, ...] = ()
    systems: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()


class _FeatureTable(Row, frozen=True, kw_only=True):
    feature: tuple[FeatureRow, ...]
    blas: tuple[BlasRow, ...]


_feature_table = table("features", _FeatureTable)


@cache
def features() -> dict[str, FeatureRow]:
    return {row.name: row for row in _feature_table().feature}


@cache
def blas_libraries() -> dict[str, BlasRow]:
    return {row.name: row for row in _feature_table().blas}
