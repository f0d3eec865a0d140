"""Reads what a command of a build is from its command line: role, source, output, identity.

Pure: what only files can tell (the size of a link's inputs, the words in a response file, which
version a compiler is) is asked of a ``Files`` that the caller hands in.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise, takewhile
from posixpath import basename, dirname, isabs, join, normpath
from typing import Protocol

from msgspec.structs import replace

from stoker.knowledge.compilers import collector_of, has_free_threads, keeps_linker
from stoker.knowledge.packages import named, names
from stoker.model.govern import Collector, Role, Step
from stoker.model.secrets import hide_in_word, is_secret, redact

_ENDS = ("&&", "||", "|", "&", ";")  # words after which a shell starts another command

_FORTRAN = (".f", ".for", ".ftn", ".f77", ".f90", ".f95", ".f03", ".f08")
_SUFFIXES = {
    Role.CUDA: (".cu",),
    Role.CXX: (".cc", ".cpp", ".cxx", ".c++", ".C", ".mm", ".hip"),
    Role.C: (".c", ".m", ".s", ".S"),
    Role.FORTRAN: (*_FORTRAN, *(suffix.upper() for suffix in _FORTRAN)),
    Role.RUST: (".rs",),
}
_LINKED = (".o", ".obj", ".a", ".so", ".lo")
# Options that name an output or a dependency file, and what they name.
_OUTPUTS = {
    "-o": "output",
    "--output-file": "output",
    "-MF": "dependencies",
    "-MT": "target",
    "-MQ": "target",
}
# `-ofile`, but not options of compilers that begin like it: -openmp, nvcc's -odir and -objtemp.
_JOINED_OUTPUT = re.compile(
    r"(-MF|-MT|-MQ|-o(?!(?:penmp|dir|ptf|bj[\w-]*)(?:=.*)?$))(.+)", re.DOTALL
)
_DEPENDENCIES = re.compile(r"-Wp,-MM?D,(.+)")
# Files that a linker writes beside its output.
_SIDE_FILE = re.compile(r"((?:-Wl,)?(?:-?-Map|--dependency-file)[=,])(.+)", re.DOTALL)
_SHORT = 16  # a value with fewer characters is no token
_FOLDERS = ("-I", "-L", "-isystem", "-iquote", "-idirafter", "-include")
_RESPONSE = ("--options-file", "-optf")
_GPU = ("-gencode", "--generate-code", "-arch", "--gpu-architecture", "-code", "--gpu-code")
_ARCH = re.compile(r"(?:sm|compute)_(\d+[af]?)")
# Folders that pip and uv create for each build, the name pip gives a source tree there, and
# what nvcc puts before the names of its temporary files.
_OF_PIP = re.compile(r"pip-[a-z-]+-.+", re.DOTALL)
_OF_UV = re.compile(r"builds-v\d+")
_HASHED = re.compile(r"_[0-9a-f]{32}(?=/|$)|tmpxft_[0-9a-f]+_[0-9a-f]+-\d+_")
# A word as a shell would read it, else a quotation mark or backslash that is never closed. Nothing
# in it is read twice, so that a response file takes time in proportion to its length.
# The repetition of alternatives is not possessive: Debian's Python 3.11.2 gets that wrong.
_WORD = re.compile(r"""(?:[^\s"'\\]++|\\.|"(?:[^"\\]++|\\.)*+"|'[^']*+')+|["'\\]""", re.DOTALL)
_QUOTED = re.compile(r"""\\.|"(?:[^"\\]++|\\.)*+"|'[^']*+'""", re.DOTALL)
_ESCAPED = re.compile(r"""\\(["\\])""")  # within double quotes
_OPEN = ('"', "'", "\\")  # a quotation mark or backslash without the rest
_MANY_WORDS = 1000
_ENTERING = re.compile(r"^(?:\s*(?::|cd\s+\S+)\s*&&)+\s*")  # how CMake begins custom commands
_TITLE = 120  # characters of a custom command that are shown and kept


class Files(Protocol):
    """What the file system knows. A missing file has no size, words or identity."""

    def size(self, path: str) -> int: ...

    def text(self, path: str) -> str: ...

    def identity(self, program: str) -> str:
        """Return a value that changes with the compiler's version."""
        ...


class NoFiles:
    """Knows no file, for callers that have only the command line."""

    def size(self, path: str) -> int:  # noqa: ARG002
        return 0

    def text(self, path: str) -> str:  # noqa: ARG002
        return ""

    def identity(self, program: str) -> str:  # noqa: ARG002
        return ""


class _Place:
    """The folder in which a command runs, and the root that paths are relative to."""

    def __init__(self, directory: str, root: str):
        self.directory = directory
        self._prefix = root.rstrip("/") + "/"
        # Only at the start of a path: a folder inside the tree may have the name of the root.
        self._root = re.compile(rf"(^-?[A-Za-z]*|[=,:;\s\"'(]){re.escape(self._prefix)}")

    def full(self, path: str) -> str:
        return normpath(path if isabs(path) else join(self.directory, path))

    def relative(self, path: str) -> str:
        """Return a path that does not depend on where the tree is: below the root or below a folder
        of pip.
        """
        return self.without_root(self.full(path)) if path else ""

    def without_root(self, text: str) -> str:
        if self._prefix != "/" and self._prefix in text:
            return self._root.sub(r"\1", text)
        return _lasting(text)


def build_folder(directory: str) -> str:
    """Return the name of a build folder; the same for every build that pip or uv make of it."""
    return _lasting(normpath(directory))


def _lasting(text: str) -> str:
    return _HASHED.sub("", _below_fresh(text))


def _below_fresh(text: str) -> str:
    """Return the part of a path below the last folder that is created for a single build."""
    parts = text.split("/")
    for index in range(len(parts) - 2, 0, -1):
        of_uv = parts[index].startswith(".tmp") and _OF_UV.fullmatch(parts[index - 1])
        if of_uv or _OF_PIP.fullmatch(parts[index]):
            return "/".join(parts[index + 1 :])
    return text


def step_of(
    command: Sequence[str],
    directory: str,
    root: str,
    files: Files | None = None,
    *,
    threads: int = 1,
) -> Step:
    """Return the step of a command. ``directory`` is where it runs; paths are relative to ``root``.

    ``threads`` is what nvcc was told: the launcher, who sees its environment too, knows.
    """
    place, files = _Place(directory, root), files or NoFiles()
    program, *words = _compiler_command(command) or [""]
    words = list(_expanded(words, place, files))
    named = dict(_named_outputs(words))
    sources = [word for word in words if _is_source(word)]
    role = _role(basename(program), sources)
    output = named.get("output") or _default_output(role, words)
    compiled = sources[0] if sources and role in _SUFFIXES else ""
    source = place.relative(compiled or output)
    flags = tuple(_flags(words, sources, place))
    identity = files.identity(program)
    # Options can be added only to a compiler that is started directly, not by a cache or a shell.
    direct = bool(command) and command[0] == program
    archs = tuple(dict.fromkeys(_archs(words))) if role is Role.CUDA else ()
    return Step(
        key=_key(role, source, basename(program), identity, *flags),
        role=role,
        source=source,
        output=output,
        directory=build_folder(directory),
        dependency_file=named.get("dependencies", ""),
        compiler=basename(program),
        flags=tuple(map(_shown, flags)),
        archs=archs,
        threads=threads if role is Role.CUDA else 1,
        input_bytes=_input_bytes(role, compiled, words, output, place, files),
        collector=_collector(role, identity, words) if direct else Collector.NONE,
    )


def _collector(role: Role, identity: str, words: Sequence[str]) -> Collector:
    """``identity`` begins with the real name of the compiler: cc may be a link to clang."""
    name = identity.partition(" ")[0]
    if role is Role.CUDA and name == "nvcc" and has_free_threads(words):
        return Collector.FREE
    if role in (Role.C, Role.CXX) and named("gcc").fullmatch(name):
        return collector_of(words)
    return Collector.NONE


def as_remote(step: Step) -> Step:
    """Return the step if a worker compiles it: what it takes here is something else."""
    return replace(step, role=Role.REMOTE, key=_key(Role.REMOTE, step.key))


def link_identity(command: Sequence[str], directory: str) -> str:
    """Return what identifies a link whose linker can be chosen: all its words but the inputs. Empty
    for any other command.
    """
    program, *words = _compiler_command(command) or [""]
    name = basename(program)
    direct = bool(command) and command[0] == program and named("drivers").fullmatch(name)
    compiles = any(_is_source(word) or word == "-c" for word in words)
    if not direct or compiles or keeps_linker(words):
        return ""
    kept = (w for before, w in pairwise([name, *words]) if before in _OUTPUTS or not _is_input(w))
    return _key(directory, name, *kept)


def compiler_words(text: str) -> tuple[str, ...]:
    """Return the words of the compile or link in a line of a build tool, without caches."""
    return tuple(_compiler_command(_compile_of(text)))


def moved(command: Sequence[str], folder: str) -> tuple[tuple[str, ...], str] | None:
    """Return the command with all files that it writes in another folder, and its output there;
    ``None`` if it does not name its output.
    """
    words, output, before = [], "", ""
    for word in command:
        option, value = _output_option(word)
        if option and value and _OUTPUTS[option] != "target":
            target = join(folder, basename(value))
            word = word.removesuffix(value) + target
        elif before in _OUTPUTS and _OUTPUTS[before] != "target":
            option, value, target = before, word, join(folder, basename(word))
            word = target
        elif found := _SIDE_FILE.fullmatch(word):
            word = found[1] + join(folder, basename(found[2]))
        if value and option and _OUTPUTS[option] == "output":
            output = target
        before = word if _output_option(word)[0] == word else ""
        words.append(word)
    return (tuple(words), output) if output else None


def custom_step(command: Sequence[str], directory: str, root: str) -> Step:
    """Return the step of a command that is not a compiler; its text is its source."""
    place = _Place(directory, root)
    text = command[-1] if "-c" in command[1:-1] else " ".join(command)
    text = place.without_root(_ENTERING.sub("", text))
    title = redact(text[: 10 * _TITLE])[:_TITLE]
    program = basename(command[0]) if command else ""
    return Step(key=_key(Role.OTHER, text), role=Role.OTHER, source=title, compiler=program)


def role_of_source(path: str) -> Role:
    """Return the role of a source file, by its suffix."""
    return next((role for role, ends in _SUFFIXES.items() if path.endswith(ends)), Role.OTHER)


def reads_files(command: Sequence[str], directory: str, knows: Callable[[str], bool]) -> bool:
    """Return whether telling the step may take time: it depends on files, or the command line is
    long. ``knows`` says whether a compiler, or the folder of a source, was looked at before: then
    another look takes microseconds.
    """
    program, *words = _compiler_command(command) or [""]
    if len(command) > _MANY_WORDS or not knows(program):
        return True
    return any(
        word.startswith("@")
        or word in _RESPONSE
        or (_is_input(word) and before not in _OUTPUTS)
        or (_is_source(word) and not knows(dirname(normpath(join(directory, word)))))
        for before, word in pairwise(["", *words])
    )


def _compiler_command(command: Sequence[str]) -> list[str]:
    """Return the compiler's own words, without those of a cache or of a shell around it."""
    if len(command) > 2 and basename(command[0]) in names("shells") and "-c" in command[1:-1]:
        command = _compile_of(command[-1]) or command
    wrappers = takewhile(lambda word: basename(word) in names("wrappers"), command[:-1])
    return list(command[sum(1 for _ in wrappers) :])


def _compile_of(text: str) -> list[str]:
    """Return the words of the first compile or link in a shell's text."""
    words = _split(text)
    before = takewhile(lambda word: not _is_compiler(basename(word)), words)
    return list(takewhile(lambda word: word not in _ENDS, words[sum(1 for _ in before) :]))


def _is_compiler(name: str) -> bool:
    matches = (named(group).fullmatch(name) for group in ("compilers", "linkers"))
    return any(matches) or name in names("back_ends")


def _expanded(words: Sequence[str], place: _Place, files: Files) -> Iterator[str]:
    """Return the words with response files replaced by their words, once for each file,
    not nested.
    """
    known = set()
    for before, word in pairwise(["", *words]):
        if before in _RESPONSE or (word.startswith("@") and len(word) > 1):
            path = place.full(word.removeprefix("@"))
            if path not in known:
                yield from _split(files.text(path))
            known.add(path)
        elif word not in _RESPONSE:
            yield word


def _split(text: str) -> list[str]:
    words = []
    for found in _WORD.finditer(text):
        if found[0] in _OPEN:  # as compilers do, read the rest of the file as if nothing was quoted
            return text.split()
        words.append(_unquoted(found[0]))
    return words


def _unquoted(word: str) -> str:
    if not any(mark in word for mark in "\"'\\"):
        return word
    return _QUOTED.sub(_content, word)


def _content(quoted: re.Match[str]) -> str:
    text = quoted[0]
    if text[0] == '"':
        return _ESCAPED.sub(r"\1", text[1:-1])
    return text[1:-1] if text[0] == "'" else text[1:]


def _role(compiler: str, sources: Sequence[str]) -> Role:
    if named("archivers").fullmatch(compiler):
        return Role.ARCHIVE
    if named("linkers").fullmatch(compiler):
        return Role.LINK
    if not _is_compiler(compiler):
        return Role.OTHER
    if ("nvcc" in compiler and sources) or compiler in ("cicc", "ptxas"):
        return Role.CUDA
    if not sources:
        return Role.LINK
    by_suffix = role_of_source(sources[0])
    if by_suffix is Role.C and ("++" in compiler or compiler == "cc1plus"):
        return Role.CXX
    return by_suffix


def _is_source(word: str) -> bool:
    return not word.startswith("-") and role_of_source(word) is not Role.OTHER


def _named_outputs(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    for word, following in pairwise([*words, ""]):
        option, value = _output_option(word)
        if option:
            yield _OUTPUTS[option], value or following
        elif found := _DEPENDENCIES.fullmatch(word):
            yield "dependencies", found[1]


def _output_option(word: str) -> tuple[str, str]:
    """Return the option and the value that is part of the same word: ``-ofile``, ``-MFfile``."""
    name, _, joined = word.partition("=")
    if name in _OUTPUTS:
        return name, joined
    found = _JOINED_OUTPUT.fullmatch(word)
    return (found[1], found[2]) if found else ("", "")


def _default_output(role: Role, words: Sequence[str]) -> str:
    if role is Role.ARCHIVE:
        return next((word for word in words if word.endswith((".a", ".lib"))), "")
    return "a.out" if role is Role.LINK else ""


def _flags(words: Sequence[str], sources: Sequence[str], place: _Place) -> Iterator[str]:
    """Return all other words that can change the output, independent of where the tree is."""
    before, known = "", frozenset(sources)
    for word in words:
        option, value = _output_option(word)
        if before in _OUTPUTS or option or word in known or word in ("-MD", "-MMD"):
            before = word if option and not value else ""
            continue
        if not _DEPENDENCIES.fullmatch(word) and not _is_input(word):
            yield _flag(word, before, place)
        before = word


def _flag(word: str, before: str, place: _Place) -> str:
    if before in _FOLDERS:
        return place.relative(word)
    for option in ("-I", "-L"):
        if word.startswith(option) and len(word) > len(option):
            return option + place.relative(word[len(option) :])
    return place.without_root(word)


def _shown(flag: str) -> str:
    """Return a flag in a form that the history and exported traces may keep."""
    name, equals, value = flag.partition("=")
    if not equals or (len(value) < _SHORT and not is_secret(name.removeprefix("-D"))):
        return flag
    return hide_in_word(flag)


def _is_input(word: str) -> bool:
    return not word.startswith("-") and word.endswith(_LINKED)


def _input_bytes(
    role: Role, compiled: str, words: Sequence[str], output: str, place: _Place, files: Files
) -> int:
    if compiled:
        return files.size(place.full(compiled))
    if role not in (Role.LINK, Role.ARCHIVE):
        return 0
    inputs = (word for word in words if _is_input(word) and word != output)
    return sum(files.size(place.full(word)) for word in inputs)


def _archs(words: Sequence[str]) -> Iterator[str]:
    for before, word in pairwise(["", *words]):
        if word.startswith(_GPU) or before in _GPU:
            yield from _ARCH.findall(word)


def _key(*parts: str) -> str:
    text = "\0".join(parts)
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:24]
