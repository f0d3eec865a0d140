"""Reads the compiles that a build tool is about to start, and makes the commands of shared headers.

Pure: a command line in, a value out.
"""

import re
import shlex
from collections.abc import Iterable, Iterator
from pathlib import PurePath

from stoker.knowledge.shared_headers import header_rules
from stoker.model.headers import Compile, SharedHeader

_LISTS = ("-MD", "-MMD")
# A shell would do more with such a line than split it into words.
_SHELL = re.compile(r"[;&|<>`$()*?\[\]~]|^\s*\w+=")
_COMPILER = re.compile(r"(?:.*[/-])?(?:gcc|g\+\+|cc|c\+\+)(?:-[\d.]+)?")


def compiles_in(lines: Iterable[str], folder: str) -> Iterator[Compile]:
    """Yield the compiles among the commands that a build tool would start in ``folder``."""
    for line in lines:
        if not _SHELL.search(line) and (found := _compile(line, folder)):
            yield found


def _compile(line: str, folder: str) -> Compile | None:
    try:
        words = shlex.split(line)
    except ValueError:
        return None
    if not words or not _COMPILER.fullmatch(words[0]) or any(map(header_rules().excludes, words)):
        return None
    options, flags, own, sources = header_rules().options, [], {}, []
    following = iter(words[1:])
    for word in following:
        value = next(following, "") if word in options.valued else None
        if word in options.own:
            own[word] = value or ""
        elif value is not None:
            flags += [word, value]
        elif word.startswith("-"):
            flags.append(word)
        else:
            sources.append(word)
    language = header_rules().language_of(PurePath(sources[0]).suffix) if sources else None
    lists = any(word in _LISTS for word in flags)
    if len(sources) != 1 or not language or "-c" not in flags or "-o" not in own:
        return None
    if lists and "-MF" not in own:
        return None  # the name of the dependency file depends on the version of gcc
    flags.remove("-c")
    return Compile(
        folder=folder,
        words=tuple(words),
        flags=tuple(flags),
        source=sources[0],
        output=own["-o"],
        language=language,
    )


def scan_command(step: Compile) -> tuple[str, ...]:
    """Return the command that prints what the preprocessor reads, macros left as they are."""
    flags = (flag for flag in step.flags if flag not in _LISTS)
    return (step.words[0], *flags, "-w", "-E", "-fdirectives-only", step.source)


def header_scan_command(header: SharedHeader, source: str) -> tuple[str, ...]:
    """Return the same command for the text of a shared header."""
    words, language = _plain(header.group)
    return (*words, "-w", "-E", "-fdirectives-only", "-x", language, source)


def folders_command(group: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command that prints the compiler's kind and where it searches for headers."""
    words, language = _plain(group)
    return (*words, "-w", "-E", "-v", "-x", language, "/dev/null")


def making_command(header: SharedHeader, source: str, output: str) -> tuple[str, ...]:
    """Return the command that makes a precompiled header. It lists its headers as its users do,
    because gcc copies that list to the users' dependency files.
    """
    words, language = _plain(header.group)
    lists = next((flag for flag in header.group if flag in _LISTS), "-MD")
    listing = (lists, "-MT", output, "-MF", f"{output}.d")
    return (*words, *listing, "-x", f"{language}-header", source, "-o", output)


def bare_command(header: SharedHeader, source: str, output: str, *, using: bool) -> tuple[str, ...]:
    """Return a compile of nothing but a header's text: of its source, or if ``using``, of an empty
    file with the precompiled header, whose path without ``.gch`` is then ``source``.
    """
    words, language = _plain(header.group)
    what = ("-include", source, "-x", language, "/dev/null") if using else ("-x", language, source)
    return (*words, "-c", *what, "-o", output)


def _plain(group: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """Return the compiler of a group with its flags but those about dependency files, and the
    language of its sources.
    """
    _, compiler, language, *flags = group
    plain = (flag for flag in flags if flag not in _LISTS)
    return (compiler, *plain), language.removesuffix("-header")


def sample_command(step: Compile, output: str, *, header: str | None = None) -> tuple[str, ...]:
    """Return a compile to another file, without a dependency file, as a sample. ``header`` is the
    path of a precompiled one without ``.gch``.
    """
    using = ("-include", header) if header else ()
    flags = (flag for flag in step.flags if flag not in _LISTS)
    return (step.words[0], *using, *flags, "-c", step.source, "-o", output)
