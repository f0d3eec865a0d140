"""Python interpreters, and pip and uv, which install for them.

No command names a second index. A wheel of a catalogue is named by its address and content, so a
package of the same name on another index cannot take its place; what else it requires comes from
the index that the user has configured.
"""

import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from stoker.model.errors import CommandError, MissingError, StokerError, StorageError
from stoker.model.machine import PythonInstallation
from stoker.model.value import UNDECODABLE, Value
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

    def ask_version(self, program: Argument, *patterns: str) -> tuple[str | None, str | None]:
        """Return the version that ``--version`` prints, by the first pattern that fits, or the
        problem.
        """
        answer = self.ask([program, "--version"])
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
    "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
}))
"""

_VERSION = re.compile(r"\d\.\d{1,2}t?", re.ASCII)
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
    search_path: tuple[str, ...]
    free_threaded: bool

    @property
    def installation(self) -> PythonInstallation:
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
        return msgspec.json.decode(line, type=Interpreter)
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


# -- pip and uv ------------------------------------------------------------------------------------


_PROBE_TIMEOUT_S = 60.0
_WRONG_HASH = re.compile("DO NOT MATCH THE HASHES|[Hh]ash mismatch")
_UNREACHABLE = re.compile(
    "Retrying \\(|Max retries exceeded|Connection refused|[Ff]ailed to fetch|dns error|"
    "Read timed out"
)
_TAIL = 20  # lines of an installer's output in an error


PROGRESS = re.compile(r"Progress (\d{1,15}) of (\d{1,15})")  # of pip's `--progress-bar raw`
# A file that pip or uv names: how it comes, its name or address, and its size if that is told.
FILE = re.compile(r"\s*(Downloading|Using cached|Processing) (\S+)(?: \((\d[^)]*)\))?(?: .*)?")
_PIP_VERSION = re.compile(r"pip (\d+)\.(\d+)")


def tells_progress(pip: Sequence[str]) -> bool:
    """Return whether a pip knows `--progress-bar raw`."""
    found = _PIP_VERSION.match(process.run([*pip, "--version"], timeout=_PROBE_TIMEOUT_S).stdout)
    return found is not None and (int(found[1]), int(found[2])) >= (24, 1)


class ResolvedMetadata(Value, frozen=True, kw_only=True):
    name: str
    version: str


class DownloadInfo(Value, frozen=True, kw_only=True):
    url: str


class Resolved(Value, frozen=True, kw_only=True):
    """A distribution that pip would install. ``is_direct``: it was required by its address."""

    metadata: ResolvedMetadata
    download_info: DownloadInfo
    is_direct: bool = False

    @property
    def pin(self) -> str:
        name = self.metadata.name
        return f"{name} @ {self.url}" if self.is_direct else f"{name}=={self.metadata.version}"

    @property
    def url(self) -> str:
        return self.download_info.url


class InstallReport(Value, frozen=True, kw_only=True):
    """The part of pip's installation report that is used."""

    install: tuple[Resolved, ...]


class InstallerKind(StrEnum):
    PIP = "pip"
    UV = "uv"


class Installer(Value, frozen=True, kw_only=True):
    """``words`` start a command that installs; ``pip`` starts one that only pip has. ``resolver``
    is a pip that is new enough to resolve requirements without downloading the wheels.
    """

    kind: InstallerKind
    words: tuple[str, ...]
    pip: tuple[str, ...]
    resolver: tuple[str, ...]

    def install(self, requirements: Sequence[str]) -> list[str]:
        return [*self.words, *requirements]

    def install_from(self, folder: Path, requirements: Sequence[str], *, alone: bool) -> list[str]:
        """Install from the wheels of a folder; with ``alone``, without any index."""
        options = ["--no-index"] if alone else []
        return [*self.words, *options, "--find-links", str(folder), *requirements]

    def resolve(self, report: Path, requirements: Sequence[str]) -> list[str]:
        """Write what would be downloaded to a file, as an `InstallReport`; install nothing."""
        # Where an index has no metadata apart from the wheels, pip reads only a part of each wheel.
        options = ["--dry-run", "--ignore-installed", "--use-feature=fast-deps"]
        options += ["--report", str(report)]
        return [*self.resolver, "install", *options, *requirements]

    def download(self, folder: Path, requirements: Sequence[str], *, tells: bool) -> list[str]:
        """Download exactly these; with ``tells``, pip prints lines that `PROGRESS` matches."""
        options = ["--no-deps", "--progress-bar", "raw" if tells else "off"]
        return [*self.pip, "download", *options, "--dest", str(folder), *requirements]

    def download_wheel(
        self, folder: Path, requirement: str, *, python: str, platforms: Sequence[str]
    ) -> list[str]:
        """One wheel without what it requires, also for another Python and platform than this."""
        options = ["--no-deps", "--only-binary=:all:", "--python-version", python]
        options += [word for platform in platforms for word in ("--platform", platform)]
        return [*self.pip, "download", *options, "--dest", str(folder), requirement]


def find_installer(
    python: str, environment: Mapping[str, str], wanted: InstallerKind | None = None
) -> Installer:
    """Return the installer for an interpreter's environment: its own pip, else uv, else stoker's
    pip.
    """
    uv = shutil.which("uv", path=environment.get("PATH"))
    pip = _pip_for(python)
    current = (uv, "tool", "run", "pip", "--python", python) if uv else ()
    ours = own_pip()
    resolver = (*ours, "--python", python) if ours else current or pip or ()
    if wanted is not InstallerKind.UV and pip and (wanted or pip[0] == python or not uv):
        return Installer(
            kind=InstallerKind.PIP, words=(*pip, "install"), pip=pip, resolver=resolver
        )
    if wanted is not InstallerKind.PIP and uv:
        return Installer(
            kind=InstallerKind.UV,
            words=(uv, "pip", "install", "--python", python),
            pip=pip or current,
            resolver=resolver,
        )
    raise MissingError(
        f"there is no {wanted or 'pip or uv'} to install with",
        hints=[
            "pip install uv" if wanted is InstallerKind.UV else f"{python} -m ensurepip",
            "--installer names the other one",
        ],
    )


def pip_in(python: str) -> tuple[str, ...]:
    """Return the command of the pip in an environment that has one."""
    return python, "-m", "pip", "--disable-pip-version-check", "--no-input"


def own_pip() -> tuple[str, ...] | None:
    """Return the command of the pip that is installed beside stoker, if there is one. -P prevents
    that a folder called pip is imported instead.
    """
    return (sys.executable, "-P", "-m", "pip") if importlib.util.find_spec("pip") else None


def own_install(*packages: str) -> str:
    """Return the command that adds packages to the environment that stoker is installed in."""
    pip = f"{sys.executable} -m pip install"
    uv = f"uv pip install --python {sys.executable}"
    return f"{pip if own_pip() else uv} {' '.join(packages)}"


def _pip_for(python: str) -> tuple[str, ...] | None:
    """Return the command of a pip that installs for an interpreter: its own, or else ours."""
    asked = [python, "-c", "import sys; sys.path[:] = filter(None, sys.path); import pip"]
    if process.run(asked, timeout=_PROBE_TIMEOUT_S).ok:
        return python, "-m", "pip"
    ours = own_pip()
    return (*ours, "--python", python) if ours else None


def install_failure(output: str, what: str, *, room: Iterable[str] = ()) -> StokerError:
    """Return the user error for a failure of pip or uv. ``what`` could not be installed; ``room``
    are hints for a full disk.
    """
    if "No space left on device" in output:
        return StorageError(f"the disk is too small for {what}", hints=room)
    if _WRONG_HASH.search(output):
        return CommandError(
            "the hash of a file differs from the index",
            output="\n".join(output.splitlines()[-_TAIL:]),
            hints=["publish the wheel again, and find out who changed the file"],
        )
    if _UNREACHABLE.search(output):
        return MissingError(
            "the package index cannot be reached",
            hints=["`pip config list` shows which one pip asks, and PIP_INDEX_URL changes it"],
        )
    errors = [line for line in output.splitlines() if line.startswith(("ERROR:", "error:", "  "))]
    lines = errors or output.splitlines()
    return CommandError(f"{what} could not be installed", output="\n".join(lines[-_TAIL:]))
