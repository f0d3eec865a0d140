"""NVIDIA's own libraries: left alone, since their licence lets nobody pass on a changed one. Pure.

Who asks for it may cut them for use on the spot; the result is marked as private.
"""

from pathlib import PurePosixPath

from packaging.utils import canonicalize_name

from stoker.knowledge.singletons import unhashed
from stoker.knowledge.sonames import is_nvidias
from stoker.model.errors import UsageError

OPTION = "--nvidia"
LICENCE = "NVIDIA's licence does not allow its libraries to be changed and passed on"
# The package index refuses every upload with a classifier that starts with "Private".
PRIVATE = "Private :: Do Not Upload"


def is_nvidia_distribution(name: str) -> bool:
    return canonicalize_name(name).startswith("nvidia-")


def is_nvidia_library(path: str, soname: str | None) -> bool:
    names = (PurePosixPath(path).name, soname or "")
    return any(is_nvidias(unhashed(name)) for name in names)


def refusal(what: str) -> UsageError:
    return UsageError(
        f"{what} is left as it is: {LICENCE}",
        hints=[f"{OPTION} cuts it for use on this machine alone; it is marked as private"],
    )
