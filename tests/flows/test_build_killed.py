"""A build goes on after whoever was killed, and ends in the same wheel."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pytest

from builds import Project
from conftest import Stoker
from killed_builds import build_killed, processes


@pytest.mark.parametrize(
    ("kills", "files", "seed"),
    [
        pytest.param(4, 60, 1, id="a few"),
        pytest.param(20, 250, 2, id="twenty", marks=[pytest.mark.heavy, pytest.mark.timeout(3000)]),
    ],
)
def test_killed_again_and_again(
    stoker: Stoker,
    tmp_path: Path,
    need: Callable[[str], str],
    kills: int,
    files: int,
    seed: int,
) -> None:
    need("ninja")
    options = ("-D", f"MINI_FILES={files}", "--isolation", "none")
    project = Project(stoker, tmp_path, "mini-wheel")
    home = tmp_path / "killed-home"
    killed = build_killed(project.tree, tmp_path / "killed", home, *options, kills=kills, seed=seed)
    assert len(killed) == kills, killed
    (wheel,) = (tmp_path / "killed").iterdir()
    undisturbed = project.built(*options).wheel
    assert (
        hashlib.sha256(wheel.read_bytes()).digest()
        == hashlib.sha256(undisturbed.read_bytes()).digest()
    )
    assert processes(home) == []
