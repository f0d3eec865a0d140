"""The first release of gcc with a standard or a header of C++, and what a header declares."""

from stoker.knowledge import Row, table


class _Features(Row, frozen=True, kw_only=True):
    standard: dict[str, int]
    header: dict[str, int]
    declares: dict[str, tuple[str, ...]]


_features = table("cxx_features", _Features)


def first_gcc(kind: str, name: str) -> int | None:
    """Return the first major version of gcc with a ``standard``, such as 20, or a ``header``."""
    features = _features()
    return (features.standard if kind == "standard" else features.header).get(name)


def declaring_header(name: str) -> str | None:
    """Return the standard header that declares a name, such as ``sort`` or ``std::sort``."""
    plain = name.removeprefix("std::")
    return next((header for header, names in _features().declares.items() if plain in names), None)
