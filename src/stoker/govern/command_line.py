"""Reads what a command of a build is from its command line: role, source, output, identity.

Pure: what only files can tell (the size of a link's inputs, the words in a response file, which
version a compiler is) is asked of a ``Files`` that the caller hands in.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import pairwise, takewhile
from posixpath import basename, dirname, isabs, join, normpath
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from stoker.knowledge.compiler_modes import collector_of, has_free_threads, keeps_linker
from stoker.knowledge.tools import named, names
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
# `-ofile`, but not options of compilers that begin like it: -openmp, nvcc's -odir and -objtemp.
_JOINED_OUTPUT = re.compile(
    r"(-MF|-MT|-MQ|-o(?!(?:penmp|dir|ptf|bj[\w-]*)(?:=.*)?$))(.+)", re.DOTALL
)
_DEPENDENCIES = re.compile(r"-Wp,-MM?D,(.+)")
# Files that a linker writes beside its output.
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
# The commands of a build have most words in common, so what was read of them is remembered: so many
# words, and so many lists of options.
_WORDS_KEPT = 1 << 14
_LISTS_KEPT = 256

_Settings = tuple[str | None, ...]


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
        """Return a word whose paths do not depend on where the tree is."""
        if self._prefix != "/" and self._prefix in text:
            return self._root.sub(r"\1", text)
        return _lasting(text)


@lru_cache(_LISTS_KEPT)
def _place(directory: str, root: str) -> _Place:
    return _Place(directory, root)


@lru_cache(_LISTS_KEPT)
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
    place, files = _place(directory, root), files or NoFiles()
    program, *words = _compiler_command(command) or [""]
    special = _special(words)
    if any(_read(words[at]).is_response for at in special):
        words = list(_expanded(words, place, files))
        special = _special(words)
    named = dict(_named_outputs(words, special))
    sources = [words[at] for at in special if _read(words[at]).is_source]
    role = _role(basename(program), sources)
    output = named.get("output") or _default_output(role, words)
    compiled = sources[0] if sources and role in _SUFFIXES else ""
    source = place.relative(compiled or output)
    settings = _settings(words, special)
    flags, shown = _flags(settings, place)
    identity = files.identity(program)
    # Options can be added only to a compiler that is started directly, not by a cache or a shell.
    direct = bool(command) and command[0] == program
    return Step(
        key=_key(role, source, basename(program), identity, *flags),
        role=role,
        source=source,
        output=output,
        directory=build_folder(directory),
        dependency_file=named.get("dependencies", ""),
        compiler=basename(program),
        flags=shown,
        archs=_archs(settings) if role is Role.CUDA else (),
        threads=threads if role is Role.CUDA else 1,
        input_bytes=_input_bytes(role, compiled, words, output, place, files),
        collector=_collector(role, identity, settings) if direct else Collector.NONE,
    )


@lru_cache(_LISTS_KEPT)
def _collector(role: Role, identity: str, settings: _Settings) -> Collector:
    """``identity`` begins with the real name of the compiler: cc may be a link to clang."""
    name = identity.partition(" ")[0]
    words = [word for word in settings if word is not None]
    if role is Role.CUDA and name == "nvcc" and has_free_threads(words):
        return Collector.FREE
    if role in (Role.C, Role.CXX) and named("gcc").fullmatch(name):
        return collector_of(words)
    return Collector.NONE


def as_remote(step: Step) -> Step:
    """Return the step if a worker compiles it: what it takes here is something else."""
    return replace(step, role=Role.REMOTE, key=_key(Role.REMOTE, step.key))


def has_free_linker(command: Sequence[str]) -> bool:
    """Return whether a command is a link whose linker can be chosen."""
    program, *words = _compiler_command(command) or [""]
    name = basename(program)
    if not command or command[0] != program or not named("drivers").fullmatch(name):
        return False
    return not keeps_linker(words) and not any(_read(w).is_source or w == "-c" for w in words)


def compiler_words(text: str) -> tuple[str, ...]:
    """Return the words of the compile or link in a line of a build tool, without caches."""
    return tuple(_compiler_command(_compile_of(text)))


def custom_step(command: Sequence[str], directory: str, root: str) -> Step:
    """Return the step of a command that is not a compiler; its text is its source."""
    place = _place(directory, root)
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
        read.is_response
        or (read.is_input and (at == 0 or words[at - 1] not in _outputs()))
        or (read.is_source and not knows(dirname(normpath(join(directory, words[at])))))
        for at, read in ((at, _read(words[at])) for at in _special(words))
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


class _Word(NamedTuple):
    """What a word says by itself."""

    is_source: bool
    is_input: bool  # of a link
    is_response: bool  # it names or announces a response file
    option: str  # that names an output, or empty
    value: str  # of that option, if it is part of the same word: ``-ofile``, ``-MFfile``
    dependencies: str  # the file that it names for the list of headers, or empty
    is_setting: bool  # it is none of these, so it can change the output


@cache
def _outputs() -> dict[str, str]:
    """Return the options that name an output or a dependency file, and what they name."""
    return {
        **dict.fromkeys(names("outputs"), "output"),
        **dict.fromkeys(names("header_lists"), "dependencies"),
        "-MT": "target",
        "-MQ": "target",
    }


@lru_cache(_WORDS_KEPT)
def _read(word: str) -> _Word:
    path = not word.startswith("-")
    name, _, value = word.partition("=")
    option = name if name in _outputs() else ""
    if not option and (joined := _JOINED_OUTPUT.fullmatch(word)):
        option, value = joined[1], joined[2]
    dependencies = _DEPENDENCIES.fullmatch(word)
    is_source = path and role_of_source(word) is not Role.OTHER
    is_input = path and word.endswith(_LINKED)
    return _Word(
        is_source=is_source,
        is_input=is_input,
        is_response=word.startswith("@") or word in _RESPONSE,
        option=option,
        value=value if option else "",
        dependencies=dependencies[1] if dependencies else "",
        is_setting=not (is_source or is_input or option or dependencies or word in ("-MD", "-MMD")),
    )


@lru_cache(_WORDS_KEPT)
def _is_special(word: str) -> bool:
    return _read(word).is_response or not _read(word).is_setting


def _special(words: Sequence[str]) -> list[int]:
    """Return where the words are that differ between the commands of a build."""
    return [at for at, word in enumerate(words) if _is_special(word)]


def _named_outputs(words: Sequence[str], special: Sequence[int]) -> Iterator[tuple[str, str]]:
    for at in special:
        read = _read(words[at])
        if read.option:
            yield _outputs()[read.option], read.value or (words[at + 1] if words[at + 1 :] else "")
        elif read.dependencies:
            yield "dependencies", read.dependencies


def _settings(words: Sequence[str], special: Sequence[int]) -> _Settings:
    """Return all words that can change the output, with ``None`` in place of the others."""
    kept: list[str | None] = [*words, None]
    for at in special:
        if not _read(words[at]).is_setting:
            kept[at] = None
        if words[at] in _outputs():
            kept[at + 1] = None
    return tuple(kept)


def _default_output(role: Role, words: Sequence[str]) -> str:
    if role is Role.ARCHIVE:
        return next((word for word in words if word.endswith((".a", ".lib"))), "")
    return "a.out" if role is Role.LINK else ""


@lru_cache(_LISTS_KEPT)
def _flags(words: _Settings, place: _Place) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the words independent of where the tree is, and in the form in which they are kept."""
    flags = tuple(
        _flag(word, before, place) for before, word in pairwise([None, *words]) if word is not None
    )
    return flags, tuple(map(_shown, flags))


def _flag(word: str, before: str | None, place: _Place) -> str:
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


def _input_bytes(
    role: Role, compiled: str, words: Sequence[str], output: str, place: _Place, files: Files
) -> int:
    if compiled:
        return files.size(place.full(compiled))
    if role not in (Role.LINK, Role.ARCHIVE):
        return 0
    inputs = (word for word in words if _read(word).is_input and word != output)
    return sum(files.size(place.full(word)) for word in inputs)


@lru_cache(_LISTS_KEPT)
def _archs(words: _Settings) -> tuple[str, ...]:
    """Return the GPU targets, each once."""
    found = (
        _ARCH.findall(word)
        for before, word in pairwise([None, *words])
        if word and (word.startswith(_GPU) or before in _GPU)
    )
    return tuple(dict.fromkeys(arch for each in found for arch in each))


def _key(*parts: str) -> str:
    text = "\0".join(parts)
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()[:24]
