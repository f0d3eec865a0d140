"""pip and uv: finds the one for an environment, and makes its commands.

No command names a second index. A wheel of a catalogue is named by its address and content, so a
package of the same name on another index cannot take its place; what else it requires comes from
the index that the user has configured.
"""

import importlib.util
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from stoker.model.errors import CommandError, MissingError, StokerError, StorageError
from stoker.model.value import Value
from stoker.outside import process

_TIMEOUT_S = 60.0
_WRONG_HASH = re.compile("DO NOT MATCH THE HASHES|[Hh]ash mismatch")
_UNREACHABLE = re.compile(
    "Retrying \\(|Max retries exceeded|Connection refused|[Ff]ailed to fetch|dns error"
)


class InstallerKind(StrEnum):
    PIP = "pip"
    UV = "uv"


class Installer(Value, frozen=True, kw_only=True):
    """``words`` start a command that installs; ``pip`` starts one that only pip has."""

    kind: InstallerKind
    words: tuple[str, ...]
    pip: tuple[str, ...]

    def install(self, requirements: Sequence[str]) -> list[str]:
        return [*self.words, *requirements]

    def install_from(self, folder: Path, requirements: Sequence[str], *, alone: bool) -> list[str]:
        """Install from the wheels of a folder; with ``alone``, without any index."""
        options = ["--no-index"] if alone else []
        return [*self.words, *options, "--find-links", str(folder), *requirements]

    def download(self, folder: Path, requirements: Sequence[str]) -> list[str]:
        return [*self.pip, "download", "--dest", str(folder), *requirements]

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
    pip = _pip(python)
    if wanted is not InstallerKind.UV and pip and (wanted or pip[0] == python or not uv):
        return Installer(kind=InstallerKind.PIP, words=(*pip, "install"), pip=pip)
    if wanted is not InstallerKind.PIP and uv:
        return Installer(
            kind=InstallerKind.UV,
            words=(uv, "pip", "install", "--python", python),
            pip=pip or (uv, "tool", "run", "pip", "--python", python),
        )
    raise MissingError(
        f"there is no {wanted or 'pip or uv'} to install with",
        hints=[f"{python} -m ensurepip", "--installer names the other one"],
    )


def _pip(python: str) -> tuple[str, ...] | None:
    """Return pip's command. -P prevents that a folder called pip is imported instead."""
    asked = [python, "-c", "import sys; sys.path[:] = filter(None, sys.path); import pip"]
    if process.run(asked, timeout=_TIMEOUT_S).ok:
        return python, "-m", "pip"
    if importlib.util.find_spec("pip"):
        return sys.executable, "-P", "-m", "pip", "--python", python
    return None


def explained(output: str, installer: Installer) -> StokerError:
    """Return the user error for a failure of the installer."""
    tail = "\n".join(output.splitlines()[-20:])
    if "No space left on device" in output:
        return StorageError("the disk is too small for the packages")
    if _WRONG_HASH.search(output):
        return CommandError(
            "the hash of a file differs from the catalogue",
            output=tail,
            hints=["publish the wheel again, and find out who changed the file"],
        )
    if _UNREACHABLE.search(output):
        return MissingError(
            "an address could not be reached",
            hints=[line.strip() for line in output.splitlines()[-3:]],
        )
    return CommandError(f"{installer.kind} could not install it", output=tail)
