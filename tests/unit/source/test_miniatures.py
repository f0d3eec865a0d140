"""The miniature trees are real: they can be built as other tests plan."""

from collections.abc import Callable
from pathlib import Path

from conftest import PROJECTS
from stoker.outside import process


def test_the_cmake_miniature_builds_and_works(tmp_path: Path, need: Callable[[str], str]) -> None:
    need("ninja")
    cmake = need("cmake")
    places = ("-S", str(PROJECTS / "mini-cmake"), "-B", str(tmp_path))
    process.check([cmake, "-G", "Ninja", *places], timeout=200)
    process.check([cmake, "--build", tmp_path], timeout=200)
    process.check([tmp_path / "check"], timeout=60)
