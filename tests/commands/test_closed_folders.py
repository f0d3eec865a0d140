"""Folders that this user may not enter, as after `su`: what is in them is not there."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Need
from governed import STOKER

COMMANDS = ("run -- true", "plan cpu", "doctor", "cache status", "toolchain list", "options")


@pytest.fixture
def closed(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "closed"
    (folder / "bin").mkdir(parents=True)
    folder.chmod(0)
    yield folder
    folder.chmod(0o700)


def as_user(need: Need) -> list[str]:
    """Return the words that take the rights of root over all folders from a command."""
    if os.geteuid() != 0:
        return []
    return [need("setpriv"), "--bounding-set=-dac_override,-dac_read_search"]


@pytest.mark.parametrize(
    "variable",
    [
        "PATH",
        "CUDA_HOME CUDA_PATH",
        "LD_LIBRARY_PATH LIBRARY_PATH CMAKE_PREFIX_PATH",
        "VIRTUAL_ENV CONDA_PREFIX",
        "TMPDIR",
        "HOME XDG_RUNTIME_DIR XDG_CONFIG_HOME",
        "PWD",
    ],
)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_closed_folder_has_nothing_for_us(
    closed: Path, tmp_path: Path, need: Need, command: str, variable: str
) -> None:
    names = variable.split()
    before = f":{os.environ['PATH']}" if "PATH" in names else ""
    environment = os.environ | dict.fromkeys(names, f"{closed}/bin{before}")
    here = tmp_path if "PWD" not in names else closed
    words = ["sh", "-c", 'cd "$0" && exec "$@"', str(here), *as_user(need)]
    done = subprocess.run(
        [*words, STOKER, *command.split()],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    asks_for_it = variable == "PWD" and command in ("plan cpu", "doctor", "options")
    assert asks_for_it or "cannot access" not in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 0 or command != "run -- true", done
