"""The facts about a build that a plan states besides its settings, each with its evidence. Pure."""

import re
import shlex
from collections.abc import Iterable, Iterator

from stoker.model.evidence import Evidence, EvidenceKind, Statement
from stoker.model.finding import Finding, error, warning
from stoker.model.variant import Backend, PlannedTargets
from stoker.plan.subject import Subject

_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '([\w.]+)'")
# What CMake says of something that the machine lacks: a compiler, a package, a program.
_NOT_FOUND = re.compile(
    r"No CMAKE_(?P<language>\w+)_COMPILER could be found"
    r"|Could NOT find (?P<part>[\w.+-]+)"
    r"|package configuration file provided by\s+\"(?P<package>[\w.+-]+)\""
)
# Messages of sources that were written for an older package, and that package.
_OLDER = {r"Compiler\.__init__\(\) takes from 1 to 3 positional arguments": "setuptools<81"}
# Packages whose newest release no longer has a module, or that bring one under another name.
_PROVIDERS = {"pkg_resources": "setuptools<82", "distutils": "setuptools", "wheel": "wheel"}


def statements(subject: Subject, targets: PlannedTargets) -> Iterator[Statement]:
    """Yield what the plan states about the build, and how each fact is known."""
    evidence, asked = targets.evidence, subject.answer
    if targets.backend is not Backend.CPU and evidence is not None:
        if targets.without_device_code:
            yield Statement(about="device code", text="none is compiled", evidence=evidence)
        else:
            code = [*targets.cubins, *(f"PTX of {arch}" for arch in targets.ptx)]
            yield Statement(about="targets", text=", ".join(code) or "not known", evidence=evidence)
    if asked:
        text = f"{asked.device_compiles} of device code, {asked.host_compiles} others"
        evidence = Evidence(kind=EvidenceKind.ASKED, where=asked.when)
        yield Statement(about="compiles", text=text, evidence=evidence)


def answered(subject: Subject) -> Iterable[Finding]:
    """Return the refusal of a build that was asked, and the settings that it did not use."""
    asked = subject.asked
    if asked is None:
        return
    if missing := _NO_MODULE.search(asked.refusal):
        needed = _PROVIDERS.get(missing[1])
        title = f"the build needs the Python module {missing[1]}, which {subject.python} lacks"
        yield error(
            "build-requirement-missing",
            title + (f": install {needed}" if needed else ""),
            evidence=asked.refusal,
            fix=(shlex.join([subject.python, "-m", "pip", "install", needed]),) if needed else (),
        )
    elif older := next((p for m, p in _OLDER.items() if re.search(m, asked.refusal)), None):
        yield error(
            "build-requirement-missing",
            f"the build needs an older package than {subject.python} has: install {older}",
            evidence=asked.refusal,
            fix=(shlex.join([subject.python, "-m", "pip", "install", older]),),
        )
    elif lacking := _NOT_FOUND.search(asked.refusal):
        language = lacking["language"]
        what = f"a compiler for {language}" if language else lacking["part"] or lacking["package"]
        yield error(
            "build-requirement-missing",
            f"the build needs {what}, which it does not find on this machine",
            evidence=asked.refusal,
        )
    elif asked.refusal:
        yield error(
            "build-refuses", "the build itself refuses this variant", evidence=asked.refusal
        )
    for name in asked.unused:
        yield warning("setting-unused", f"the build was asked, and it does not use {name}")
