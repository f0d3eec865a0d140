"""Libraries of a published wheel for either machine, NVIDIA's own beside it: other linkers."""

import platform
import sys
import zipfile
from pathlib import Path

import pytest

from slim_libraries import listed_by, slim, wrapped
from stoker.model.slimming import SlimLayout
from stoker.outside import process

pytestmark = pytest.mark.network

WHEEL = "torchvision==0.27.1"  # with CUDA 13, and small


@pytest.fixture(scope="module", params=["x86_64", "aarch64"])
def libraries(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of those that have device code."""
    folder = tmp_path_factory.mktemp(request.param)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    tags = ["--platform", f"manylinux_2_28_{request.param}", "--python-version", "3.12"]
    process.check([*pip, *tags, "--dest", folder, WHEEL], timeout=280)
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
        for name in wheel.namelist():
            if name == "torchvision/_C.so" or "libnvjpeg" in name:
                (folder / Path(name).name).write_bytes(wheel.read(name))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("pin", [False, True], ids=["move", "pin"])
def test_published_libraries(libraries: Path, tmp_path: Path, cuobjdump: str, pin: bool) -> None:
    """The tool lists as many regions of the target as there were, and nothing else."""
    found = [path for path in libraries.iterdir() if ".so" in path.name]
    assert len(found) == 2
    for path in found:
        made = tmp_path / path.name
        summary = slim(path, made, "sm_90", pin=pin, strip=True).summary
        assert summary.skipped_because is None
        assert summary.layout is (SlimLayout.PIN if pin else SlimLayout.MOVE)
        assert summary.after_bytes < summary.before_bytes
        before, after = listed_by(cuobjdump, path), listed_by(cuobjdump, made)
        assert after.count("sm_90.cubin") == before.count("sm_90.cubin") == summary.kept
        assert len(after) == summary.kept < len(before)


@pytest.mark.parametrize("pin", [False, True], ids=["move", "pin"])
def test_that_of_this_machine_is_loaded(libraries: Path, tmp_path: Path, pin: bool) -> None:
    """NVIDIA's library needs nothing else; its first region has no wrapper."""
    if platform.machine() not in libraries.name:
        pytest.skip(f"{libraries.name} has libraries of another machine than {platform.machine()}")
    path = next(libraries.glob("libnvjpeg*"))
    slim(path, tmp_path / "made.so", "sm_90", pin=pin)
    starts = wrapped(tmp_path / "made.so")
    assert len(starts) == 10
    assert {int.from_bytes(start[44:48], "little") for start in starts} == {90}
