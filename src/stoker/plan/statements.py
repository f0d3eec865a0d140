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
_NO_FILE = re.compile(
    r"No such file or directory: '([^']+)'"
    r"|Cannot find source file:\s+(\S+)"
    r"|include could not find requested file:\s+(\S+)"
    r"|The source directory\s+(\S+)\s+does not (?:exist|contain)"
    r"|given source\s+\"?([^\s\"]+)\"? which is not an existing directory"
)
# What a project says by itself: an assertion, an exception that it raises, or CMake's FATAL_ERROR.
_OWN_WORDS = re.compile(
    r"CMake Error at [^\n]+ \(message\):"
    r"|^(?:\w+\.)*(?:Assertion|NotImplemented|Runtime|Value|Environment|OS|Distutils\w*)Error\b"
    r"|^(?:Exception|SystemExit)\b"
    r"|^error: (?!command|invalid command|unknown)",
    re.MULTILINE,
)
_NO_COMMAND = re.compile(r"invalid command '(\w+)'")
# Messages of sources that were written for an older package, and that package.
_OLDER = {r"Compiler\.__init__\(\) takes from 1 to 3 positional arguments": "setuptools<81"}
# Packages whose newest release no longer has a module, or that bring one under another name.
_PROVIDERS = {"pkg_resources": "setuptools<82", "distutils": "setuptools", "wheel": "wheel"}


def _absent(refusal: str, subject: Subject) -> str | None:
    """Return the empty submodule that a message names."""
    absent = subject.tree.missing_submodules if subject.tree else []
    return next((path for path in absent if re.search(rf"{re.escape(path)}\b", refusal)), None)


def statements(subject: Subject, targets: PlannedTargets) -> Iterator[Statement]:
    """Yield what the plan states about the build, and how each fact is known."""
    evidence, asked = targets.evidence, subject.answer
    if targets.backend is not Backend.CPU and evidence is not None:
        if targets.without_device_code:
            yield Statement(about="device code", text="none is compiled", evidence=evidence)
        else:
            code = [targets.language] if targets.language else []
            code += [*targets.cubins, *(f"PTX of {arch}" for arch in targets.ptx)]
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
    elif no_command := _NO_COMMAND.search(asked.refusal):
        needed = "wheel" if no_command[1] == "bdist_wheel" else "setuptools"
        yield error(
            "build-requirement-missing",
            f"the build needs the command {no_command[1]} of setuptools: install {needed}",
            evidence=asked.refusal,
            fix=(shlex.join([subject.python, "-m", "pip", "install", needed]),),
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
    elif absent := _absent(asked.refusal, subject):
        yield error(
            "submodules-missing",
            f"the build needs files of the submodule {absent}, which is empty",
            evidence=asked.refusal,
            fix=("git submodule update --init --recursive",),
        )
    elif missing_file := _NO_FILE.search(asked.refusal):
        name = next(filter(None, missing_file.groups()))
        yield error(
            "build-file-missing",
            f"the build needs {name}, which is not there",
            evidence=asked.refusal,
        )
    elif asked.refusal and _OWN_WORDS.search(asked.refusal):
        yield error(
            "build-refuses", "the build itself refuses this variant", evidence=asked.refusal
        )
    elif asked.refusal:
        yield error(
            "build-ended",
            "the build ended before it compiled anything, and why is not known",
            evidence=asked.refusal,
        )
    for name in asked.unused:
        yield warning("setting-unused", f"the build was asked, and it does not use {name}")
