"""The variables that the CMake of this machine knows by itself."""

from itertools import product

from stoker.model.errors import StokerError
from stoker.model.machine import Tool
from stoker.outside import process

_LANGUAGES = ("C", "CXX", "CUDA", "HIP")
_CONFIGURATIONS = ("DEBUG", "RELEASE", "RELWITHDEBINFO", "MINSIZEREL")


def read_cmake_variables(cmake: Tool | None) -> frozenset[str]:
    """Names with ``<LANG>`` and ``<CONFIG>`` written out; none where there is no working CMake."""
    if cmake is None or cmake.problem:
        return frozenset()
    try:
        listed = process.check([cmake.path, "--help-variable-list"], timeout=10)
    except StokerError:
        return frozenset()
    return frozenset(name for line in listed.splitlines() for name in _written_out(line.strip()))


def _written_out(name: str) -> list[str]:
    names = [
        name.replace("<LANG>", language).replace("<CONFIG>", configuration)
        for language, configuration in product(_LANGUAGES, _CONFIGURATIONS)
    ]
    return [name for name in dict.fromkeys(names) if name and "<" not in name]
