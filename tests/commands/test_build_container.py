"""`stoker build --container` in podman, with a root folder."""

import json
import os
import platform
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from conftest import PROJECTS, Need, Stoker
from stoker.builds.containers.inside import check_ended
from stoker.model.errors import CommandError, ExitStatus, StorageError
from stoker.outside import process

KILN = PROJECTS.parents[1] / "examples" / "kiln"
LIMIT = 1 << 30


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return shutil.copytree(KILN, tmp_path / "kiln")


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.timeout(1500)
def test_the_example_in_a_container(
    stoker: Stoker, system: Path, tree: Path, tmp_path: Path, stoker_home: Path
) -> None:
    out = tmp_path / "dist"
    options = ("-D", "KILN_POINTS=20000", "-D", "KILN_OPERATORS=3", "--env", "KILN_TEST=1")
    where = ("--container", str(system), "--memory", str(LIMIT), "--keep")
    done = stoker(
        *("build", str(tree), *options, *where, "--out", str(out), "--json"), timeout=1200
    )
    assert done.returncode == 0, done.stderr
    built = json.loads(done.stdout)
    (name,) = {line.split()[2] for line in done.stderr.splitlines() if " container stoker-" in line}
    try:
        _check_record(built, stoker_home)
        (wheel,) = out.iterdir()
        assert built["record"]["outputs"] == [str(wheel)]
        assert "KILN_TEST" in built["record"]["environment"]
        _check_kept(stoker, name, wheel, tree)
    finally:
        removed = stoker("container", "remove", name)
    assert removed.returncode == 0, removed.stderr
    assert name not in stoker("container", "list").stdout


def _check_record(built: dict[str, object], home: Path) -> None:
    """It lies where this machine's other records do, and the governor saw the container's limit."""
    folder = Path(str(built["folder"]))
    assert folder.parent == home / "state" / "runs"
    record = json.loads((folder / "record.json").read_text())
    assert record["summary"]["limit_bytes"] == LIMIT
    assert record["summary"]["steps"] > 5
    contained = json.loads((folder / "container.json").read_text())
    assert contained["memory"] == LIMIT
    assert contained["python"].startswith("3.11 ")


def _check_kept(stoker: Stoker, name: str, wheel: Path, tree: Path) -> None:
    """The wheel works where it was built, which a kept container still is."""
    assert wheel.stat().st_uid == os.getuid()
    assert wheel.name.startswith("kiln-0.1.0-cp311-cp311-")
    assert wheel.name.endswith(f"_{platform.machine()}.whl")
    assert name in stoker("container", "list").stdout
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tree / "installed")
    entered = subprocess.run(
        [Path(sys.executable).with_name("stoker"), "container", "shell", name],
        input=f"cd {tree}/installed && python3 -c 'import kiln; print(kiln.apply(\"add_3\", [4]))'",
        capture_output=True,
        text=True,
        check=False,
    )
    assert entered.stdout.strip() == "[7.0]", entered.stderr


@pytest.mark.slow
def test_what_cannot_be_a_container_is_said(stoker: Stoker, tree: Path, need: Need) -> None:
    need("podman")
    done = stoker("build", str(tree), "--container", str(tree))
    assert done.returncode == 2
    assert "no root of a system" in done.stderr
    done = stoker("build", str(tree), "--container", "/is/not/there")
    assert done.returncode == 2
    assert "there is no folder /is/not/there" in done.stderr


def test_an_engine_that_is_not_there(stoker: Stoker, tree: Path, tmp_path: Path) -> None:
    done = stoker("build", str(tree), "--container=x", "--engine", "docker", PATH=str(tmp_path))
    assert done.returncode == 4
    assert "there is no docker here" in done.stderr


def test_containers_that_are_not_ours_are_left_alone(stoker: Stoker, need: Need) -> None:
    need("podman")
    done = stoker("container", "remove", "no-such-container")
    assert done.returncode == 2
    assert stoker("container", "remove").returncode == 2


def told(status: int | None) -> process.CommandResult:
    return process.CommandResult(status=status, stdout="", stderr="")


def test_a_good_build_without_a_record_is_an_error_of_its_own(tmp_path: Path) -> None:
    made = (tmp_path / "kiln.whl",)
    with pytest.raises(StorageError, match="its record cannot be read") as raised:
        check_ended(told(0), made, has_record=False)
    assert raised.value.status is ExitStatus.STORAGE
    assert str(made[0]) in raised.value.hints[0]


@pytest.mark.parametrize(
    ("status", "words", "ours"),
    [
        (2, "ended with status 2", ExitStatus.USAGE),
        (5, "ended with status 5", ExitStatus.STORAGE),
        (77, "ended with status 77", ExitStatus.FAILED),
        (-9, "was killed by signal 9", ExitStatus.FAILED),
    ],
)
def test_a_build_that_failed_inside_ends_with_its_own_status(
    status: int, words: str, ours: ExitStatus
) -> None:
    for has_record in (False, True):
        with pytest.raises(CommandError, match=f"the build in the container {words}") as raised:
            check_ended(told(status), (), has_record=has_record)
        assert raised.value.status is ours


def test_a_good_build_with_a_record_is_no_error() -> None:
    check_ended(told(0), (), has_record=True)
