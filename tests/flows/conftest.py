"""What the tests of governed builds share."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from governed import Build, wait_until


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
