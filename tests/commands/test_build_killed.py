"""A build resumes, whichever process was killed, and makes the same wheel."""

from pathlib import Path

import pytest

from builds import Project, digest
from conftest import Need, Stoker
from governed import wait_until
from killed_builds import build_killed, processes


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("kills", "files"),
    [pytest.param(2, 16, id="twice"), pytest.param(20, 200, id="twenty", marks=pytest.mark.heavy)],
)
def test_killed_again_and_again(
    stoker: Stoker, tmp_path: Path, need: Need, kills: int, files: int
) -> None:
    need("ninja")
    options = ("-D", f"MINI_FILES={files}", "--isolation", "none")
    tree = Project(stoker, tmp_path, "mini-wheel").tree
    homes = tmp_path / "home", tmp_path / "undisturbed-home"
    wheels = tmp_path / "out", tmp_path / "undisturbed"
    killed = build_killed(tree, wheels[0], homes[0], *options, kills=kills, seed=kills)
    assert len(killed) == kills
    build_killed(tree, wheels[1], homes[1], *options, kills=0, seed=0)
    disturbed, undisturbed = (next(folder.iterdir()) for folder in wheels)
    assert disturbed.name == undisturbed.name
    assert digest(disturbed) == digest(undisturbed), killed
    # The governor ends a moment after its last run.
    wait_until(lambda: not [*processes(homes[0]), *processes(homes[1])], "nothing is left of it")
