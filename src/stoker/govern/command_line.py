"""What a command of a build is, as its command line shows it: role, source, output, identity.

Pure but for one question, the size of a link's inputs, which the caller hands in.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from posixpath import basename, isabs, join, normpath, relpath

from stoker.model.govern import Role, Step

_COMPILERS = re.compile(
    r"(?:.*-)?(?:cc|c\+\+|gcc|g\+\+|clang|clang\+\+|icx|icpx|nvcc|hipcc)(?:-[\d.]+)?"
)
_ARCHIVERS = re.compile(r"(?:.*-)?(?:ar|ranlib|gcc-ar|llvm-ar)(?:-[\d.]+)?")
_LINKERS = re.compile(r"(?:.*-)?(?:ld|ld\.\w+|mold)")
_CUDA = (".cu",)
_CXX = (".cc", ".cpp", ".cxx", ".c++", ".C", ".mm", ".hip")
_C = (".c", ".m", ".s", ".S")
_LINKED = (".o", ".obj", ".a", ".so", ".lo")
# Options whose value, a word of its own, names what is made or where it is noted down.
_NAMES_OUTPUT = {"-o", "-MF", "-MT", "-MQ", "--output-file", "-Wp,-MD"}
_ARCH = re.compile(r"(?:sm|compute)_(\d+[af]?)")

SizeOf = Callable[[str], int]


def step_of(
    command: Sequence[str], directory: str, root: str, size_of: SizeOf = lambda _: 0
) -> Step:
    """``directory`` is where the command runs, ``root`` what paths are told relative to."""
    words = list(command)
    compiler = basename(words[0]) if words else ""
    outputs = dict(_named_outputs(words))
    sources = [word for word in words[1:] if _is_source(word)]
    role = _role(compiler, sources)
    output = _relative(outputs.get("-o", ""), directory, root)
    source = _relative(sources[0], directory, root) if sources and role in _COMPILES else output
    flags = tuple(_flags(words[1:], sources, directory, root))
    archs = tuple(dict.fromkeys(_ARCH.findall(" ".join(words)))) if role is Role.CUDA else ()
    return Step(
        key=_key(role, source, compiler, flags),
        role=role,
        source=source,
        output=outputs.get("-o", ""),
        dependency_file=outputs.get("-MF", ""),
        compiler=compiler,
        flags=flags,
        archs=archs,
        threads=_threads(words) if role is Role.CUDA else 1,
        input_bytes=_input_bytes(words, directory, size_of) if role is Role.LINK else 0,
    )


_COMPILES = (Role.C, Role.CXX, Role.CUDA)


def _role(compiler: str, sources: Sequence[str]) -> Role:
    if _ARCHIVERS.fullmatch(compiler):
        return Role.ARCHIVE
    if _LINKERS.fullmatch(compiler):
        return Role.LINK
    if not _COMPILERS.fullmatch(compiler):
        return Role.OTHER
    if not sources:
        return Role.LINK
    if compiler.startswith("nvcc") or sources[0].endswith(_CUDA):
        return Role.CUDA
    if sources[0].endswith(_C) and "++" not in compiler:
        return Role.C
    return Role.CXX


def _is_source(word: str) -> bool:
    return not word.startswith("-") and word.endswith((*_CUDA, *_CXX, *_C))


def _named_outputs(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for word, value in zip(words, [*words[1:], ""], strict=True):
        if word in ("-o", "--output-file"):
            yield "-o", value
        elif word == "-MF":
            yield "-MF", value
        elif word.startswith("-o") and len(word) > 2 and word != "-openmp":
            yield "-o", word[2:]


def _flags(
    words: Sequence[str], sources: Sequence[str], directory: str, root: str
) -> Iterator[str]:
    """Everything that can change what is made, wherever the build folder lies."""
    skip = False
    for word in words:
        if skip or word in sources or word in ("-MD", "-MMD"):
            skip = False
        elif word in _NAMES_OUTPUT:
            skip = True
        elif word.startswith(("-I", "-L")) and len(word) > 2:
            yield word[:2] + _relative(word[2:], directory, root)
        elif not word.startswith("-") and word.endswith(_LINKED):
            continue
        else:
            yield word


def _threads(words: Sequence[str]) -> int:
    for word, value in zip(words, [*words[1:], ""], strict=True):
        name, _, joined = word.partition("=")
        if name in ("--threads", "-t") and (joined or value).isdigit():
            return int(joined or value)
    return 1


def _input_bytes(words: Sequence[str], directory: str, size_of: SizeOf) -> int:
    inputs = (word for word in words[1:] if not word.startswith("-") and word.endswith(_LINKED))
    return sum(size_of(word if isabs(word) else join(directory, word)) for word in inputs)


def _relative(path: str, directory: str, root: str) -> str:
    if not path:
        return ""
    full = normpath(path if isabs(path) else join(directory, path))
    inside = full == root or full.startswith(root.rstrip("/") + "/")
    return relpath(full, root) if inside else full


def _key(role: Role, source: str, compiler: str, flags: tuple[str, ...]) -> str:
    text = "\0".join((role.value, source, compiler, *flags))
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:24]
