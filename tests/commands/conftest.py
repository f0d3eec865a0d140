"""What the tests of governed builds share, those of `stoker slim`, and those in containers."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import closed_room
from conftest import Need, missing
from governed import Build, wait_until
from slim_wheels import make_wheel, torch_members
from stoker.model.errors import MissingError


@pytest.fixture
def build(tmp_path: Path, stoker_home: Path, need: Need) -> Iterator[Build]:
    """A build folder; after the test nothing that it started may be alive."""
    need("ninja")
    build = Build(tmp_path / "build", stoker_home)
    yield build
    try:
        wait_until(lambda: not build.processes(), "all processes are gone")
    finally:
        left = build.kill_what_is_left()
    assert left == []


@pytest.fixture
def members(need: Need, tmp_path: Path) -> dict[str, bytes]:
    """Files of a small wheel with GPU code, as `stoker slim` gets."""
    return torch_members(need, tmp_path / "made")


@pytest.fixture
def wheel(members: dict[str, bytes], tmp_path: Path) -> Path:
    return make_wheel(tmp_path, members)


@pytest.fixture
def system(need: Need, tmp_path: Path) -> Iterator[Path]:
    """The root of a system: this one, with a layer over it that takes what is written."""
    if os.geteuid() != 0:
        missing("mounting a root folder needs root")
    need("podman")
    layer, root = tmp_path / "layer", tmp_path / "root"
    for folder in (layer, root):
        folder.mkdir()
    # A layer may not be part of what lies below it, so it gets a file system of its own.
    subprocess.run(["mount", "-t", "tmpfs", "tmpfs", layer], check=True)
    for name in ("upper/tmp", "work"):
        (layer / name).mkdir(parents=True)
    os.setxattr(layer / "upper/tmp", "trusted.overlay.opaque", b"y")  # /tmp is empty
    layers = f"lowerdir=/,upperdir={layer}/upper,workdir={layer}/work"
    subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, root], check=True)
    yield root
    subprocess.run(["umount", root, layer], check=True)


@pytest.fixture
def _back_end() -> None:
    """What miniatures are built with, in the environment of the tests."""
    try:
        import scikit_build_core  # noqa: F401
    except ImportError:
        missing("scikit-build-core is not installed")


@pytest.fixture(scope="session")
def _closed_room(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Leave tests out where the kernel allows no closed room."""
    tree = tmp_path_factory.mktemp("room")
    (tree / "setup.py").touch()
    try:
        closed_room.answered(tree)
    except MissingError as error:
        pytest.skip(str(error))
