"""pip and uv, which install packages for an interpreter.

No command names a second index. A wheel of a catalogue is named by its address and content, so a
package of the same name on another index cannot take its place; what else it requires comes from
the index that the user has configured.
"""

import importlib.util
import re
import shlex
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path

from stoker.model.errors import CommandError, MissingError, StokerError, StorageError
from stoker.model.value import Value
from stoker.outside import process

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


class ArchiveInfo(Value, frozen=True, kw_only=True):
    hashes: dict[str, str] = {}


class DownloadInfo(Value, frozen=True, kw_only=True):
    url: str
    archive_info: ArchiveInfo = ArchiveInfo()


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
    uv = f"uv pip install --python {shlex.quote(sys.executable)}"
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
            hints=[
                "find out who changed the file",
                "a wheel of a catalogue: `stoker catalogue publish WHEEL --to INDEX --replace`",
            ],
        )
    if _UNREACHABLE.search(output):
        return MissingError(
            "the package index cannot be reached",
            hints=["`pip config list` shows which one pip asks, and PIP_INDEX_URL changes it"],
        )
    errors = [line for line in output.splitlines() if line.startswith(("ERROR:", "error:", "  "))]
    lines = errors or output.splitlines()
    return CommandError(f"{what} could not be installed", output="\n".join(lines[-_TAIL:]))
