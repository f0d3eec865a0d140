"""Builds wheels through the standard interface, with any build back end."""

import re
import subprocess
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from stoker.model.errors import CommandError, StokerError, UsageError
from stoker.model.machine import PythonInstallation
from stoker.outside.deleting import remove_tree
from stoker.outside.files import write_whole

if TYPE_CHECKING:
    from build import ProjectBuilder

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
# Versions of the package wheel that do not know --compression.
_CANNOT_STORE = re.compile(r"0\.([0-2]?\d|3[0-3])\b")


class BackEnd(NamedTuple):
    """The build back end of a tree. ``python`` is the interpreter that has it, and ``execute`` runs
    its commands.
    """

    tree: Path
    python: str
    execute: Execute

    def make_wheel(self, into: Path, settings: Mapping[str, str], *, editable: bool) -> Path:
        """Build a wheel in the folder ``into``, which then contains nothing else."""
        remove_tree(into)
        with self._builder() as builder:
            return Path(builder.build("editable" if editable else "wheel", into, dict(settings)))

    def configure(self, into: Path, settings: Mapping[str, str], *, editable: bool) -> None:
        """Let scikit-build-core configure the tree. ``into`` is for files that are not needed."""
        configured = False

        def configure(words: Sequence[str], folder: Path, extra: Mapping[str, str]) -> int:
            nonlocal configured
            status = self.execute((words[0], "-c", _CONFIGURE_ONLY, *words[1:]), folder, extra)
            configured = status == 0
            return status

        try:
            self._replace(execute=configure).make_wheel(into, settings, editable=editable)
        except CommandError as error:  # it ended before it had a result
            if not configured:
                raise CommandError("CMake does not accept it", output=error.output) from error
        finally:
            remove_tree(into)

    def extra_requirements(self) -> tuple[str, ...]:
        """Return what the back end requires in addition to pyproject.toml."""
        with self._builder() as builder:
            return tuple(sorted(builder.get_requires_for_build("wheel")))

    @contextmanager
    def _builder(self) -> Iterator["ProjectBuilder"]:
        from build import BuildBackendException, BuildException, ProjectBuilder

        def runner(
            cmd: Sequence[str],
            cwd: str | None = None,
            extra_environ: Mapping[str, str] | None = None,
        ) -> None:
            status = self.execute(cmd, Path(cwd or self.tree), extra_environ or {})
            if status:
                raise subprocess.CalledProcessError(status, list(cmd))

        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # they are in the log of the stage
                yield ProjectBuilder(self.tree, self.python, runner)
        except BuildBackendException as error:
            if isinstance(error.exception, StokerError):  # why we ended the command
                raise error.exception from error
            is_status = isinstance(error.exception, subprocess.CalledProcessError)
            said = "" if is_status else str(error)
            raise CommandError("the build back end failed", output=said) from error
        except BuildException as error:
            raise UsageError(str(error), where=str(self.tree)) from error


def clear_copies(build: Path) -> None:
    """Delete copies and links of setuptools, which treats an existing file as complete.

    If CMake builds in the same folder, ``lib`` has its libraries, and ninja would link them again.
    """
    patterns = ["lib.*", "bdist.*"]
    if not (build / "CMakeCache.txt").exists():
        patterns.append("lib")
    for pattern in patterns:
        for folder in build.glob(pattern):
            remove_tree(folder, below=build.parent)


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
