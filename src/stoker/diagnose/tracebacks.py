"""Explains tracebacks of Python by their exception and by whose files they name. Ranks nothing."""

import sys
from collections.abc import Iterator, Sequence

from stoker.diagnose.interfaces import as_member
from stoker.diagnose.lines import compiled
from stoker.diagnose.sieve import Line
from stoker.diagnose.signs import LogSearch, Match, symptom
from stoker.diagnose.statements import STATED, statement
from stoker.knowledge.owners import owner_of_path

_EXCEPTION = (
    r"^\s{0,24}(?P<kind>[A-Za-z_][\w.]{0,100}"
    r"(?:Error|Exception|Exit|NotFound|Failed|Warning|Interrupt))(?:: (?P<message>.{1,300}))?$"
)
_FRAME = r'^\s{0,30}File "(?P<file>[^"\n]{1,300})", line (?P<line>\d{1,7})'
_IMPORT = (
    r"^\s+(?:from (?P<module>[A-Za-z][\w.]{1,100}) import |import (?P<whole>[A-Za-z][\w.]{1,100})$)"
)
# Frames of the tools that run a build; the error lies in what they were given.
_TOOLS = (
    r"/lib/python3?[\d.]*/(?!(?:site|dist)-packages/)"
    r"|/(?:pip|setuptools|pyproject_hooks|pep517|build|wheel|distutils|_distutils_hack"
    r"|scikit_build_core|skbuild|mesonpy|hatchling|flit_core|poetry|uv)/"
    r"|<string>|<frozen|^<|in_process"
)
_ECHOES = ("CalledProcessError", "SystemExit", "KeyboardInterrupt", "DeprecationWarning")
_RAISED = 4  # lines before an exception in which the statement that raised it is shown
_NO_ATTRIBUTE = (
    r"module '(?P<module>[\w.]{1,80})' has no attribute '(?P<name>\w{1,80})'",
    r"cannot import name '(?P<name>\w{1,80})' from '(?P<module>[\w.]{1,80})' \((?P<path>[^)]+)\)",
)
_CALLED_OTHERWISE = (
    r"^(?P<name>[\w.<>]{2,80})\(\) (?:got an unexpected keyword argument '\w{1,60}'"
    r"|missing \d{1,2} required (?:positional|keyword-only) arguments?"
    r"|takes (?:from )?\d{1,2}.{0,20} positional arguments? but \d{1,2} (?:was|were) given)"
)
PATTERNS = (_EXCEPTION,)


def exceptions(search: LogSearch) -> Iterator[Match]:
    """Yield the exceptions that end a traceback, with the last frame outside of the tools."""
    for line, groups in search.hits([_EXCEPTION]):
        heads = [head for head in search.steps.tracebacks if head < line]
        if not heads or groups["kind"].endswith(_ECHOES) or line in search.steps.echoes:
            continue
        frames = [
            match
            for one in search.lines[heads[-1] : line]
            if (match := compiled(_FRAME).match(one.text))
        ]
        own = [frame for frame in frames if not compiled(_TOOLS).search(frame["file"])]
        said = statement(groups.get("message", ""))
        if (
            own
            and own[-1] is frames[-1]
            and said
            and _is_raised(search.lines[max(0, line - _RAISED) : line])
        ):
            yield symptom("stated-by-project", line, STATED, {"file": own[-1]["file"]} | said)
        elif own and (
            other := _other_call(
                groups["kind"],
                groups.get("message", ""),
                [frame["file"] for frame in own],
            )
        ):
            yield symptom("dependency-api-changed", line, 0.78, other)
        elif own and (
            lacking := _missing_name(groups["kind"], groups.get("message", ""), own[-1]["file"])
        ):
            yield symptom("dependency-api-changed", line, 0.74, lacking)
        elif own:
            yield symptom("python-error", line, 0.6, groups | own[-1].groupdict())


def cut_imports(search: LogSearch) -> Iterator[Match]:
    """Yield the import with which a log ends whose error was cut off: a package lacks a module, or
    is not there.
    """
    line = search.steps.errors[-1] if search.steps.errors else 0
    found = compiled(_IMPORT).match(search.lines[line].text)
    frame = compiled(_FRAME).match(search.lines[line - 1].text) if line else None
    if not found or not frame:
        return
    module = found["module"] or found["whole"]
    root, _, rest = module.partition(".")
    if f"/{root}/" in frame["file"]:
        return
    if rest:
        named = {"library": root, "owner": root, "member": module}
        yield symptom("dependency-api-changed", line, 0.74, named)
    elif frame["file"].endswith(("setup.py", "<string>")) and root not in sys.stdlib_module_names:
        yield symptom("pip-build-isolation", line, 0.74, {"module": root})


def _is_raised(lines: Sequence[Line]) -> bool:
    """Return whether a traceback ends with a line that raises an error on purpose."""
    return any(line.text.lstrip().startswith("raise ") for line in lines)


def _other_call(kind: str, message: str, files: Sequence[str]) -> dict[str, str]:
    """Return the package that calls a function in another way than it is defined, if the project
    calls the package; ``files`` are those of the traceback.
    """
    found = compiled(_CALLED_OTHERWISE).match(message)
    owners = [owner_of_path(file) for file in files]
    if not found or kind != "TypeError" or not owners or not owners[-1] or all(owners):
        return {}
    return as_member(owners[-1].name, f"{found['name']} as it is defined here")


def _missing_name(kind: str, message: str, asking: str) -> dict[str, str]:
    """Return the Python module that lacks a name, if it is not the one of the file that asks."""
    found = next(filter(None, (compiled(one).search(message) for one in _NO_ATTRIBUTE)), None)
    if not found or not kind.endswith(("AttributeError", "ImportError")):
        return {}
    module, path = found["module"].partition(".")[0], found.groupdict().get("path", "")
    if f"/{module}/" in asking or asking.endswith(f"/{module}.py"):
        return {}
    if path and not (owner_of_path(path) or "/lib/python" in path):
        return {}
    return as_member("Python" if module in sys.stdlib_module_names else module, found["name"])
