"""Gets the wheels of a request out of the user's package index and unpacks them into a folder.

Done by the interpreter's pip, or uv where there is no pip, with the user's own configuration: which
index, which mirror and which credentials is not known here. It does not look into the wheels.
"""

import importlib.util
import os
import platform
import re
import shutil
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

from packaging.version import Version

from stoker.builds.toolchains.request import ToolchainRequest, constraints, packages_of
from stoker.machine.installers import FILE, PROGRESS, install_failure, own_pip
from stoker.model.errors import CommandError, MissingError, StokerError, UsageError
from stoker.model.value import minor_release, size
from stoker.outside import process
from stoker.outside.long_work import Say

_NEEDS_STEPS = 50_000_000  # bytes; a smaller download is over before one wonders
_RELEASE = re.compile(r"\d{1,9}(\.\d{1,9})*", re.ASCII)
_MISSED = re.compile(
    r"Could not find a version that satisfies the requirement (?P<package>[\w.-]+)(?P<rest>\S*)"
    r".*?\(from versions: (?P<versions>[^)]*)\)"
)
_DECIMAL = {"kB": 1e3, "MB": 1e6, "GB": 1e9}


def fetch_wheels(
    request: ToolchainRequest, *, work: Path, say: Say, keep_open: Collection[int] = ()
) -> Path:
    """Return the folder below ``work`` that contains the unpacked wheels."""
    unpacked, temporary, held = work / "unpacked", work / "tmp", work / "constraints.txt"
    temporary.mkdir()
    held.write_text("".join(f"{line}\n" for line in constraints(request)), encoding="utf-8")
    narrator = Narrator()

    def tell(line: str) -> None:
        for message in narrator.hear(line):
            say(message)

    outcome = process.stream(
        [
            *installer(),
            *("--only-binary", ":all:", "--constraint", held, "--target", unpacked),
            *packages_of(request),
        ],
        tell,
        # Where TMPDIR is small, or in memory, a toolkit would not fit into it.
        env={**os.environ, "TMPDIR": str(temporary), "PIP_REQUIRE_VIRTUALENV": "0"},
        keep_open=keep_open,
    )
    if not outcome.ok:
        raise fetch_failure(outcome.stdout, request)
    return unpacked


def installer() -> list[str]:
    if ours := own_pip():
        pip = [*ours, "install", "--no-compile", "--no-user"]
        tells = Version(importlib.metadata.version("pip")) >= Version("24.1")
        progress = "raw" if tells else "off"
        return [*pip, "--disable-pip-version-check", "--no-input", "--progress-bar", progress]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--python", sys.executable]
    raise MissingError(
        f"neither pip nor uv is installed ({sys.executable})",
        hints=[f"{sys.executable} -m ensurepip"],
    )


class Narrator:
    """Turns an installer's output into the few lines that a waiting user wants to read."""

    _WAYS = {"Downloading": "downloading", "Using cached": "cached", "Processing": "local"}

    def __init__(self) -> None:
        self._file = ""
        self._tenths = 0

    def hear(self, line: str) -> Iterator[str]:
        if match := FILE.fullmatch(line):
            verb, file, told = match.groups()
            if not file.endswith(".metadata"):
                self._file, self._tenths = _distribution(file), 0
                yield f"{self._WAYS[verb]}: {self._file}{f' ({_in_bytes(told)})' if told else ''}"
        elif match := PROGRESS.fullmatch(line):
            total = int(match[2])
            tenths = 10 * int(match[1]) // total if total >= _NEEDS_STEPS else 0
            if self._tenths < tenths < 10:
                self._tenths = tenths
                yield f"  {self._file}: {10 * tenths} % of {size(total)}"
        elif line.startswith("Installing collected packages:"):
            yield f"unpacking{line.partition(':')[2]}"
        elif "Retrying (" in line:
            yield "the package index does not answer; trying again"


def _in_bytes(told: str) -> str:
    """Return a size as stoker writes it, for one as pip does, such as ``59.2 MB``."""
    number, _, unit = told.partition(" ")
    try:
        return size(float(number) * _DECIMAL[unit])
    except (ValueError, KeyError):
        return told


def _distribution(file: str) -> str:
    """Return ``nvidia_nvvm 13.0.88`` for a wheel's file name; any other name unchanged."""
    name = Path(file).name
    return " ".join(name.split("-")[:2]) if name.endswith(".whl") else name


def fetch_failure(output: str, request: ToolchainRequest) -> StokerError:
    """Return the user error for a failure of the installer."""
    missed = _MISSED.search(output)
    if missed and missed["package"] == request.row.package and missed["versions"] != "none":
        # Those of which a toolchain can be made.
        oldest = Version(request.row.oldest or "0")
        versions = [one for one in missed["versions"].split(", ") if _RELEASE.fullmatch(one)]
        made = dict.fromkeys(minor_release(one) for one in versions if Version(one) >= oldest)
        return UsageError(
            f"the package index has no {request.requirement}",
            hints=[f"it has {', '.join([*made][-12:])}"] if made else (),
        )
    room = ["free some space, or choose a folder on another disk with --out"]
    what = f"the packages of {request.requirement}"
    failure = install_failure(output, what, room=room)
    if missed and isinstance(failure, CommandError):
        here = f"{sys.platform}-{platform.machine()}, Python {platform.python_version()}"
        wanted = missed["package"] + missed["rest"]
        return MissingError(f"the package index has no {wanted} for this machine ({here})")
    return failure
