"""Makes a toolchain: fetches its packages, assembles them, verifies the result by using it, and
describes it.
"""

import importlib.metadata
import os
import platform
import re
import shlex
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path

from packaging.utils import canonicalize_name

from stoker.builds.toolchains.assemble import INFORMATION, assemble, make_stub
from stoker.builds.toolchains.fetch import fetch_wheels
from stoker.builds.toolchains.kept_toolchains import (
    MANIFEST,
    Making,
    Manifest,
    Toolchain,
    making,
    read_toolchain,
    root,
    sweep_leftovers,
    toolchain_at,
)
from stoker.builds.toolchains.request import ToolchainRequest
from stoker.knowledge.toolchains import Proof, VersionCommand
from stoker.model.errors import CommandError, StorageErrors, UsageError
from stoker.model.value import indented_json, minor_release
from stoker.outside import process
from stoker.outside.deleting import remove_tree
from stoker.outside.long_work import Say

_TIMEOUT_S = 300  # for a compile on a loaded machine; only a hang takes longer


def install_toolchain(
    request: ToolchainRequest, *, into: Path | None = None, say: Say
) -> Toolchain:
    """Make a toolchain and keep it, in ``into`` or in a folder of ours."""
    _check_platform(request)
    path = into.resolve() if into else root() / request.name
    if sweep_leftovers(path.parent, path.name):
        raise UsageError(f"another stoker is making {path} at this moment")
    if into:
        _check_free(path)
    elif there := read_toolchain(path):
        _check_serves(there, request)
        say(f"{there.name} is already installed")
        return there
    with making(path) as new:
        unpacked = fetch_wheels(request, work=new.work, say=say, keep_open=(new.lock,))
        assemble(unpacked, new.home, request)
        packages = _packages(request, new.home)
        version = packages[request.row.package]
        say("verifying")
        _verify_version(new.home, request.row.version, version)
        warnings = _finish_with_host_compiler(request, new)
        remove_tree(new.work, strict=True)
        files = (file for file in new.home.rglob("*") if not file.is_symlink() and file.is_file())
        manifest = Manifest(
            kind=request.kind,
            version=version,
            requested=request.requirement,
            components=request.components,
            packages=packages,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            size_bytes=sum(file.stat().st_size for file in files),
            warnings=warnings,
        )
        (new.home / MANIFEST).write_bytes(indented_json(manifest))
    return toolchain_at(path)


def _check_platform(request: ToolchainRequest) -> None:
    system = {"darwin": "macos"}.get(sys.platform, sys.platform)
    here, known = f"{system}-{platform.machine()}", request.row.platforms
    if known and here not in known:
        raise UsageError(
            f"{request.kind} cannot be made on {here}", hints=[f"only on {' or '.join(known)}"]
        )


def _check_free(path: Path) -> None:
    """Refuse a folder of the user's that cannot become a toolchain."""
    with StorageErrors("look into", path):
        problem = _in_the_way(path)
    if problem:
        inside = path / "toolchain" if path.is_dir() else path.with_name("toolchain")
        raise UsageError(
            f"{path} {problem}",
            hints=[f"choose a folder that is empty or does not exist: --out {inside}"],
        )


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
    _verify_proof(new.home, row.proof, work=new.work)
    return ()


def _verify_version(home: Path, check: VersionCommand, version: str) -> None:
    """Check that the program runs and reports the version of its package (major and minor)."""
    answer = process.check(_command(home, check.command), timeout=_TIMEOUT_S)
    match = re.search(check.pattern, answer)
    said, expected = match[1] if match else "nothing", minor_release(version)
    if said != expected:
        line = shlex.join(check.command)
        raise CommandError(f"`{line}` says {said} instead of {expected}", output=answer)


def _verify_proof(home: Path, proof: Proof, *, work: Path) -> None:
    """Check that the test program compiles and links."""
    folder = work / "proof"
    folder.mkdir()
    (folder / proof.file).write_text(proof.source, "utf-8")
    env = {name: value for name, value in os.environ.items() if name not in proof.without}
    try:
        for command in proof.commands:
            process.check(_command(home, command), timeout=_TIMEOUT_S, env=env, cwd=folder)
    except CommandError as error:
        raise CommandError(
            "the new toolchain does not compile or link, so it is not kept",
            output=error.output,
            hints=[proof.hint],
        ) from error


def _command(home: Path, command: tuple[str, ...]) -> list[str]:
    """Return the command; its first word is a program of the toolchain."""
    return [str(home / command[0]), *command[1:]]
