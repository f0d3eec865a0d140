"""`stoker inspect` and `stoker verify` say which PyTorch a wheel loads with."""

import json
import platform
from pathlib import Path

import pytest

from conftest import Need, Stoker
from torch_extensions import OLD_CHECK, WARN, extension, torch_stub
from wheel_files import DIST_INFO, METADATA, WHEEL, wheel_bytes

TAG = f"cp312-cp312-linux_{platform.machine()}"


@pytest.fixture
def library(need: Need, tmp_path: Path) -> bytes:
    """An extension for PyTorch with CUDA, as it was until 2.9."""
    return extension(need, tmp_path / "made", [OLD_CHECK, WARN], "libc10.so", "libc10_cuda.so")


def _wheel(folder: Path, library: bytes, requires: str = "torch") -> Path:
    path = folder / f"mill-1.2-{TAG}.whl"
    metadata = METADATA.replace(b"\n\n", f"\nRequires-Dist: {requires}\n\n".encode(), 1)
    contents = {
        "mill/_C.so": library,
        f"{DIST_INFO}/METADATA": metadata,
        f"{DIST_INFO}/WHEEL": WHEEL.replace(b"py3-none-any", TAG.encode()),
    }
    path.write_bytes(wheel_bytes(contents))
    return path


def test_inspect(stoker: Stoker, tmp_path: Path, library: bytes) -> None:
    done = stoker("inspect", str(_wheel(tmp_path, library)), COLUMNS="200")
    assert done.returncode == 0, done.stderr
    assert "2 of PyTorch" in done.stdout
    assert "C++: unstable ABI" in done.stdout
    assert "torch 2.13.0" in done.stdout
    assert "c10::cuda::c10_cuda_check_implementation(int, char const*" in done.stdout
    assert "Loads with" in done.stdout
    assert "orks with" not in done.stdout


def test_inspect_as_json(stoker: Stoker, tmp_path: Path, library: bytes) -> None:
    done = stoker("inspect", str(_wheel(tmp_path, library)), "--json")
    found = json.loads(done.stdout)["loads_with"]
    assert (found["symbols"], found["stable_abi"], found["back_end"]) == (2, False, "CUDA")
    last = {row["release"]: row["missing"] for row in found["builds"] if row["cuda"]}
    assert last["2.13.0"] == [OLD_CHECK]


def test_a_pytorch_that_is_named(
    need: Need, stoker: Stoker, tmp_path: Path, library: bytes
) -> None:
    wheel = str(_wheel(tmp_path, library))
    whole = str(torch_stub(need, tmp_path / "whole", [OLD_CHECK, WARN]))
    part = str(torch_stub(need, tmp_path / "part", [WARN]) / "torch")
    done = stoker("inspect", wheel, "--with", whole, "--with", part, "--json")
    rows = json.loads(done.stdout)["loads_with"]["builds"][-2:]
    assert [(row["release"], row["missing"]) for row in rows] == [
        ("2.99.0", []),
        ("2.99.0", [OLD_CHECK]),
    ]
    assert stoker("verify", wheel, "--with", whole).returncode == 0
    done = stoker("verify", wheel, "--with", part)
    assert done.returncode == 1
    assert "does not load with torch 2.99.0 in" in done.stdout


def test_no_pytorch_there(stoker: Stoker, tmp_path: Path, library: bytes) -> None:
    done = stoker("inspect", str(_wheel(tmp_path, library)), "--with", str(tmp_path))
    assert done.returncode == 2
    assert "there is no PyTorch in" in done.stderr


def test_verify_against_releases(stoker: Stoker, tmp_path: Path, library: bytes) -> None:
    wheel = str(_wheel(tmp_path, library))
    done = stoker("verify", wheel, "--against", "torch==2.13.0", "--json")
    assert done.returncode == 1
    finding = json.loads(done.stdout)["findings"][0]
    assert finding["name"] == "does-not-load"
    assert "c10_cuda_check_implementation" in finding["evidence"]


def test_verify_warns_of_releases_that_its_requirement_allows(
    stoker: Stoker, tmp_path: Path, library: bytes
) -> None:
    done = stoker("verify", str(_wheel(tmp_path, library, "torch>=2.13,<2.14")))
    assert done.returncode == 0, done.stdout
    assert "its requirements allow others" in done.stdout


def test_a_release_that_the_metadata_excludes(need: Need, stoker: Stoker, tmp_path: Path) -> None:
    """torchvision 0.23.0 requires torch==2.8.0. 2.9.1 has all of its symbols, and it aborts."""
    library = extension(need, tmp_path / "made", [WARN], "libc10.so")
    wheel = str(_wheel(tmp_path, library, "torch==2.8.0"))
    pinned = "its metadata requires torch==2.8.0"
    done = stoker("inspect", wheel, COLUMNS="200")
    assert "Loads with torch 2.4 to " in done.stdout
    assert f", and {pinned}" in done.stdout
    rows = json.loads(stoker("inspect", wheel, "--json").stdout)["loads_with"]["builds"]
    assert {row["release"] for row in rows if not row["forbidden_by"]} == {"2.8.0"}
    assert stoker("verify", wheel, "--against", "torch==2.8.0").returncode == 0
    done = stoker("verify", wheel, "--against", "torch==2.9.1")
    assert done.returncode == 1
    assert f"{pinned}, not torch 2.9.1" in done.stdout
    # A PyTorch that was built here may be meant, whatever its version.
    own = str(torch_stub(need, tmp_path / "own", [WARN]))
    assert pinned in stoker("inspect", wheel, "--with", own, COLUMNS="200").stdout
    done = stoker("verify", wheel, "--with", own)
    assert done.returncode == 0, done.stdout
    assert f"{pinned}, not torch 2.99.0" in done.stdout


def test_a_wheel_without_such_a_requirement_has_no_remark(
    stoker: Stoker, tmp_path: Path, library: bytes
) -> None:
    for requires in ("torch", "torch>=2.4", "torch==2.8.0 ; extra == 'gpu'"):
        done = stoker("inspect", str(_wheel(tmp_path, library, requires)), COLUMNS="200")
        assert "its metadata requires" not in done.stdout


@pytest.mark.parametrize(
    ("word", "problem"),
    [
        ("torch==1.0", "has no release that torch==1.0 allows"),
        ("numpy==2", "takes releases of torch"),
        ("torch=2", "--against torch=2"),
    ],
)
def test_releases_that_cannot_be_checked(
    stoker: Stoker, tmp_path: Path, library: bytes, word: str, problem: str
) -> None:
    done = stoker("verify", str(_wheel(tmp_path, library)), "--against", word)
    assert done.returncode == 2
    assert problem in done.stderr


def test_the_stable_abi(need: Need, stoker: Stoker, tmp_path: Path) -> None:
    names = ["aoti_torch_get_data_ptr", "torch_call_dispatcher"]
    library = extension(need, tmp_path / "made", names, "libtorch_cpu.so")
    done = stoker("inspect", str(_wheel(tmp_path, library)))
    assert "the C shim only: stable ABI" in done.stdout
    assert "and newer" in done.stdout
