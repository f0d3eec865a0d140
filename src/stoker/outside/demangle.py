"""Translates mangled C++ names with the C++ library of this machine, if it has one."""

import ctypes
from collections.abc import Callable
from functools import cache

_LIBRARY = "libstdc++.so.6"
_LONGEST = 16 << 10  # characters; demangling takes time that grows with the length


def demangled(name: str) -> str:
    """Return a C++ name as it is in a source file; any other name as it is."""
    translate = _translator()
    if translate is None or not name.startswith("_Z") or len(name) > _LONGEST:
        return name
    return translate(name) or name


@cache
def _translator() -> Callable[[str], str | None] | None:
    try:
        library, process = ctypes.CDLL(_LIBRARY), ctypes.CDLL(None)
        translate, free = library.__cxa_demangle, process.free
    except (OSError, AttributeError):
        return None
    translate.restype, free.argtypes, free.restype = ctypes.c_void_p, [ctypes.c_void_p], None

    def translated(name: str) -> str | None:
        status = ctypes.c_int()
        made = translate(name.encode(errors="replace"), None, None, ctypes.byref(status))
        if not made:
            return None
        try:
            return (ctypes.string_at(made) or b"").decode(errors="replace")
        finally:
            free(made)

    return translated
