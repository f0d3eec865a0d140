"""Keeps toolchains: a folder each, with a manifest, verified, complete or absent.

A request is fetched and assembled into one folder, which has a temporary name until it is verified
by using it, and described.
"""

import fcntl
import importlib.metadata
import os
import platform
import re
import shlex
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from packaging.utils import canonicalize_name

from stoker.builds.toolchains.assemble import INFORMATION, assemble, make_stub
from stoker.builds.toolchains.fetch import fetch_wheels
from stoker.builds.toolchains.request import ToolchainRequest
from stoker.knowledge.toolchains import Proof, VersionCommand, kinds
from stoker.model.errors import CommandError, StorageErrors, UsageError, unknown
from stoker.model.value import Value, indented_json, minor_release
from stoker.outside import files, locks, process
from stoker.outside.deleting import remove_tree, remove_whole
from stoker.outside.files import read_json
from stoker.outside.long_work import Say

MANIFEST = "stoker-toolchain.json"
_WORK = ".work"
_LOCK = "lock"
_YOUNG = 60  # seconds in which a maker has surely put its lock in place, or renamed the folder
_SECONDS = 300  # for a compile on a loaded machine; only a hang takes longer


class Manifest(Value, frozen=True, kw_only=True):
    kind: str
    version: str  # of the main package
    requested: str
    components: tuple[str, ...]
    packages: dict[str, str]
    created: str
    size_bytes: int
    warnings: tuple[str, ...] = ()


class Toolchain(Value, frozen=True, kw_only=True):
    """An installed toolchain. ``environment`` has the variables by which other tools find it."""

    name: str
    path: str
    environment: dict[str, str]
    manifest: Manifest


def write_manifest(
    home: Path, request: ToolchainRequest, *, packages: dict[str, str], warnings: tuple[str, ...]
) -> None:
    manifest = Manifest(
        kind=request.kind,
        version=packages[request.row.package],
        requested=request.requirement,
        components=request.components,
        packages=packages,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        size_bytes=sum(
            file.stat().st_size
            for file in home.rglob("*")
            if file.is_file() and not file.is_symlink()
        ),
        warnings=warnings,
    )
    (home / MANIFEST).write_bytes(indented_json(manifest))


def read_toolchain(path: Path) -> Toolchain | None:
    """Return the toolchain in a folder; ``None`` if it has no readable manifest."""
    manifest = read_json(path / MANIFEST, Manifest)
    if manifest is None:
        return None
    kind = kinds().get(manifest.kind)
    variables = kind.environment if kind else {}
    pointing = [name for part in manifest.components for name in variables.get(part, ())]
    return Toolchain(
        name=path.name,
        path=str(path),
        environment={name: str(path) for name in sorted(pointing)},
        manifest=manifest,
    )


class Making(Value, frozen=True, kw_only=True):
    """A folder that is being made. ``home`` is the folder to fill; ``work`` inside it is deleted at
    the end.
    """

    home: Path
    work: Path
    lock: int  # a file descriptor, for programs that write here and may outlive us


@contextmanager
def making(path: Path) -> Iterator[Making]:
    """Yield a folder that becomes ``path`` if the block succeeds, and is deleted if it fails."""
    with files.folder_made_whole(path) as home:
        work = home / _WORK
        work.mkdir()
        with (work / "new").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            (work / "new").rename(work / _LOCK)  # where it is never seen free while we live
            yield Making(home=home, work=work, lock=lock.fileno())


def sweep_leftovers(folder: Path, name: str | None = None) -> list[Path]:
    """Delete what killed processes left of ``name``, or of any; return those being made."""
    asides = files.leftovers(folder, name)
    busy = [aside for aside in asides if _is_being_made(aside)]
    for aside in asides:
        if aside not in busy:
            remove_tree(aside)
    return busy


def _is_being_made(aside: Path) -> bool:
    try:
        with (aside / _WORK / _LOCK).open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except FileNotFoundError:
        with suppress(FileNotFoundError):
            return time.time() - aside.stat().st_mtime < _YOUNG
    except OSError:  # held, or another user's
        return True
    return False


def verify_version(home: Path, check: VersionCommand, version: str) -> None:
    """Check that the program runs and reports the version of its package (major and minor)."""
    answer = process.check(_command(home, check.command), timeout=_SECONDS)
    match = re.search(check.pattern, answer)
    said, expected = match[1] if match else "nothing", minor_release(version)
    if said != expected:
        line = shlex.join(check.command)
        raise CommandError(f"`{line}` says {said} instead of {expected}", output=answer)


def verify_proof(home: Path, proof: Proof, *, work: Path) -> None:
    """Check that the test program compiles and links."""
    folder = work / "proof"
    folder.mkdir()
    (folder / proof.file).write_text(proof.source, "utf-8")
    env = {name: value for name, value in os.environ.items() if name not in proof.without}
    try:
        for command in proof.commands:
            process.check(_command(home, command), timeout=_SECONDS, env=env, cwd=folder)
    except CommandError as error:
        raise CommandError(
            "the new toolchain does not compile or link, so it is not kept",
            output=error.output,
            hints=[proof.hint],
        ) from error


def _command(home: Path, command: tuple[str, ...]) -> list[str]:
    """Return the command; its first word is a program of the toolchain."""
    return [str(home / command[0]), *command[1:]]


root = locks.toolchains_folder


def install_toolchain(
    request: ToolchainRequest, *, into: Path | None = None, say: Say
) -> Toolchain:
    """Make a toolchain and keep it, in ``into`` or in a folder of ours."""
    system = {"darwin": "macos"}.get(sys.platform, sys.platform)
    here, known = f"{system}-{platform.machine()}", request.row.platforms
    if known and here not in known:
        raise UsageError(
            f"{request.kind} cannot be made on {here}", hints=[f"only on {' or '.join(known)}"]
        )
    path = into.resolve() if into else root() / request.name
    if sweep_leftovers(path.parent, path.name):
        raise UsageError(f"another stoker is making {path} at this moment")
    if into:
        with StorageErrors("look into", path):
            problem = _in_the_way(path)
        if problem:
            inside = path / "toolchain" if path.is_dir() else path.with_name("toolchain")
            raise UsageError(
                f"{path} {problem}",
                hints=[f"choose a folder that is empty or does not exist: --out {inside}"],
            )
    elif there := read_toolchain(path):
        _check_serves(there, request)
        say(f"{there.name} is already installed")
        return there
    with making(path) as new:
        unpacked = fetch_wheels(request, work=new.work, say=say, keep_open=(new.lock,))
        assemble(unpacked, new.home, request)
        packages = _packages(request, new.home)
        say("verifying")
        verify_version(new.home, request.row.version, packages[request.row.package])
        warnings = _finish_with_host_compiler(request, new)
        remove_tree(new.work, strict=True)
        write_manifest(new.home, request, packages=packages, warnings=warnings)
    return _found(path)


def installed_toolchains() -> list[Toolchain]:
    """Return all toolchains in stoker's own folder, sorted by name."""
    sweep_leftovers(root())
    found = [read_toolchain(path) for path in sorted(root().glob("[!.]*"))]
    return [toolchain for toolchain in found if toolchain]


def remove_toolchain(word: str) -> Toolchain:
    """Remove a toolchain by its name, its requirement or, wherever it is, its folder."""
    named = root() / word.strip().replace("==", "-")
    path = (named if read_toolchain(named) else Path(word)).resolve()
    if not path.exists():
        hint = "`stoker toolchain list` lists them"
        raise unknown("toolchain", word, [each.name for each in installed_toolchains()], hint=hint)
    toolchain = _found(path)
    remove_whole(path)
    sweep_leftovers(path.parent, path.name)
    return toolchain


def _found(path: Path) -> Toolchain:
    toolchain = read_toolchain(path)
    if toolchain is None:
        raise UsageError(f"{path} is not a toolchain that stoker made: it has no {MANIFEST}")
    return toolchain


def _in_the_way(path: Path) -> str | None:
    if not path.exists():
        return None
    if not path.is_dir():
        return "is not a folder"
    if any(path.iterdir()):
        return "is not empty"
    if path.is_mount():
        return "is a mount point, which cannot be replaced"
    return "is the current folder, which cannot be replaced" if path == Path.cwd() else None


def _check_serves(there: Toolchain, request: ToolchainRequest) -> None:
    """Refuse an existing toolchain with fewer components than requested; the user decides."""
    lacking = [name for name in request.components if name not in there.manifest.components]
    for name, pin in request.pins.items():
        version = there.manifest.packages.get(request.filled(request.row.packages[name]))
        if version and not f"{version}.".startswith(f"{pin}."):
            lacking.append(f"{name} {pin}")
    if lacking:
        raise UsageError(
            f"{there.name} is installed without {', '.join(lacking)}",
            hints=[
                f"to install it again: stoker toolchain remove {there.name}",
                "to make another: --out DIR",
            ],
        )


def _packages(request: ToolchainRequest, home: Path) -> dict[str, str]:
    """Return the installed packages; an extra that its package does not know installs nothing."""
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


def _finish_with_host_compiler(request: ToolchainRequest, new: Making) -> tuple[str, ...]:
    """Build what needs a compiler of the machine; without one, leave it out with a warning."""
    row = request.row
    if row.host is None or row.proof is None:
        return ()
    compiler = shutil.which(os.environ.get(row.host.variable) or row.host.program)
    if compiler is None:
        return (f"there is no {row.host.program} here: it was not verified by compiling",)
    for stub in row.stubs:
        make_stub(new.home, stub, compiler=compiler, work=new.work)
    verify_proof(new.home, row.proof, work=new.work)
    return ()
