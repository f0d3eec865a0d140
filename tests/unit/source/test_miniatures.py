"""The miniature trees are real: they can be built as other tests plan."""

from pathlib import Path

from conftest import PROJECTS, Need
from stoker.outside import process


def test_the_cmake_miniature_builds_and_works(tmp_path: Path, need: Need) -> None:
    need("ninja")
    cmake = need("cmake")
    places = ("-S", str(PROJECTS / "mini-cmake"), "-B", str(tmp_path))
    process.check([cmake, "-G", "Ninja", *places], timeout=200)
    process.check([cmake, "--build", tmp_path], timeout=200)
    process.check([tmp_path / "check"], timeout=60)
