"""Fills the fixes of a cause in: each placeholder from its source, or the fix is not offered."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from stoker.diagnose import (
    cuda_facts,
    disk_facts,
    gcc_facts,
    log_facts,
    machine_facts,
    python_facts,
    run_facts,
    target_facts,
)
from stoker.diagnose.about import About
from stoker.diagnose.installing import install_commands, search_command
from stoker.diagnose.lines import compiled
from stoker.diagnose.values import FilledFix
from stoker.knowledge.failures import (
    Failure,
    Fix,
    Shell,
    ValueSource,
    filled,
    governed_once,
    is_optional,
    placeholders,
    shows_build_tool,
    shows_reader,
    shows_unfit,
    without_mark,
)
from stoker.knowledge.providers import ProvidedKind
from stoker.model.secrets import redact
from stoker.model.shell import NOTHING, Outside, ShellScript, Template, fill, lines, outside, quoted

_FACTS = {
    **run_facts.FACTS,
    **python_facts.FACTS,
    **machine_facts.FACTS,
    **disk_facts.FACTS,
    **gcc_facts.FACTS,
    **cuda_facts.FACTS,
    **target_facts.FACTS,
    **log_facts.FACTS,
}
NAMES: Mapping[str, str] = {name: what for name, (what, _) in sorted(_FACTS.items())}
_AGAIN = Template("{run.command}")
_LONGEST = 300  # characters of a value in a text
_FLAGS = r'export (CFLAGS|CXXFLAGS|LDFLAGS)="\$\{\1:-\} ([^"$]+)"'
_VARIABLE = r"(?:\bexport |-D|\s)([A-Z][A-Z0-9_]{2,60})="
_BY_MAKEFLAGS = r"export (MAKEFLAGS)=(.+)"
# Commands that cmd understands as sh does: of tools that Windows has, without quotes and variables.
_SAME_ON_WINDOWS = (
    r"(?:bundle|cargo|conan|dotnet|gem|git|go|luarocks|mvn|npm|opam|pnpm|poetry|rustup|swift|uv|yarn)"
    r"(?: [\w./@:=+,-]+)+"
)
_SETS_PLAINLY = r"export ([A-Z][A-Z0-9_]*=[\w./:+-]+)"
_SETS_COMPILER = r"export (?:CC|CXX|CFLAGS|CXXFLAGS|FFLAGS|LDFLAGS|CUDAFLAGS|HIPFLAGS|CUDAHOSTCXX)="
# Texts, in small letters, of builds by CMake, and of tools that configure in a folder of their own.
_OF_CMAKE = ("cmakefiles/", "building c object", "building cxx object", "building cuda object")
_MAKES_FOLDERS = (
    "pip ", "setup.py", "site-packages", "cargo", "conda", "vcpkg", "conan", "homebrew", "makepkg",
    "rpmbuild", "dpkg-buildpackage", "gradle", "colcon", "pyproject", "-- the c compiler",
)  # fmt: skip
_BY_PIP = r"(?:/\S+/)?python[\d.]* -m pip install((?: [\w./=+-]+)+)"
_PAIR = r"([A-Z][A-Z0-9_]*)=([\w./:+,;-]+)(?= |$)"
_ONLY_SETS = r"export(?: [A-Z][A-Z0-9_]*=[\w./:+,;-]+)+"
_ERROR = "error: "
_IN_FILE = r"\.\w{1,3}:\d+:\d+: (?:fatal )?error: "
_FILES = {
    "CFLAGS": r"\.[chly]:\d+:\d+: (?:fatal )?error: ",
    "CXXFLAGS": r"\.(?:cc|cpp|cxx|C|c\+\+|h|hh|hpp|hxx|ipp|tcc|cu):\d+:\d+: (?:fatal )?error: ",
}
# An error that is no warning made one, so that no -Wno-error lets it pass.
# clang breaks the message about pointers to functions, so that its option is lines below.
_NO_WARNING = (
    r"\.(?:[chly]|cc|cpp|cxx|C|hh|hpp|hxx|cu):\d+:\d+: error: "
    r"(?!incompatible function pointer|.{0,400}\[-W)"
)


class Answers(NamedTuple):
    """What to do about a cause: fixes that have all that they take, and where to look for one."""

    fix: tuple[FilledFix, ...]
    look: tuple[FilledFix, ...]


def answers(cause: Failure, about: About) -> Answers:
    """Return the fixes of a cause that can be filled in, the best first. A last one that is the
    same everywhere and has no command is offered only if no other is. If the best one is not
    complete, there is no fix: those after it are for other cases.
    """
    found = [(one, fix) for one in cause.fix if (fix := filled_fix(one, about))]
    last = cause.fix[-1]
    is_general = not (last.commands or last.build or last.placeholders)
    if is_general and len(found) > 1:
        found.pop()
    fixes = [fix for one, fix in found if _is_complete(one, fix)]
    if not fixes or fixes[0] is not found[0][1]:
        return Answers(fix=(), look=tuple(fix for _, fix in found))
    return Answers(fix=tuple(fixes), look=tuple(fix for _, fix in found if fix not in fixes))


def _is_complete(template: Fix, fix: FilledFix) -> bool:
    """Return whether a fix can be done as it stands: by commands for the tools and the system of
    the log, or as a change of a file that it names.
    """
    return not template.only_shows and bool(fix.commands or fix.build or fix.edits)


def headline(cause: Failure, about: About) -> str:
    """Return the title of a cause, with what the log names if it names all of it."""
    return _text(cause.headline, about) or cause.title if cause.headline else cause.title


def value(name: str, about: About) -> Outside | ShellScript | None:
    """Return the value of a placeholder, such as ``log.header``; ``None`` if it is not known."""
    source, _, rest = name.partition(".")
    if source == ValueSource.LOG:
        found = about.groups.get(rest, ())
        return Outside(words=tuple(found)) if found else None
    if source == ValueSource.KNOWN:
        return outside(about.known[rest].value) if rest in about.known else None
    if source == ValueSource.INSTALL:
        return _install(ProvidedKind(rest), about)
    if source == ValueSource.SEARCH:
        words = about.missing(rest)
        return search_command(ProvidedKind(rest), words[0], about.here) if words else None
    return _FACTS[name][1](about) or None


def filled_fix(fix: Fix, about: About) -> FilledFix | None:
    """Return a fix with its values; ``None`` if it is not for this failure, or lacks one."""
    if not all(value(name, about) for name in fix.when):
        return None
    if any(value(name, about) for name in fix.unless):
        return None
    text, commands = _text(fix.text, about), _commands(fix, about)
    if text is None or commands is None or not _can_help(commands, about):
        return None
    if _is_done(commands, about):
        return None
    edits = _text(fix.edits, about) or ""
    if about.is_windows and fix.shell is Shell.SH:
        typed = [_for_cmd(command) for command in commands]
        known = tuple(filter(None, typed)) if all(typed) else ()
        return FilledFix(text=text, commands=known, shell=Shell.CMD, edits=edits)
    if _is_read_once(commands, about):
        text += (
            "; CMake reads it only when it configures: in a new build folder, or `cmake --fresh`"
        )
    build = _build(fix, about)
    return FilledFix(text=text, commands=commands, build=build, shell=fix.shell, edits=edits)


def _is_done(commands: Sequence[ShellScript], about: About) -> bool:
    """Return whether commands only set variables that have these values already: in the log, in the
    command that failed, or in the environment of a run here.
    """
    if not commands or not all(map(compiled(_ONLY_SETS).fullmatch, commands)):
        return False
    here = about.here.environment if about.run.command else {}
    pairs = [pair for line in commands for pair in compiled(_PAIR).findall(line)]
    shown = (about.shows([f"{name}={value}".lower()]) for name, value in pairs)
    return all(
        is_shown or here.get(name) == value
        for is_shown, (name, value) in zip(shown, pairs, strict=True)
    )


def _is_read_once(commands: Sequence[ShellScript], about: About) -> bool:
    """Return whether commands only set variables that CMake reads when it configures, and the log
    is of a build in a folder that is configured, which no tool makes again by itself.
    """
    sets = bool(commands) and all(map(compiled(_SETS_COMPILER).match, commands))
    if not sets or about.run.command:
        return False
    return about.shows(_OF_CMAKE) and not about.shows(_MAKES_FOLDERS)


def _for_cmd(command: ShellScript) -> ShellScript | None:
    """Return a command for sh as one for cmd; ``None`` if it has no such form."""
    if compiled(_SAME_ON_WINDOWS).fullmatch(command):
        return command
    if set_here := compiled(_SETS_PLAINLY).fullmatch(command):
        return fill(Template("set {setting}"), {"setting": outside(set_here[1])})
    if by_pip := compiled(_BY_PIP).fullmatch(command):
        return quoted(["python", "-m", "pip", "install", *by_pip[1].split()])
    return None


def _can_help(commands: Iterable[str], about: About) -> bool:
    """Return whether flags of a fix are for the language that failed, and for all of its errors."""
    flags = [found[1] for line in commands if (found := compiled_flags(line))]
    only_warnings = all(word.startswith("-Wno-error=") for one in flags for word in one.split())
    if flags and only_warnings and about.first(_NO_WARNING, _ERROR):
        return False
    if any(about.shows(shown) for line in commands if (shown := shows_unfit(line))):
        return False
    return is_compiled(commands, about) and _is_read(commands, about)


def _is_read(commands: Iterable[str], about: About) -> bool:
    """Return whether a tool was there that reads one of the variables that commands set. A variable
    that no single tool reads counts as read, and any if it is not known which tools were there.
    """
    names = [name for line in commands for name in compiled(_VARIABLE).findall(line)]
    shown = [shows_reader(name) for name in names]
    if not names or None in shown:
        return True
    return any(about.shows(one) for one in shown if one) or not about.shows(shows_build_tool())


def is_compiled(commands: Iterable[str], about: About) -> bool:
    """Return whether the log has an error in the language that the flags of commands are for; one
    of no compiler may be of any language.
    """
    languages = {found[0] for line in commands if (found := compiled_flags(line))}
    if not languages & _FILES.keys() or not about.first(_IN_FILE, _ERROR):
        return True
    return any(about.first(_FILES[name], _ERROR) for name in languages & _FILES.keys())


def compiled_flags(line: str) -> tuple[str, str] | None:
    """Return the variable and the flags that a line adds to it; ``None`` for other lines."""
    found = compiled(_FLAGS).fullmatch(line) or compiled(_BY_MAKEFLAGS).match(line)
    return (found[1], found[2]) if found else None


def _text(template: str, about: About) -> str | None:
    values = {name: _prose(value(name, about)) for name in placeholders(template)}
    return filled(template, values) if all(values.values()) else None


def _prose(found: Outside | ShellScript | None) -> str:
    text = found.listed if isinstance(found, Outside) else found or ""
    return redact(text)[:_LONGEST]


def _commands(fix: Fix, about: About) -> tuple[ShellScript, ...] | None:
    """Return the commands without optional ones that lack a value; ``None`` if another one does."""
    found: list[ShellScript] = []
    for template in fix.commands:
        command = _command(without_mark(template), about)
        if command is None and not is_optional(template):
            return None
        found += lines(command) if command else ()
    return tuple(found)


def _command(template: Template, about: About) -> ShellScript | None:
    """Return a command; ``None`` without all values, or if it would show a secret."""
    values = {name: _word(name, about) for name in placeholders(template)}
    known = {name: found for name, found in values.items() if found}
    command = fill(template, known)
    return command if command and redact(command) == command else None


def _word(name: str, about: About) -> Outside | ShellScript | None:
    """Return a value for a command: of what the log names, only plain words."""
    source, _, rest = name.partition(".")
    if source == ValueSource.LOG:
        return Outside(words=tuple(about.words(rest)))
    return value(name, about)


def _build(fix: Fix, about: About) -> ShellScript:
    if fix.shell is not Shell.SH or not (fix.commands or fix.build):
        return NOTHING
    template = fix.build or _AGAIN
    if about.run.command.startswith("stoker "):
        template = governed_once(template)
    return _command(template, about) or NOTHING


def _install(kind: ProvidedKind, about: About) -> ShellScript | None:
    of_conda = any("-conda-linux-gnu-" in line.text for line in about.lines)
    return install_commands(
        kind,
        about.missing(kind),
        about.here,
        python=lambda: about.interpreter,  # it is asked only where pip installs
        conda_build=of_conda,
    )


def unfilled(text: str) -> str:
    """Return a template for people who read of a cause: a placeholder is its name in brackets."""
    return filled(text, {name: _shown(name) for name in placeholders(text)})


def _shown(name: str) -> str:
    source, _, rest = name.partition(".")
    before = {ValueSource.INSTALL: "install the ", ValueSource.SEARCH: "search for the "}.get(
        ValueSource(source), ""
    )
    return f"<{before}{rest.replace('_', ' ')}>"
