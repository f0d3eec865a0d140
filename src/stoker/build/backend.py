"""Builds wheels through the standard interface, with any build back end."""

import subprocess
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from shutil import rmtree
from typing import TYPE_CHECKING

from stoker.model.errors import CommandError, UsageError
from stoker.outside.files import write_whole

if TYPE_CHECKING:
    from build import ProjectBuilder

# Runs a command in a folder with variables beside the usual ones; gives its status.
Execute = Callable[[Sequence[str], Path, Mapping[str, str]], int]


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
        said = str(error) if not isinstance(error.exception, subprocess.CalledProcessError) else ""
        raise CommandError("the build back end failed", output=said) from error
    except BuildException as error:
        raise UsageError(str(error), where=str(tree)) from error


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


def outside_the_tree(folder: Path, build: Path) -> dict[str, str]:
    """Return variables that make setuptools build in ``build``."""
    path = folder / "distutils.cfg"
    write_whole(path, f"[build]\nbuild_base = {build}\n")
    return {"DIST_EXTRA_CONFIG": str(path)}
