"""The manifest of a toolchain: a file in its folder, which may be moved."""

from datetime import UTC, datetime
from pathlib import Path

import msgspec

from stoker.builds.toolchains.request import ToolchainRequest
from stoker.knowledge.toolchains import kinds
from stoker.model.value import Value
from stoker.outside.files import read_json

MANIFEST = "stoker-toolchain.json"


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
    (home / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest)))


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
