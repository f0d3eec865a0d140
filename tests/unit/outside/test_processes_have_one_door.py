"""The check in tests/unit/conftest.py works: stoker's code cannot start a process by itself."""

import subprocess
from pathlib import Path

import pytest

import stoker

START = "import subprocess; subprocess.run(['true'], check=True)"


@pytest.mark.parametrize("place", ["flows/building.py", "machine/probe.py"])
def test_a_process_that_is_not_started_through_the_door(place: str) -> None:
    file = Path(stoker.__file__).parent / place
    with pytest.raises(AssertionError, match=f"{place}:1 starts a process by itself"):
        exec(compile(START, file, "exec"), {})


def test_the_door_and_tests_may_start_processes() -> None:
    file = Path(stoker.__file__).parent / "outside" / "process.py"
    exec(compile(START, file, "exec"), {})
    subprocess.run(["true"], check=True)
