"""Python interpreters: finds them, and asks them what they have."""

import os
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from stoker.model.errors import MissingError
from stoker.model.machine import PythonInstallation
from stoker.model.value import UNDECODABLE, Value, prepared
from stoker.outside import process
from stoker.outside.process import Argument


class ProgramAnswer(Value, frozen=True, kw_only=True):
    """The output of a program; ``problem`` says why it cannot be used."""

    printed: str = ""
    problem: str | None = None


_BUSY = 2.0  # processes for each CPU that want to run
_LONGEST_WAIT = 4.0  # a program that hangs must not stop stoker for minutes on a busy machine


class Probe(Value, frozen=True, kw_only=True):
    """Runs programs to ask them for something, each for at most ``timeout_s`` seconds."""

    environment: Mapping[str, str]
    timeout_s: float

    def ask(self, command: Sequence[Argument]) -> ProgramAnswer:
        # The answers are read by patterns, so they must be in English.
        environment = {**self.environment, "LC_ALL": "C"}
        # A busy machine must not look like one without tools.
        busy = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
        try:
            timeout = self.timeout_s * min(busy, _LONGEST_WAIT)
            outcome = process.run(command, timeout=timeout, env=environment)
        except MissingError as error:
            return ProgramAnswer(problem=error.message)
        if outcome.status is None and busy > _BUSY:
            return ProgramAnswer(problem=f"{outcome.problem}: the machine is busy, try again later")
        return ProgramAnswer(printed=f"{outcome.stdout}\n{outcome.stderr}", problem=outcome.problem)

    def ask_version(
        self, program: Argument, *patterns: str, option: str = "--version"
    ) -> tuple[str | None, str | None]:
        """Return the version that ``option`` prints, by the first pattern that fits, or the
        problem.
        """
        answer = self.ask([program, option])
        if answer.problem:
            return None, answer.problem
        found = (re.search(pattern, answer.printed, re.ASCII) for pattern in patterns)
        version = next((match[1] for match in found if match), None)
        return version, None if version else "does not tell its version"


# Run by the interpreter that is asked, so it keeps to what Python 3.8 knows. The first line keeps
# modules and metadata of the current folder, perhaps a source tree, out of the answer.
QUESTIONS = """
import sys; sys.path[:] = [folder for folder in sys.path if folder]
import json, os, platform, sysconfig
from importlib.metadata import distributions
packages = {}
for distribution in distributions():
    try:
        name, version = map(distribution.metadata.get, ("Name", "Version"))
    except Exception:  # a folder that was half removed
        continue
    if name and version:
        packages.setdefault(name, version)
managed = os.path.join(sysconfig.get_path("stdlib"), "EXTERNALLY-MANAGED")
folders = [sysconfig.get_path(name) for name in ("include", "platinclude")]
print()
print(json.dumps({
    "executable": sys.executable,
    "version": platform.python_version(),
    "headers": next((f for f in folders if os.path.isfile(os.path.join(f, "Python.h"))), None),
    "packages": packages,
    "prefix": sys.prefix,
    "package_folders": list(dict.fromkeys(map(sysconfig.get_path, ("platlib", "purelib")))),
    "triple": sysconfig.get_config_var("MULTIARCH") or platform.machine() + "-linux-gnu",
    "search_path": sys.path,
    "managed": sys.prefix == sys.base_prefix and os.path.exists(managed),
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
}))
"""

_VERSION = re.compile(r"\d\.\d{1,2}t?", re.ASCII)
HINT = "name a Python interpreter that works, 3.8 or newer, by its path"


class Interpreter(Value, frozen=True, kw_only=True):
    """A Python interpreter. ``triple`` names folders of this architecture, as in
    ``/usr/lib/<triple>``. ``managed``: the distribution forbids pip to change it.
    """

    executable: str
    version: str
    headers: str | None
    packages: dict[str, str]
    prefix: str
    package_folders: tuple[str, ...]
    triple: str
    search_path: tuple[str, ...]
    managed: bool
    free_threaded: bool

    @property
    def installation(self) -> PythonInstallation:
        from packaging.utils import canonicalize_name  # loads logging and more

        return PythonInstallation(
            executable=self.executable,
            version=self.version,
            headers=self.headers,
            free_threaded=self.free_threaded,
            packages=dict(
                sorted(
                    (canonicalize_name(name), version) for name, version in self.packages.items()
                )
            ),
        )


def find_interpreter(python: str, environment: Mapping[str, str]) -> str:
    """Return the interpreter at a path or with a name on the PATH."""
    path = shutil.which(python, path=environment.get("PATH", ""))
    if path is None:
        raise MissingError(f"there is no Python at '{python}'", hints=(HINT,))
    return str(Path(path).absolute())


def ask_interpreter(path: str, probe: Probe) -> Interpreter:
    answer = probe.ask([path, "-c", QUESTIONS])
    # A sitecustomize may print text before and after the answer.
    line = next((line for line in answer.printed.splitlines() if line.startswith("{")), "")
    try:
        return msgspec.json.decode(line, type=prepared(Interpreter))
    except UNDECODABLE:
        problem = answer.problem or "does not answer as a Python does"
        raise MissingError(f"{path} {problem}", hints=(HINT,)) from None


def target_python(wished: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """Return the interpreter that is meant: the requested one, as a version or a path, that of the
    active environment, the one on PATH, or ours.
    """
    if wished is None and (active := environment.get("VIRTUAL_ENV")):
        wished = str(Path(active) / "bin" / "python")
    if wished and _VERSION.fullmatch(wished):
        wished = f"python{wished}"
    found = shutil.which(wished or "python3", path=environment.get("PATH"))
    if found is None and wished:
        hints = ["name the interpreter of an environment, such as .venv/bin/python"]
        raise MissingError(f"there is no Python at '{wished}'", hints=hints)
    return str(Path(found or sys.executable).absolute())
