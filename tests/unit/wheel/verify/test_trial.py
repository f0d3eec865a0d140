"""Which interpreter a wheel is tried with, and what of it is imported."""

import os
import sys
from pathlib import Path

import pytest
from packaging import tags

from artifacts import artifact, wheel_facts
from conftest import Need
from stoker.model.errors import MissingError, UsageError
from stoker.model.finding import Finding, Severity
from stoker.wheel.verify.tested import WheelUnderTest
from stoker.wheel.verify.trial import fitting_python, top_modules, try_wheel
from wheel_files import make_wheel, members, wheel_bytes

PYTHON = sys.executable
HERE = next(iter(tags.platform_tags()))


def _case(*told: str, name: str = "mill") -> WheelUnderTest:
    wheel = wheel_facts(name, tags=told)
    facts = artifact(wheel=wheel)
    return WheelUnderTest(file_name="mill.whl", facts=facts, metadata=wheel, members=())


@pytest.mark.parametrize("tag", ["py3-none-any", f"py3-none-{HERE}", f"cp39-abi3-{HERE}"])
def test_our_own_python_will_do(tag: str) -> None:
    assert fitting_python(_case(tag)) == sys.executable


@pytest.mark.parametrize("tag", ["py3-none-win_amd64", "cp312-cp312-manylinux_2_28_riscv128"])
def test_a_wheel_for_another_platform_cannot_be_tried(tag: str) -> None:
    with pytest.raises(UsageError, match="cannot run here: it is for") as raised:
        fitting_python(_case(tag))
    assert "leave out --run" in raised.value.hints[0]


def test_a_python_that_is_not_here() -> None:
    with pytest.raises(MissingError, match="no Python for cp399"):
        fitting_python(_case(f"cp399-cp399-{HERE}"))


def test_what_users_import() -> None:
    members = [
        "mill/__init__.py",
        "mill/grind.py",
        "mill/sub/__init__.py",
        "sift.py",
        "native.cpython-312-x86_64-linux-gnu.so",
        "stable.abi3.so",
        "_private.so",
        "tests/__init__.py",
        "data/table.csv",
        "mill-1.2.data/platlib/press/__init__.py",
        "mill-1.2.dist-info/METADATA",
    ]
    assert top_modules(members) == ["mill", "native", "press", "sift", "stable"]


# As much of PyTorch as the trial of an extension uses; it runs the real ninja.
TORCH = {
    "torch/__init__.py": b"def ones(count): return [1.0] * count\n",
    "torch/utils/__init__.py": b"",
    "torch/utils/cpp_extension.py": b"""
import setuptools, subprocess, tempfile
from types import SimpleNamespace
def load_inline(**_):
    # What a killed step leaves is deleted with the folder of the trial.
    assert "stoker-trial-" in tempfile.gettempdir()
    subprocess.run(["ninja", "--version"], check=True)
    return SimpleNamespace(twice=lambda x: SimpleNamespace(tolist=lambda: [2.0 * y for y in x]))
""",
    # Newer Pythons make environments without it.
    "setuptools/__init__.py": b"",
}


def _extension_trial(folder: Path, path: str) -> Finding:
    wheel = make_wheel(folder, wheel_bytes(members(**TORCH)))
    case = _case("py3-none-any", name="torch")
    environment = {**os.environ, "PATH": path, "PIP_NO_INDEX": "1"}
    found = try_wheel(wheel, case, python=PYTHON, gpus=(), environment=environment)
    return next(finding for finding in found if finding.name == "trial-extension")


def _only(folder: Path, **programs: str) -> str:
    folder.mkdir()
    for name, program in programs.items():
        (folder / name.replace("cxx", "c++").replace("_", "-")).symlink_to(program)
    return str(folder)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ninja", pytest.param("ninja_build", marks=pytest.mark.heavy)])
def test_the_ninja_of_the_machine_serves_where_there_is_no_index(
    name: str, need: Need, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _only(tmp_path / "bin", cxx=need("c++"), **{name: need("ninja")})
    monkeypatch.setattr(sys, "executable", str(tmp_path / "elsewhere" / "python"))
    finding = _extension_trial(tmp_path, path)
    assert (finding.severity, finding.evidence) == (Severity.OK, "compiled, loaded and called")


@pytest.mark.heavy
def test_without_ninja_and_an_index_an_extension_is_not_tried(
    need: Need, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _only(tmp_path / "bin", cxx=need("c++"))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "elsewhere" / "python"))
    finding = _extension_trial(tmp_path, path)
    assert finding.severity is Severity.NOTE
    assert finding.title.startswith("skipped: ")
    assert finding.evidence.startswith("ninja cannot be installed: ")
