"""What the tests of governed builds share, and those of `stoker slim`."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from built_libraries import Need
from governed import Build, wait_until
from slim_wheels import make_wheel, torch_members


@pytest.fixture
def build(tmp_path: Path, stoker_home: Path, need: Callable[[str], str]) -> Iterator[Build]:
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
