"""Real PyTorch in podman: STOKER_PYTORCH_TREE names a tree of 2.6.0 as Debian patches it, and
STOKER_PYTORCH_ROOT a root folder of Debian 13 with `apt-get build-dep pytorch`:

    debootstrap --variant=minbase --include=python3-venv trixie ROOT
    (add deb-src lines, then) chroot ROOT apt-get build-dep --no-install-recommends pytorch
    cd TREE && for patch in $(cat debian/patches/series); do patch -p1 < debian/patches/$patch; done
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Stoker, missing

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(6 * 3600)]
LIMIT = 4 << 30
OFF = ("distributed", "mkldnn", "xnnpack", "qnnpack", "fbgemm", "kineto")
DEFINES = ("USE_SYSTEM_LIBS=ON", "USE_PYTORCH_QNNPACK=0", "BUILD_CUSTOM_PROTOBUF=OFF")
SCHEMA = "torch/csrc/jit/serialization/mobile_bytecode.fbs"
FLATC = ("--cpp", "--gen-mutable", "--no-prefix", "--scoped-enums")


@pytest.fixture(scope="module")
def root() -> Path:
    path = os.environ.get("STOKER_PYTORCH_ROOT")
    if not path or os.geteuid() != 0 or not shutil.which("podman"):
        missing("STOKER_PYTORCH_ROOT names no root folder, or this is not root with podman")
    return Path(path)


@pytest.fixture(scope="module")
def tree(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy, with the one file generated that must fit the root's flatbuffers."""
    given = os.environ.get("STOKER_PYTORCH_TREE")
    if not given:
        missing("STOKER_PYTORCH_TREE does not name a tree of PyTorch 2.6.0")
    folder = tmp_path_factory.mktemp("container") / "pytorch"
    shutil.copytree(given, folder, symlinks=True, ignore=shutil.ignore_patterns("build"))
    inside = root / "tmp" / folder.parent.name
    inside.mkdir()
    shutil.copy(folder / SCHEMA, inside)
    flatc = ["chroot", str(root), "flatc", *FLATC, "-o", f"/tmp/{inside.name}"]
    subprocess.run([*flatc, f"/tmp/{inside.name}/{Path(SCHEMA).name}"], check=True)
    shutil.copy(inside / "mobile_bytecode_generated.h", folder / Path(SCHEMA).parent)
    shutil.rmtree(inside)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The two targets share their configuration."""
    return tmp_path_factory.mktemp("home")


def words(tree: Path, root: Path, target: str) -> list[str]:
    return [
        *("build", str(tree), "--variant", "cpu", "--blas", "genericblas", "--target", target),
        *(f"--no-{name}" for name in OFF),
        *(word for define in DEFINES for word in ("-D", define)),
        *("--container", str(root), "--memory", str(LIMIT)),
        *("--env", "GENERIC_BLAS_LIBRARIES=blas", "--json"),
    ]


def objects(tree: Path) -> int:
    return len(list(tree.glob("build/**/*.o")))


def test_c10(stoker: Stoker, tree: Path, root: Path, home: Path) -> None:
    done = stoker(*words(tree, root, "c10"), timeout=3 * 3600, STOKER_HOME=str(home))
    assert done.returncode == 0, done.stderr
    assert (tree / "build/lib/libc10.so").exists()
    summary = json.loads(done.stdout)["record"]["summary"]
    assert summary["limit_bytes"] == LIMIT
    assert summary["oom_kills"] == 0


def test_a_hundred_steps_of_torch_cpu(tree: Path, root: Path, home: Path) -> None:
    command = [str(Path(sys.executable).with_name("stoker")), *words(tree, root, "torch_cpu")]
    before = objects(tree)
    run = subprocess.Popen(command, env={**os.environ, "STOKER_HOME": str(home)})
    try:
        while objects(tree) < before + 100:
            assert run.poll() is None, "it ended too soon"
            time.sleep(1)
    finally:
        run.send_signal(signal.SIGTERM)
        run.wait()
    (folder,) = (path for path in (home / "state/runs").glob("*") if _target(path) == "torch_cpu")
    events = [json.loads(line) for line in (folder / "events.jsonl").read_text().splitlines()]
    ends = [event for event in events if event["event"] == "ends"]
    assert len(ends) >= 100
    assert [event for event in ends if event["status"]] == []


def _target(folder: Path) -> str | None:
    record = json.loads((folder / "record.json").read_text())
    return str(record["request"]["target"])
