"""Makes one folder, laid out as tools expect it, out of unpacked wheels.

Stubs are libraries to link with if the driver is not installed: all functions of the headers,
empty. A program linked with one finds the real library, by the same soname, when it runs.
"""

import re
from collections.abc import Iterable
from pathlib import Path

from stoker.builds.toolchains.request import ToolchainRequest
from stoker.knowledge.toolchains import Stub
from stoker.outside import process

INFORMATION = "share/dist-info"  # licences, names and versions of the packages it is made of
_COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
# What cuda.h makes of a function where each thread has a default stream of its own.
_PER_THREAD = re.compile(r"__CUDA_API_(PTDS|PTSZ)\((\w+)\)", re.ASCII)


def make_stub(home: Path, stub: Stub, *, compiler: str, work: Path) -> None:
    """Compile it, if the headers are there at all."""
    headers = [home / "include" / name for name in stub.headers]
    texts = [path.read_text("utf-8", "replace") for path in headers if path.exists()]
    if not texts:
        return
    source, library = work / "stub.c", home / stub.library
    names = functions(stub.prefix, texts)
    source.write_text("".join(f"void {name}(void) {{}}\n" for name in names), "utf-8")
    library.parent.mkdir(parents=True, exist_ok=True)
    shared = ("-shared", "-fPIC", "-nostdlib", f"-Wl,-soname,{stub.soname}")
    process.check([compiler, "-x", "c", *shared, source, "-o", library], timeout=60)


def functions(prefix: str, headers: Iterable[str]) -> list[str]:
    """Return all functions that a program with these headers may call, sorted. A few names too many
    are harmless; types, recognised by their suffix, are left out.
    """
    names: set[str] = set()
    for header in headers:
        code = _COMMENT.sub(" ", header)
        names.update(re.findall(rf"\b{prefix}[A-Z]\w*", code, re.ASCII))
        names.update(f"{name}_{way.lower()}" for way, name in _PER_THREAD.findall(code))
    return sorted(name for name in names if not name.endswith(("_t", "_st")))


def assemble(unpacked: Path, home: Path, request: ToolchainRequest) -> None:
    """Move everything of use from ``unpacked`` to ``home``; both are on one file system."""
    row = request.row
    for pattern, place in row.trees:
        for tree in sorted(unpacked.glob(request.filled(pattern))):
            merge_trees(tree, home / place)
    for information in unpacked.glob("*.dist-info"):
        merge_trees(information, home / INFORMATION / information.name)
    for folder in row.sonames:
        link_sonames(home / folder)
    for link, goal in row.links.items():
        _link(home / link, goal)


def merge_trees(source: Path, target: Path) -> None:
    """Move a file or folder; where folders meet they become one, and a file in place stays."""
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)
    elif source.is_dir() and target.is_dir():
        for child in source.iterdir():
            merge_trees(child, target / child.name)


def link_sonames(folder: Path) -> None:
    """Give each ``libx.so.1`` its ``libx.so``, which wheels, being zip files, cannot hold."""
    for library in sorted(folder.glob("*.so.*")):
        bare = library.name.partition(".so.")[0]
        _link(library.with_name(f"{bare}.so"), library.name)


def _link(link: Path, goal: str) -> None:
    if not link.is_symlink() and not link.exists() and link.parent.is_dir():
        link.symlink_to(goal)
