"""Asks a Python interpreter, in one run, what it is and what is installed in it."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from stoker.machine.probe import Probe
from stoker.model.errors import MissingError
from stoker.model.machine import PythonInstallation
from stoker.model.value import UNDECODABLE, Value

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
}))
"""

HINT = "name a Python interpreter that works, 3.8 or newer, by its path"


class Interpreter(Value, frozen=True, kw_only=True):
    """A Python interpreter. ``triple`` names folders of this architecture, as in
    ``/usr/lib/<triple>``.
    """

    executable: str
    version: str
    headers: str | None
    packages: dict[str, str]
    prefix: str
    package_folders: tuple[str, ...]
    triple: str

    @property
    def installation(self) -> PythonInstallation:
        return PythonInstallation(
            executable=self.executable,
            version=self.version,
            headers=self.headers,
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
        return msgspec.json.decode(line, type=Interpreter)
    except UNDECODABLE:
        problem = answer.problem or "does not answer as a Python does"
        raise MissingError(f"{path} {problem}", hints=(HINT,)) from None
