"""What the user names: the thing to read, and the place of the result.

The thing is a wheel, a library, a folder or an installed distribution.
"""

import os
from collections.abc import Mapping
from pathlib import Path

from packaging.utils import canonicalize_name

from stoker.model.artifact import TargetKind
from stoker.model.errors import UsageError
from stoker.model.value import Value

_TIMEOUT_S = 60.0


class Target(Value, frozen=True, kw_only=True):
    """The ``path`` of a distribution is its dist-info folder."""

    kind: TargetKind
    path: Path


def find_target(word: str, environment: Mapping[str, str] = os.environ) -> Target:
    """Return what a word names: an existing path, else a distribution in the active environment."""
    path = Path(word)
    if path.is_dir():
        return Target(kind=TargetKind.FOLDER, path=path)
    if path.exists():
        kind = TargetKind.WHEEL if path.suffix == ".whl" else TargetKind.LIBRARY
        return Target(kind=kind, path=path)
    if os.sep in word or path.suffix in (".whl", ".so"):
        raise UsageError(f"there is no file or folder '{word}'", hints=["check the path"])
    return Target(kind=TargetKind.INSTALLED, path=_find_installed(word, environment))


def _find_installed(name: str, environment: Mapping[str, str]) -> Path:
    """Return the dist-info folder of a distribution, from the first folder that has one."""
    from stoker.machine.python import Probe, ask_interpreter, target_python

    python = target_python(None, environment)
    asked = ask_interpreter(python, Probe(environment=environment, timeout_s=_TIMEOUT_S))
    wanted = canonicalize_name(name)
    for folder in asked.search_path:
        for found in sorted(Path(folder).glob("*.dist-info")):
            if canonicalize_name(found.name.partition("-")[0]) == wanted:
                return found
    raise UsageError(
        f"there is neither a file '{name}' nor a distribution of that name for {python}",
        hints=["activate the virtual environment that it is installed in"],
    )


def check_replaceable(target: Path, *, force: bool) -> None:
    """Raise an error if something exists at the target; ``force`` allows a regular file."""
    if not target.exists():
        return
    if not target.is_file():
        raise UsageError(f"{target} exists and is not a regular file: choose another --out")
    if not force:
        raise UsageError(f"{target} already exists", hints=["replace it with --force"])


def check_new(target: Path, wheel: Path, *, refusal: UsageError, force: bool) -> None:
    """Raise an error if a new wheel may not be written; ``refusal`` if the original is there."""
    if target.exists() and target.samefile(wheel):
        raise refusal
    check_replaceable(target, force=force)
