"""The official wheel of PyTorch for this machine, slimmed: installed, imported and used."""

import json
import os
import sys
from pathlib import Path

import pytest

from conftest import missing
from stoker.cli.wheel import slim, verify
from stoker.outside import process
from stoker.wheel.inspect.library import read_library
from stoker.wheel.reader import open_file
from wheel_files import unpacked

pytestmark = [pytest.mark.heavy, pytest.mark.network, pytest.mark.timeout(3600)]

TORCH = "torch==2.12.1"
STEPS = ("install", "import", "version", "matmul", "autograd", "architectures", "extension")


@pytest.fixture(scope="module")
def official(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if given := os.environ.get("STOKER_CUDA_WHEEL"):
        return Path(given)
    folder = tmp_path_factory.mktemp("official")
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    process.check([*download, TORCH, "--dest", folder], timeout=1800)
    (wheel,) = folder.glob("*.whl")
    if "cpu" in wheel.name or wheel.stat().st_size < 250 << 20:
        missing(f"a wheel of {TORCH} with device code for this machine")
    return wheel


def test_it_works(official: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [str(official), "--for", "sm90", "-o", str(tmp_path), "--json"]
    slim.main(words, standalone_mode=False)
    report = json.loads(capsys.readouterr().out)
    assert report["after_bytes"] < 0.5 * report["before_bytes"]
    assert [row["path"] for row in report["libraries"] if row["skipped_because"]] == []

    status = verify.main([report["output"], "--run", "--json"], standalone_mode=False)
    findings = {one["name"]: one for one in json.loads(capsys.readouterr().out)["findings"]}
    assert {step: findings[f"trial-{step}"]["severity"] for step in STEPS} == dict.fromkeys(
        STEPS, "ok"
    )
    assert findings["trial-architectures"]["evidence"] == "sm_90"
    assert findings["slimmed"]["severity"] == "ok"
    assert status == 0


def test_what_is_left_is_for_one_gpu(official: Path, tmp_path: Path) -> None:
    """An RTX 4090 is served by code for 8.6 or 8.0, wherever there is none of its own."""
    slim.main([str(official), "--for", "rtx4090", "-o", str(tmp_path)], standalone_mode=False)
    (made,) = tmp_path.glob("*.whl")
    (tmp_path / "library.so").write_bytes(unpacked(made)["torch/lib/libtorch_cuda.so"])
    with open_file(tmp_path / "library.so") as reader:
        facts = read_library(reader)
    assert facts.problem is None
    present = {code.arch for code in facts.device_code}
    stubs = {row.archs[0] for row in facts.regions if len(row.archs) == 1}
    assert present <= {"sm_80", "sm_86", "sm_89"} | stubs
    served = sum(row.count for row in facts.regions if row.archs[-1] in ("sm_80", "sm_86"))
    assert served > 0.8 * sum(row.count for row in facts.regions)
