"""Machines that a diagnosis is made for, and parts of its answers."""

from io import BytesIO
from pathlib import Path

from stoker.diagnose.about import About
from stoker.diagnose.here import Here
from stoker.diagnose.sieve import read_log
from stoker.diagnose.values import Diagnosis, FailedRun, FoundCause
from stoker.diagnose.verdict import diagnose

BOOKWORM = 'ID=debian\nVERSION_ID="12"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n'
NOBLE = 'ID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\nPRETTY_NAME="Ubuntu 24.04 LTS"\n'
FEDORA = 'ID=fedora\nVERSION_ID="41"\nPRETTY_NAME="Fedora Linux 41"\n'
MANAGERS = {BOOKWORM: "apt-get", NOBLE: "apt-get", FEDORA: "dnf"}


def machine(folder: Path, release: str, *programs: str, **variables: str) -> Here:
    """Return a machine with an operating system, its package manager and a few programs."""
    root, path = folder / "root", folder / "bin"
    for place in (root / "etc", root / "var/lib/apt/lists", path):
        place.mkdir(parents=True)
    (root / "etc/os-release").write_text(release)
    (root / "var/lib/apt/lists/a_Packages").touch()
    for name in (MANAGERS[release], "sudo", *programs):
        (path / name).touch(mode=0o755)
    return Here({"PATH": str(path), **variables}, root=root)


def answer(log: str, here: Here, folder: str = "") -> Diagnosis:
    about = About(here=here, run=FailedRun(command="make", folder=folder))
    return diagnose(read_log(BytesIO(log.encode())), about=about)


def only(log: str, here: Here, folder: str = "") -> FoundCause:
    found = answer(log, here, folder).findings
    assert len(found) == 1, [finding.cause for finding in found]
    return found[0]


def of_elsewhere(log: str, here: Here) -> FoundCause:
    """Return the first cause of a log that was made on another machine."""
    return diagnose(read_log(BytesIO(log.encode())), about=About(here=here)).findings[0]


def commands(finding: FoundCause) -> str:
    return "\n".join(finding.advice[0].commands)


def cuda(folder: Path, version: str, header: str = "") -> Path:
    """Make a toolkit as far as it is looked at, with a script that starts its nvcc on the PATH."""
    major, minor = version.split(".")
    home = folder / "toolkit"
    for name in ("bin", "include", "lib64"):
        (home / name).mkdir(parents=True)
    (home / "bin/nvcc").touch(mode=0o755)
    number = f"#define CUDART_VERSION {int(major) * 1000 + int(minor) * 10}\n"
    (home / "include/cuda_runtime_api.h").write_text(number)
    for name in ("cuda_runtime.h", *([header] if header else [])):
        (home / "include" / name).touch()
    script = folder / "bin/nvcc"
    script.write_text(f'#!/bin/sh\nexec {home}/bin/nvcc "$@"\n')
    script.chmod(0o755)
    return home
