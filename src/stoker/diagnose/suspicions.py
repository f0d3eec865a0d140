"""What `--try` changes, the likeliest first: fixes of the causes that a log shows, what newer tools
changed, and what is often too new. Starts nothing.
"""

import re
import shlex
from collections.abc import Iterable, Iterator
from itertools import chain

from msgspec.structs import replace

from stoker.diagnose.about import About
from stoker.diagnose.ages import may_show, versions_of
from stoker.diagnose.answers import answers, compiled_flags, filled_fix, is_compiled
from stoker.diagnose.lines import Texts
from stoker.diagnose.values import Diagnosis, FilledFix
from stoker.knowledge.failures import FailureStage, Fix, Shell, failure, failures
from stoker.knowledge.suspects import suspected_causes
from stoker.model.shell import ShellScript, Template, fill, outside, quoted, recorded
from stoker.model.value import Value, version_numbers

# Commands that change what is no copy, ask for a password, or take another source: a newer release
# that builds proves no cause.
_OF_SYSTEM = re.compile(
    r"(?:^|[;&|] *)(?:sudo|git|apt(?:-get)?|dnf|yum|zypper|apk|pacman|brew|conda)\b"
)
_BY_MAKE = re.compile(r"(?:\S*/)?g?make")
_MAKE = re.compile(r"\bg?make\b")
_COMPILERS = {"CFLAGS": ("CC", "cc"), "CXXFLAGS": ("CXX", "c++"), "LDFLAGS": ("CC", "cc")}
_OTHER = "compiler-release"
_PYTHON = re.compile(r"python(3\.\d{1,2})")
_BY_PYTHON = r"setup\.py|subprocess-exited-with-error|\bpip\b|Python\.h"
# What a log has if something of a stage failed: what changed for others is not tried.
_STAGES = {
    FailureStage.CONFIGURE: r"CMake Error|configure: error|meson\.build:\d+",
    FailureStage.CODEGEN: r"\.(?:pyx|proto|i|l|y|td):\d+",
    FailureStage.COMPILE: r": (?:fatal )?error: ",
    FailureStage.LINK: r"ld returned \d|linker command failed",
    FailureStage.PACKAGE: _BY_PYTHON,
}


class Suspicion(Value, frozen=True, kw_only=True):
    """A change that may let the command pass, and the cause that this proves."""

    cause: str
    fix: FilledFix


def suspicions(
    diagnosis: Diagnosis, about: About, texts: Texts, source: str | None = None
) -> Iterator[Suspicion]:
    """Yield what to try for a run that failed, each change once. ``source`` is the month of the
    source: what changed before it is not suspected.
    """
    seen: set[tuple[ShellScript, ...]] = set()
    command = recorded(about.run.command)
    found = chain(_of_findings(diagnosis), _of_ages(about, texts, source), _of_table(about, texts))
    for one in chain(found, _compilers(about), _pythons(about, texts)):
        for fix in filter(None, (one.fix, _for_make(one.fix, about.run.command))):
            build = fix.build or command
            if build is None or not _is_usable(fix) or not is_compiled(fix.commands, about):
                continue
            key = (*fix.commands, build)
            if key not in seen:
                seen.add(key)
                known = FilledFix(text=fix.text, commands=fix.commands, build=build)
                yield Suspicion(cause=one.cause, fix=known)


def _is_usable(fix: FilledFix) -> bool:
    changes = bool(fix.commands) or fix.build
    return bool(changes) and fix.shell is Shell.SH and not any(map(_OF_SYSTEM.search, fix.commands))


def _of_findings(diagnosis: Diagnosis) -> Iterator[Suspicion]:
    for finding in diagnosis.findings:
        for fix in finding.fix:
            if fix.commands:
                yield Suspicion(cause=finding.cause, fix=fix)


def _of_ages(about: About, texts: Texts, source: str | None) -> Iterator[Suspicion]:
    """Yield what the tools of the log changed in the releases that they have, the latest first."""
    version = versions_of(texts, about.run)
    stages = {stage for stage, seen in _STAGES.items() if texts.search(seen, most=1)}
    newest_first = sorted(failures().values(), key=lambda cause: cause.released, reverse=True)
    for cause in newest_first:
        if cause.stage not in stages or (source and cause.released and cause.released < source):
            continue
        shown = version(cause.product) if cause.product else None
        if shown and may_show(cause.since, shown):
            yield from _of_cause(cause.name, answers(cause, about).fix)


def _of_table(about: About, texts: Texts) -> Iterator[Suspicion]:
    for row in suspected_causes():
        if not texts.search(row.seen, most=1):
            continue
        if row.commands:
            fix = filled_fix(Fix(text=row.text, commands=(*row.commands, *_AGAIN)), about)
            yield from _of_cause(row.cause, [fix] if fix else [])
        else:
            yield from _of_cause(row.cause, answers(failure(row.cause), about).fix)


def _of_cause(name: str, fixes: Iterable[FilledFix]) -> Iterator[Suspicion]:
    yield from (Suspicion(cause=name, fix=fix) for fix in fixes if fix.commands)


def _compilers(about: About) -> Iterator[Suspicion]:
    """Yield the other compilers that are installed: older releases of gcc, then clang."""
    from stoker.machine.file_tree import installed_gccs

    numbers = reversed(installed_gccs(about.here.environment))
    pairs = [(f"gcc-{number}", f"g++-{number}") for number in numbers]
    pairs += [("clang", "clang++")] if about.here.which("clang") else []
    for c, cxx in pairs:
        setting = fill(_SETTING, {"c": outside(c), "cxx": outside(cxx)})
        fix = filled_fix(Fix(text=f"Build with {c}", commands=_AGAIN), about)
        if setting and fix:
            yield Suspicion(cause=_OTHER, fix=replace(fix, commands=(setting, *fix.commands)))


_SETTING = Template("export CC={c} CXX={cxx}")
_AGAIN = (Template("? {run.set_aside}"), Template("? {run.configure}"))


def _pythons(about: About, texts: Texts) -> Iterator[Suspicion]:
    """Yield the Pythons that are installed and older than the one that built, the newest first."""
    if not texts.search(_BY_PYTHON, most=1):
        return
    from stoker.machine.file_tree import programs_on_path

    newest = version_numbers(about.interpreter.version)
    names = programs_on_path("python3.*", about.here.environment)
    older = {found[1] for name in names if (found := _PYTHON.fullmatch(name))}
    for version in sorted(older, key=version_numbers, reverse=True):
        if version_numbers(version) < newest:
            wanted = about.with_groups({"wanted": (version,)}, {})
            fix = filled_fix(_OLDER_PYTHON, wanted)
            yield from _of_cause("python-version-unsupported", [fix] if fix else [])


_OLDER_PYTHON = Fix(
    text="Build in an environment with Python {run.python_wanted}",
    commands=(Template("{run.python_new}"),),
    build=Template("{run.by_new_python}"),
)


def _for_make(fix: FilledFix, command: str) -> FilledFix | None:
    """Return a fix whose flags are part of the compiler that make is given: a Makefile that sets
    CFLAGS itself ignores those of the environment. A make that a script starts reads MAKEFLAGS.
    """
    words = shlex.split(command)
    flags = [found for line in fix.commands if (found := compiled_flags(line))]
    if not flags or len(flags) != len(fix.commands) or not _MAKE.search(command):
        return None
    pairs = [(*_COMPILERS[name], value) for name, value in flags]
    given = [f"{variable}={program} {value}" for variable, program, value in pairs]
    if _BY_MAKE.fullmatch(words[0]):
        build = quoted([*words, *given])
        return FilledFix(text=fix.text, build=build) if build else None
    escaped = quoted([" ".join(one.replace(" ", "\\ ") for one in given)])
    setting = fill(Template("export MAKEFLAGS={given}"), {"given": escaped}) if escaped else None
    return FilledFix(text=fix.text, commands=(setting,)) if setting else None
