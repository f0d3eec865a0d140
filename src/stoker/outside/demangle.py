"""Translates mangled C++ names with the C++ library of this machine, if it has one."""

import ctypes
import re
from collections.abc import Callable
from functools import cache
from math import inf

_LIBRARY = "libstdc++.so.6"
# A bound on the characters that a name may become: 270 can stand for a gigabyte, because a part
# may repeat an earlier one, which repeats an earlier one. Two of 100 names of PyTorch exceed it.
_MOST = 16 << 20
_REPEATED = re.compile(r"[ST][0-9A-Z]*_")
_MOST_REPEATED = 64
_GROWTH = 1.45  # by each repetition: the most is e ** (1 / e), when each part repeats e others


def demangled(name: str) -> str:
    """Return a C++ name as it is in a source file; any other name, or one that would become very
    long, as it is.
    """
    translate = _translator()
    if translate is None or not name.startswith("_Z") or _longest(name) > _MOST:
        return name
    return translate(name) or name


def _longest(name: str) -> float:
    """Return a bound on the length of a demangled name; each pack can repeat the whole of it."""
    repeated, packs = len(_REPEATED.findall(name)), name.count("Dp")
    if repeated + packs > _MOST_REPEATED:
        return inf
    return float(len(name) ** (1 + packs) * _GROWTH**repeated)


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
