"""The facts of an installed distribution, as its own metadata tells them."""

import os
from collections.abc import Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path

from packaging.utils import canonicalize_name

from stoker.artifact.wheel_facts import wheel_facts
from stoker.model.artifact import WheelFacts


def find_distribution(name: str, folders: Sequence[str]) -> Distribution | None:
    wanted = canonicalize_name(name)
    for distribution in distributions(path=list(folders)):
        # A folder that was half removed has no name.
        if canonicalize_name(distribution.metadata["Name"] or "") == wanted:
            return distribution
    return None


def installed_facts(distribution: Distribution) -> tuple[WheelFacts, Path, tuple[str, ...]]:
    """What an installed distribution says of itself, the folder it is in, and its files."""
    root = Path(str(distribution.locate_file("")))
    files = tuple(
        str(file)
        for file in distribution.files or ()
        if not file.is_absolute() and os.path.lexists(root / file)
    )
    facts = wheel_facts(
        (distribution.read_text("METADATA") or "").encode(),
        (distribution.read_text("WHEEL") or "").encode(),
        members=len(files),
        unpacked=sum((root / file).lstat().st_size for file in files),
    )
    return facts, root, files
