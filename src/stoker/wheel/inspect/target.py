"""Finds the wheel, library, folder or installed distribution that the user names."""

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
    from stoker.machine.python import Probe, ask_interpreter, target_python

    python = target_python(None, environment)
    asked = ask_interpreter(python, Probe(environment=environment, timeout_s=_TIMEOUT_S))
    wanted = canonicalize_name(word)
    for folder in asked.search_path:  # the first folder that has one counts
        for found in sorted(Path(folder).glob("*.dist-info")):
            if canonicalize_name(found.name.partition("-")[0]) == wanted:
                return Target(kind=TargetKind.INSTALLED, path=found)
    raise UsageError(
        f"there is neither a file '{word}' nor a distribution of that name for {python}",
        hints=["activate the virtual environment that it is installed in"],
    )
