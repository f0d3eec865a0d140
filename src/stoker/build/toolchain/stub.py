"""A library to link with where the CUDA driver is not: every function of its headers, all empty.

The program it is linked into finds the real library by the same soname when it runs.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from stoker.knowledge.toolchains import Stub
from stoker.outside import process

_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_FUNCTION = re.compile(r"\bcu[A-Z]\w*", re.ASCII)
# What cuda.h makes of a function where each thread has a default stream of its own.
_PER_THREAD = re.compile(r"__CUDA_API_(PTDS|PTSZ)\((cu[A-Z]\w*)\)", re.ASCII)


def make_stub(home: Path, stub: Stub, *, compiler: str, work: Path) -> None:
    headers = [home / "include" / name for name in stub.headers]
    texts = [path.read_text("utf-8", "replace") for path in headers if path.exists()]
    source, library = work / "stub.c", home / stub.library
    source.write_text("".join(f"void {name}(void) {{}}\n" for name in functions(texts)), "utf-8")
    library.parent.mkdir(parents=True, exist_ok=True)
    shared = ("-shared", "-fPIC", "-nostdlib", f"-Wl,-soname,{stub.soname}")
    process.check([compiler, "-x", "c", *shared, source, "-o", library], timeout=60)


def functions(headers: Iterable[str]) -> list[str]:
    """Every driver function that a program using these headers may refer to, sorted."""
    names: set[str] = set()
    for header in headers:
        code = _COMMENT.sub(" ", header)
        names.update(_FUNCTION.findall(code))
        names.update(f"{name}_{way.lower()}" for way, name in _PER_THREAD.findall(code))
    return sorted(names)
