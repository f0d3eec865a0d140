"""What --try changes, what is known of the age of tools and sources, and where it is asked."""

import os
import shlex
import subprocess
import sys
from io import BytesIO
from pathlib import Path

import pytest

from stoker.diagnose.about import About
from stoker.diagnose.ages import suspects, uploaded_month, versions_of
from stoker.diagnose.here import Here
from stoker.diagnose.lines import Texts
from stoker.diagnose.sieve import read_log
from stoker.diagnose.suspicions import Suspicion, suspicions
from stoker.diagnose.trying import together
from stoker.diagnose.values import FailedRun
from stoker.diagnose.verdict import diagnose

OF_GCC = """mill.c:3:5: error: 'grind' undeclared (first use in this function)
make: *** [Makefile:2: mill.o] Error 1
"""
OF_PIP = """Collecting mill==1.1
  Downloading mill-1.1.tar.gz (272 kB)
  error: subprocess-exited-with-error
      AttributeError: module 'ast' has no attribute 'Str'
ERROR: Failed to build 'mill' when getting requirements to build wheel
"""


def program(folder: Path, name: str, says: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\necho '{says}'\n")
    (folder / name).chmod(0o755)


def found(log: str, about: About, source: str | None = None) -> list[Suspicion]:
    read = read_log(BytesIO(log.encode()))
    texts = Texts([line.text for line in read.lines])
    return [*suspicions(diagnose(read, about=about), about.of_log(read.lines), texts, source)]


def of_run(command: list[str], folder: Path, path: str = "") -> About:
    run = FailedRun(command=shlex.join(command), folder=str(folder))
    environment = {**os.environ, "PATH": f"{path}:{os.environ['PATH']}"}
    return About(run=run, here=Here(environment))


def test_an_older_python_that_is_installed_builds_in_place_of_the_one_that_the_command_names(
    tmp_path: Path,
) -> None:
    program(tmp_path / "bin", "python3.8", "Python 3.8.20")
    (tmp_path / "venv" / "bin").mkdir(parents=True)
    (tmp_path / "venv" / "bin" / "python3").symlink_to(sys.executable)
    command = ["sh", "-c", f"{tmp_path}/venv/bin/pip wheel mill"]
    tried = found(OF_PIP, of_run(command, tmp_path, str(tmp_path / "bin")))
    older = next(one.fix for one in tried if "with Python 3.8" in one.fix.text)
    assert older.commands[0].startswith("python3.8 -m venv .venv-3.8")
    assert older.build == f"sh -c '{tmp_path}/.venv-3.8/bin/pip wheel mill'"


def test_two_packages_that_are_kept_old_are_kept_old_together(tmp_path: Path) -> None:
    log = f"mill.pyx:3:1: undeclared name not builtin: long\n{OF_PIP}"
    tried = found(log, of_run(["pip", "wheel", "mill"], tmp_path))
    limits = [one for one in tried if any("build-constraints" in line for line in one.fix.commands)]
    names = ("Cython<", "setuptools<")
    of_each = [next(one for one in limits if name in one.fix.commands[0]) for name in names]
    script = "\n".join(line for line in together(of_each).fix.commands if line[:4] == "echo")
    subprocess.run(["sh", "-ec", script], cwd=tmp_path, check=True)
    assert len((tmp_path / "build-constraints.txt").read_text().splitlines()) == 2


def test_old_c_is_tried_for_any_error_in_c(tmp_path: Path) -> None:
    tried = found(OF_GCC, of_run(["make"], tmp_path))
    assert any(one.fix.build == "make 'CC=cc -std=gnu89'" for one in tried)


def test_what_changed_before_the_source_is_not_suspected(tmp_path: Path) -> None:
    about = of_run(["make"], tmp_path)
    log = f"gcc version 15.2.0 (GCC)\n{OF_GCC.replace('mill.c:', 'mill.cpp:')}"
    before, after = found(log, about, "2020-01"), found(log, about, "2026-10")
    assert "gcc-template-bodies" in {one.cause for one in before}
    assert "gcc-template-bodies" not in {one.cause for one in after}


def test_installed_tools_are_asked_after_a_run_and_never_for_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path / "bin", "cmake", "cmake version 4.1.2")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    texts, run = Texts(["CMake Error at CMakeLists.txt:3"]), FailedRun(command="cmake .")
    assert versions_of(texts)("CMake") is None
    assert versions_of(texts, run)("CMake") == "4.1.2"
    assert "CMake" in {one.product for one in suspects(texts, "2019-01", run)}
    assert suspects(texts, "2019-01") == ()


def test_a_package_is_dated_by_its_upload(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mill").mkdir()
    (tmp_path / "mill" / "index.html").write_text(
        '<a href="mill-1.1.tar.gz" data-upload-time="2020-06-23T21:11:46.9Z">mill-1.1.tar.gz</a>'
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", tmp_path.as_uri())
    assert uploaded_month(Texts(OF_PIP.splitlines())) == "2020-06"
    assert uploaded_month(Texts(["Downloading other-1.1.tar.gz"])) is None


def test_another_source_is_never_tried(tmp_path: Path) -> None:
    """A newer release that builds proves nothing about the failure of this one."""
    log = "ModuleNotFoundError: No module named 'numpy.distutils'\nerror: setup.py failed\n"
    tried = found(log, of_run(["sh", "-c", "python setup.py build"], tmp_path))
    assert tried
    assert not [line for one in tried for line in one.fix.commands if line.startswith("git ")]
