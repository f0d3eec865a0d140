"""Keeps toolchains: a folder each, with a manifest, whole or not there at all.

A toolchain is made in a folder beside its own, under a lock that dies with its makers, and renamed
when it has been verified. What a killed process left is known by its name and by its free lock.
"""

import fcntl
import importlib.metadata
import os
import platform
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from stoker.build.toolchain.assemble import INFORMATION, assemble
from stoker.build.toolchain.fetch import Say, fetch
from stoker.build.toolchain.request import Request
from stoker.build.toolchain.stub import make_stub
from stoker.build.toolchain.verify import verify_proof, verify_version
from stoker.knowledge.toolchains import kinds
from stoker.model.errors import UsageError, unknown
from stoker.model.value import Value
from stoker.outside import files, folders

MANIFEST = "stoker-toolchain.json"
_WORK = ".work"
_LOCK = "lock"
_YOUNG = 60  # seconds in which a maker has surely taken its lock


class Manifest(Value, frozen=True, kw_only=True):
    """What a toolchain is made of; lies in its folder, which may be moved."""

    kind: str
    version: str  # of the main package
    requested: str
    components: tuple[str, ...]
    packages: dict[str, str]
    created: str
    size: int
    warnings: tuple[str, ...] = ()


class Toolchain(Value, frozen=True, kw_only=True):
    name: str
    path: str
    environment: dict[str, str]
    manifest: Manifest


def root() -> Path:
    return folders.data() / "toolchains"


def install(request: Request, *, into: Path | None = None, say: Say) -> Toolchain:
    """Make a toolchain and keep it, in ``into`` or in a folder of ours."""
    _check_platform(request)
    path = into.resolve() if into else root() / request.name
    if _sweep(path.parent, path.name):
        raise UsageError(f"another stoker is making {path} at this moment")
    if into:
        _check_free(path)
    elif manifest := _manifest(path):
        return _already(request, _toolchain(path, manifest), say)
    with _making(path) as (home, work, lock):
        assemble(fetch(request, work=work, say=say, keep_open=(lock,)), home, request)
        packages = _packages(request, home)
        say("verifying")
        warnings = _verify(request, home, work, packages)
        shutil.rmtree(work)
        manifest = _describe(request, home, packages, warnings)
        (home / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)))
    return _toolchain(path, manifest)


def installed() -> list[Toolchain]:
    """Every toolchain in the folder of ours, by name."""
    _sweep(root())
    found = [(path, _manifest(path)) for path in sorted(root().glob("[!.]*"))]
    return [_toolchain(path, manifest) for path, manifest in found if manifest]


def remove(word: str) -> Toolchain:
    """Remove a toolchain by its name, its requirement or, wherever it is, its folder."""
    named = root() / word.strip().replace("==", "-")
    path = (named if _manifest(named) else Path(word)).resolve()
    manifest = _manifest(path)
    if manifest is None and path.exists():
        raise UsageError(f"{path} is not a toolchain that stoker made: it has no {MANIFEST}")
    if manifest is None:
        raise unknown("toolchain", word, [toolchain.name for toolchain in installed()])
    files.remove_whole(path)
    _sweep(path.parent, path.name)
    return _toolchain(path, manifest)


@contextmanager
def _making(path: Path) -> Iterator[tuple[Path, Path, int]]:
    """A folder to fill, one inside it to work in, and the lock that says both are in use."""
    with files.folder_made_whole(path) as home:
        work = home / _WORK
        work.mkdir()
        with (work / _LOCK).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield home, work, lock.fileno()


def _sweep(folder: Path, name: str | None = None) -> list[Path]:
    """Delete what killed processes left of ``name``, or of any; give back what is in the making."""
    asides = files.leftovers(folder, name)
    busy = [aside for aside in asides if _in_the_making(aside)]
    for aside in asides:
        if aside not in busy:
            shutil.rmtree(aside, ignore_errors=True)
    return busy


def _in_the_making(aside: Path) -> bool:
    try:
        with (aside / _WORK / _LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        with suppress(FileNotFoundError):
            return time.time() - aside.stat().st_mtime < _YOUNG
    except OSError:  # held, or another user's
        return True
    return False


def _check_platform(request: Request) -> None:
    system = {"darwin": "macos"}.get(sys.platform, sys.platform)
    here, known = f"{system}-{platform.machine()}", request.row.platforms
    if known and here not in known:
        raise UsageError(
            f"{request.kind} cannot be made on {here}", hints=[f"only on {' or '.join(known)}"]
        )


def _check_free(path: Path) -> None:
    """The new folder takes the place of an old one in one step, which has to be possible."""
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} is not a folder")
    if path.is_dir() and any(path.iterdir()):
        raise UsageError(
            f"{path} is not empty", hints=["choose a folder that is empty or does not exist"]
        )
    if path.is_mount() or path == Path.cwd():
        kind = "a mount point" if path.is_mount() else "the current folder"
        raise UsageError(
            f"{path} is {kind}, which cannot be replaced",
            hints=[f"choose a folder inside it: --into {path / 'toolchain'}"],
        )


def _already(request: Request, there: Toolchain, say: Say) -> Toolchain:
    """What was asked for may be there; if less is there, the user decides."""
    lacking = [name for name in request.components if name not in there.manifest.components]
    for name, pin in request.pins.items():
        version = there.manifest.packages.get(request.filled(request.row.packages[name]))
        if version and not f"{version}.".startswith(f"{pin}."):
            lacking.append(f"{name} {pin}")
    if lacking:
        raise UsageError(
            f"{there.name} is there, but without {', '.join(lacking)}",
            hints=[f"make it anew: stoker toolchain remove {there.name}", "or another: --into DIR"],
        )
    say(f"{there.name} is there already")
    return there


def _packages(request: Request, home: Path) -> dict[str, str]:
    """What was installed; an extra that its package does not know installs nothing."""
    found = {
        canonicalize_name(distribution.name): distribution
        for distribution in importlib.metadata.distributions(path=[str(home / INFORMATION)])
    }
    main = found[canonicalize_name(request.row.package)]
    extras = [name for name in request.components if name not in request.row.packages]
    lacking = set(extras).difference(main.metadata.get_all("Provides-Extra") or ())
    if lacking:
        raise UsageError(
            f"{request.kind} {main.version} has no {', '.join(sorted(lacking))}",
            hints=["leave it out, or choose a later version"],
        )
    return {name: found[name].version for name in sorted(found)}


def _verify(request: Request, home: Path, work: Path, packages: dict[str, str]) -> tuple[str, ...]:
    """Use it; what could not be tried, for want of a host compiler, is given back as warnings."""
    row = request.row
    verify_version(home, row.version, packages[row.package])
    if row.proof is None:
        return ()
    compiler = shutil.which(os.environ.get("NVCC_CCBIN") or "g++")
    if compiler is None:
        return ("no host C++ compiler was found: nothing was compiled to verify it",)
    for stub in row.stubs:
        make_stub(home, stub, compiler=compiler, work=work)
    verify_proof(home, row.proof, work=work)
    return ()


def _describe(
    request: Request, home: Path, packages: dict[str, str], warnings: tuple[str, ...]
) -> Manifest:
    return Manifest(
        kind=request.kind,
        version=packages[request.row.package],
        requested=request.requirement,
        components=request.components,
        packages=packages,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        size=sum(path.lstat().st_size for path in home.rglob("*") if not path.is_dir()),
        warnings=warnings,
    )


def _manifest(path: Path) -> Manifest | None:
    """None where there is none, or none that can be read."""
    try:
        return msgspec.json.decode((path / MANIFEST).read_bytes(), type=Manifest)
    except (OSError, msgspec.DecodeError):
        return None


def _toolchain(path: Path, manifest: Manifest) -> Toolchain:
    kind = kinds().get(manifest.kind)
    variables = kind.environment if kind else {}
    pointing = [name for part in manifest.components for name in variables.get(part, ())]
    return Toolchain(
        name=path.name,
        path=str(path),
        environment={name: str(path) for name in sorted(pointing)},
        manifest=manifest,
    )
