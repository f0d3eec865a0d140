"""Build backends: their hooks, their isolated environments, and what they find around them."""

import json
import re
import subprocess
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING

from stoker.machine.installers import pip_in
from stoker.model.build import Isolation
from stoker.model.errors import CommandError, MissingError, StokerError, UsageError
from stoker.model.machine import PythonInstallation
from stoker.model.plan import Plan
from stoker.outside import process
from stoker.outside.files import write_whole

if TYPE_CHECKING:
    from build import ProjectBuilder


# -- surroundings ----------------------------------------------------------------------------------
# The environment of a stage: the plan's settings, and what makes builds repeatable.


_FIRST_ZIP_CAN_SAY = 315532800  # 1980-01-01


def surroundings(
    base: Mapping[str, str],
    plan: Plan,
    *,
    maps: Mapping[Path, str],
    epoch: int | None,
) -> dict[str, str]:
    """Return the environment of a build. ``maps``: folders and their names in outputs. ``epoch``:
    the date of the source.
    """
    environment = dict(base) | {setting.name: setting.value for setting in plan.environment}
    environment.setdefault("SOURCE_DATE_EPOCH", str(epoch or _FIRST_ZIP_CAN_SAY))
    flags = " ".join(map_flags(maps))
    for name in ("CFLAGS", "CXXFLAGS"):
        environment[name] = f"{environment.get(name, '')} {flags}".strip()
    of_nvcc = [
        environment.get("NVCC_APPEND_FLAGS", ""),
        *(f"-Xcompiler={f}" for f in flags.split()),
    ]
    environment["NVCC_APPEND_FLAGS"] = " ".join(of_nvcc).strip()
    return environment


def map_flags(maps: Mapping[Path, str]) -> tuple[str, ...]:
    """Return the flags that map folder names; none for a name that a command line would split."""
    return tuple(
        f"-ffile-prefix-map={folder}={name}"
        for folder, name in maps.items()
        if not re.search(r"[\s=,\"'\\]", str(folder))
    )


# -- backend ---------------------------------------------------------------------------------------
# Builds wheels through the standard interface, with any build back end.


# Runs a command in a folder with variables beside the usual ones; gives its status.
Execute = Callable[[Sequence[str], Path, Mapping[str, str]], int]


# Runs before the hook of a back end, in its process. scikit-build-core configures with all that it
# gives to CMake: search paths of packages, options of pyproject.toml, a toolchain. It ends then.
_CONFIGURE_ONLY = """
import runpy, sys
sys.path[:] = filter(None, sys.path)
from scikit_build_core.cmake import CMaker
def configure(self, *words, _configure=CMaker.configure, **options):
    _configure(self, *words, **options)
    sys.exit(0)
CMaker.configure = configure
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def configure_tree(
    tree: Path,
    into: Path,
    *,
    python: str,
    execute: Execute,
    settings: Mapping[str, str],
    editable: bool = False,
) -> None:
    """Let scikit-build-core configure the tree. ``into`` is for files that are not needed."""
    configured = False

    def configure(words: Sequence[str], folder: Path, extra: Mapping[str, str]) -> int:
        nonlocal configured
        status = execute((words[0], "-c", _CONFIGURE_ONLY, *words[1:]), folder, extra)
        configured = status == 0
        return status

    try:
        make_wheel(
            tree, into, python=python, execute=configure, settings=settings, editable=editable
        )
    except CommandError as error:  # it ended before it had a result
        if not configured:
            raise CommandError("CMake does not accept it", output=error.output) from error
    finally:
        rmtree(into, ignore_errors=True)


def make_wheel(
    tree: Path,
    into: Path,
    *,
    python: str,
    execute: Execute,
    settings: Mapping[str, str],
    editable: bool = False,
) -> Path:
    """Build the wheel of the tree in the folder ``into``, which then contains nothing else."""
    rmtree(into, ignore_errors=True)
    with _builder(tree, python, execute) as builder:
        return Path(builder.build("editable" if editable else "wheel", into, dict(settings)))


def extra_requirements(tree: Path, *, python: str, execute: Execute) -> tuple[str, ...]:
    """Return what the back end requires in addition to pyproject.toml."""
    with _builder(tree, python, execute) as builder:
        return tuple(sorted(builder.get_requires_for_build("wheel")))


@contextmanager
def _builder(tree: Path, python: str, execute: Execute) -> Iterator["ProjectBuilder"]:
    from build import BuildBackendException, BuildException, ProjectBuilder

    def runner(
        cmd: Sequence[str],
        cwd: str | None = None,
        extra_environ: Mapping[str, str] | None = None,
    ) -> None:
        status = execute(cmd, Path(cwd or tree), extra_environ or {})
        if status:
            raise subprocess.CalledProcessError(status, list(cmd))

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they are in the log of the stage
            yield ProjectBuilder(tree, python, runner)
    except BuildBackendException as error:
        if isinstance(error.exception, StokerError):  # why we ended the command
            raise error.exception from error
        said = str(error) if not isinstance(error.exception, subprocess.CalledProcessError) else ""
        raise CommandError("the build back end failed", output=said) from error
    except BuildException as error:
        raise UsageError(str(error), where=str(tree)) from error


# Versions of the package wheel that do not know --compression.
_CANNOT_STORE = re.compile(r"0\.([0-2]?\d|3[0-3])\b")


def clear_copies(build: Path) -> None:
    """Delete copies and links of setuptools, which treats an existing file as complete.

    If CMake builds in the same folder, ``lib`` has its libraries, and ninja would link them again.
    """
    patterns = ["lib.*", "bdist.*"]
    if not (build / "CMakeCache.txt").exists():
        patterns.append("lib")
    for pattern in patterns:
        for folder in build.glob(pattern):
            rmtree(folder, ignore_errors=True)


def setuptools_settings(
    folder: Path, build: Path | None, python: PythonInstallation | None
) -> dict[str, str]:
    """Return variables that make setuptools build in ``build``, and store the files of the wheel
    uncompressed: packaging compresses them, on all CPUs. ``python`` is the one of the machine, if
    the back end runs with its packages.
    """
    path = folder / "distutils.cfg"
    lines = [f"[build]\nbuild_base = {build}\n"] if build else []
    installed = python.packages.get("wheel", "") if python else ""
    if not _CANNOT_STORE.match(installed):
        lines.append("[bdist_wheel]\ncompression = stored\n")
    write_whole(path, "".join(lines))
    return {"DIST_EXTRA_CONFIG": str(path)}


# -- isolated --------------------------------------------------------------------------------------
# A virtual environment for a build back end. It is kept, because compile commands contain its
# path: with a new path each time, everything would be compiled again.


# Run by the Python that has it: everything that torch needs, as files and folders to link to.
_PARTS_OF_TORCH = """
import sys; sys.path[:] = [folder for folder in sys.path if folder]  # not the current folder
import json, re
from importlib.metadata import PackageNotFoundError, distribution
waiting, seen, parts = ["torch"], set(), {}
while waiting:
    name = waiting.pop()
    key = re.sub(r"[-_.]+", "-", name).lower()
    if key in seen:
        continue
    seen.add(key)
    try:
        found = distribution(name)
    except PackageNotFoundError:
        if key == "torch":
            sys.exit("torch is not installed in " + sys.prefix)
        continue
    for file in found.files or ():
        if file.parts[0] != ".." and file.parts[0] != "__pycache__":
            parts[file.parts[0]] = str(found.locate_file(file.parts[0]))
    for line in found.requires or ():
        if "extra ==" not in line:
            waiting.append(re.match(r"[\\w.-]+", line)[0])
print(json.dumps(parts))
"""
_TIMEOUT_S = 60.0  # seconds
_NO_VENV = "Debian and Ubuntu have it in a package of its own: apt-get install -y python3-venv"


class Isolated:
    """The environment in ``folder``; commands go through ``execute``."""

    def __init__(self, folder: Path, execute: Execute):
        self.folder = folder
        self.python = str(folder / "bin" / "python")
        self._execute = execute

    def make(self, base: str, kind: Isolation) -> None:
        """Make the environment, replacing an old one, for the interpreter ``base``."""
        rmtree(self.folder, ignore_errors=True)
        if self._execute([base, "-m", "venv", str(self.folder)], self.folder.parent, {}):
            raise MissingError(f"{base} cannot make an environment", hints=[_NO_VENV])
        if kind is Isolation.TORCH:
            self._link(process.check([base, "-c", _PARTS_OF_TORCH], timeout=_TIMEOUT_S))

    def install(self, requirements: Sequence[str]) -> None:
        if not requirements:
            return
        words = [*pip_in(self.python), "install", *requirements]
        if self._execute(words, self.folder, {}):
            raise CommandError(
                "what the build needs could not be installed",
                hints=["--isolation none builds with the packages that are here"],
            )

    @staticmethod
    def version(folder: Path, package: str) -> str | None:
        """Return the version of a package in the environment."""
        found = folder.glob(f"lib/python*/site-packages/{package}-*.dist-info")
        name = next((path.name for path in found), None)
        return name.removesuffix(".dist-info").partition("-")[2] if name else None

    def _link(self, parts: str) -> None:
        here = self.folder / "here"
        here.mkdir()
        for name, path in json.loads(parts).items():
            (here / name).symlink_to(path)
        (packages,) = self.folder.glob("lib/python*/site-packages")
        (packages / "here.pth").write_text(f"{here}\n")
