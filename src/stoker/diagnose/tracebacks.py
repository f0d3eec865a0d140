"""Explains tracebacks of Python by their exception and by whose files they name. Ranks nothing."""

import sys
from collections.abc import Iterator, Sequence

from stoker.diagnose.interfaces import as_member
from stoker.diagnose.lines import compiled
from stoker.diagnose.sieve import Line
from stoker.diagnose.signs import LogSearch, Match, symptom
from stoker.diagnose.statements import STATED, stated_cause, statement
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
_CUT = 60  # lines before an exception that may be frames if the head of the traceback was cut off
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
_IN_SITE = r"/(?:site|dist)-packages/(?P<name>[A-Za-z][\w-]{1,60})/"
# Packages that run what others ask for: they call nothing of their own accord.
_RUNNERS = ("pip", "pyproject_hooks", "pep517", "build", "uv", "wheel", "pytest", "_pytest")
PATTERNS = (_EXCEPTION,)


def exceptions(search: LogSearch) -> Iterator[Match]:
    """Yield the exceptions that end a traceback, with the last frame outside of the tools."""
    for line, groups in search.hits([_EXCEPTION]):
        begin = _begin(search, line)
        if begin is None or groups["kind"].endswith(_ECHOES) or line in search.steps.echoes:
            continue
        frames = [
            match for one in search.lines[begin:line] if (match := compiled(_FRAME).match(one.text))
        ]
        own = [frame for frame in frames if not compiled(_TOOLS).search(frame["file"])]
        said = statement(groups.get("message", ""))
        if (
            own
            and own[-1] is frames[-1]
            and said
            and _is_raised(search.lines[max(0, line - _RAISED) : line])
        ):
            yield symptom(stated_cause(said), line, STATED, {"file": own[-1]["file"]} | said)
        elif own and (
            other := _other_call(
                groups["kind"],
                groups.get("message", ""),
                [frame["file"] for frame in own],
            )
        ):
            yield symptom("dependency-api-changed", line, 0.78, other)
        elif own and (
            mixed := _mixed_packages(
                groups["kind"], groups.get("message", ""), [frame["file"] for frame in frames]
            )
        ):
            yield symptom("python-packages-mismatch", line, 0.86, mixed)
        elif own and (
            lacking := _missing_name(groups["kind"], groups.get("message", ""), own[-1]["file"])
        ):
            yield symptom("dependency-api-changed", line, 0.74, lacking)
        elif own:
            yield symptom("python-error", line, 0.6, groups | own[-1].groupdict())


def _begin(search: LogSearch, line: int) -> int | None:
    """Return the line with which the traceback of an exception begins, which may be cut off."""
    heads = [head for head in search.steps.tracebacks if head < line]
    if heads:
        return heads[-1]
    above = range(max(0, line - _CUT), line)
    frames = (one for one in above if compiled(_FRAME).match(search.lines[one].text))
    return next(frames, None)


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


def _mixed_packages(kind: str, message: str, files: Sequence[str]) -> dict[str, str]:
    """Return the installed package that calls another one in a way that this one is not defined, if
    the files at the end of a traceback are of the two; ``files`` are all of the traceback.
    """
    found = compiled(_CALLED_OTHERWISE).match(message)
    owners = [owner_in_site(file) for file in files]
    last = owners[-1] if owners else ""
    others = [one for one in owners if one and one != last and one not in _RUNNERS]
    if not found or kind != "TypeError" or not last or not others:
        return {}
    named = {"user": others[-1], "library": last, "function": found["name"]}
    return named | ({"setuptools": others[-1]} if others[-1] == "setuptools" else {})


def owner_in_site(file: str) -> str:
    """Return the installed package of Python that a file is of; setuptools is one here too."""
    found = compiled(_IN_SITE).search(file.replace("\\", "/"))
    return found["name"] if found else ""


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
