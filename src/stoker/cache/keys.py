"""What a run adds to the keys of its cache, because the engines themselves do not look at it.

ccache remembers which headers a compile has read, not where the compiler looked for them in vain.
So a header that is added earlier in the search path, or that makes `__has_include` true, would not
be noticed. The names of the project's headers are therefore part of the key of ccache's direct
mode: after one is added or removed, ccache compares what the preprocessor prints.
"""

import os
import sys
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from stoker.cache.chains import CompilerKeys, NamedHeaders
from stoker.outside.folders import cache, own
from stoker.outside.looking import exists, find_program

_ROOTS = (".git", "stoker.toml")  # what the root folder of a project holds
# What build folders, environments and caches hold, and no folder of sources.
_BUILD_FILES = frozenset({"CMakeCache.txt", "build.ninja", "pyvenv.cfg", "CACHEDIR.TAG"})
_OTHER_FOLDERS = frozenset({"__pycache__", "node_modules"})
# What is included: headers, and sources too. Some headers of C++ have no suffix.
_SUFFIXES = (
    *(".h", ".hh", ".hpp", ".hxx", ".h++", ".H", ".cuh", ".icc", ".inc", ".inl", ".ipp", ".ixx"),
    *(".tcc", ".tpp", ".txx", ".def", ".c", ".cc", ".cpp", ".cxx", ".c++", ".C", ".cu", ".hip"),
    *(".s", ".S"),
)
_MOST_ENTRIES = 400_000
_COMPILER_KEY = Path(__file__).parent / "inside" / "compiler_key.py"


def project_folder(start: Path) -> Path:
    """Return the nearest folder that is the root of a project, or else ``start``. A build folder of
    CMake names its sources.
    """
    if exists(start / "CMakeCache.txt"):
        from stoker.source.cmake_api import cmake_sources  # a run elsewhere starts without it

        start = cmake_sources(start) or start
    for folder in (start, *start.parents):
        if any(exists(folder / name) for name in _ROOTS):
            return folder
    return start


def header_names(
    tree: Path, most: int = _MOST_ENTRIES, without: Collection[Path] = ()
) -> NamedHeaders | None:
    """Return the names of the files below a folder that may be included; ``None`` if there are too
    many entries to look at. Build folders, hidden folders, caches, those ``without``
    and what .gitignore names are left out, since builds generate files there.
    """
    try:
        from _blake2 import blake2b  # the same as in hashlib, which loads OpenSSL: 4 ms
    except ImportError:  # not CPython
        from hashlib import blake2b

    ignored = _Ignored(tree)
    found = blake2b(digest_size=12)
    folders = [""]
    entries = 0
    while folders:
        here = folders.pop()
        if tree / here in without:
            continue
        names, inner = _listed(tree, here, ignored)
        entries += len(names) + len(inner)
        if entries > most:
            return None
        folders += inner
        if names:
            found.update("\0".join([f"{here}/", *names, ""]).encode(errors="surrogateescape"))
    return NamedHeaders(tree=os.path.realpath(tree), digest=found.hexdigest())


def own_folders(environment: Mapping[str, str]) -> frozenset[Path]:
    """Return the folders of stoker and ccache, which may be in a project and change often."""
    ccache = environment.get("CCACHE_DIR")
    return frozenset([*own(), *([Path(ccache).absolute()] if ccache else [])])


def _listed(tree: Path, here: str, ignored: "_Ignored") -> tuple[list[str], list[str]]:
    """Return the names of a folder's files that count, and the paths of its folders, sorted."""
    files, folders = [], []
    try:
        with os.scandir(tree / here) as entries:
            for entry in entries:
                name = entry.name
                if entry.is_dir(follow_symlinks=False):
                    folders.append(name)
                elif here and name in _BUILD_FILES:
                    return [], []
                elif name.endswith(_SUFFIXES) or "." not in name or entry.is_symlink():
                    files.append(name)
    except OSError:
        return [], []
    start = f"{here}/" if here else ""
    return (
        sorted(name for name in files if not ignored.names(f"{start}{name}")),
        sorted(
            (
                f"{start}{name}"
                for name in folders
                if name[0] != "." and name not in _OTHER_FOLDERS
                if not ignored.names(f"{start}{name}")
            ),
            reverse=True,
        ),
    )


class _Ignored:
    """The patterns of a tree's .gitignore. Those that start with "!" keep a file, wherever they
    are: a file that counts in vain costs time only.
    """

    def __init__(self, tree: Path):
        try:
            lines = (tree / ".gitignore").read_text(errors="replace").splitlines()
        except OSError:
            lines = []
        rules = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        self._kept = [rule[1:].strip("/") for rule in rules if rule.startswith("!")]
        left_out = [rule.rstrip("/") for rule in rules if not rule.startswith("!")]
        self._paths = [rule.lstrip("/") for rule in left_out if "/" in rule]
        self._plain = frozenset(rule for rule in self._paths if not _is_pattern(rule))
        self._patterns = [rule for rule in self._paths if _is_pattern(rule)]
        self._names = [rule for rule in left_out if "/" not in rule]

    def names(self, path: str) -> bool:
        """Return whether a path is left out."""
        name = path.rpartition("/")[2]
        ignored = (
            path in self._plain
            or any(fnmatchcase(name, rule) for rule in self._names)
            or any(fnmatchcase(path, rule) for rule in self._patterns)
        )
        return ignored and not any(
            fnmatchcase(path, rule) or fnmatchcase(name, rule) for rule in self._kept
        )


def _is_pattern(rule: str) -> bool:
    return any(sign in rule for sign in "*?[")


def compiler_keys() -> CompilerKeys:
    """Return where the keys of compilers are kept, which launcher/keys.c reads."""
    return CompilerKeys(
        folder=str(cache() / "compilers"), program=str(_COMPILER_KEY), python=sys.executable
    )


def assembler(environment: Mapping[str, str]) -> str | None:
    """Return the assembler that gcc finds on the PATH."""
    return find_program("as", environment)
