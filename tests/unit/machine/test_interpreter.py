import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from stoker.machine.python import Probe, ask_interpreter, find_interpreter
from stoker.model.errors import MissingError

Script = Callable[[str, str], Path]


def probe(**environment: str) -> Probe:
    return Probe(environment={"PATH": "", **environment}, timeout_s=20.0)


def test_this_interpreter() -> None:
    interpreter = ask_interpreter(sys.executable, probe())
    python = interpreter.installation
    assert python.executable == sys.executable
    assert python.version == ".".join(str(part) for part in sys.version_info[:3])
    assert python.headers is None or (Path(python.headers) / "Python.h").is_file()
    assert python.packages["nvidia-ml-py"]
    assert list(python.packages) == sorted(python.packages)
    assert interpreter.prefix == sys.prefix


def test_another_interpreter(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "v"], check=True)
    path = find_interpreter("python", {"PATH": str(tmp_path / "v/bin")})
    interpreter = ask_interpreter(path, probe())
    assert interpreter.prefix == str(tmp_path / "v")
    assert interpreter.installation.packages == {}


def test_what_lies_in_the_current_folder_is_not_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')")
    info = tmp_path / "here-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: here\nVersion: 1.0\n")
    monkeypatch.chdir(tmp_path)
    assert "here" not in ask_interpreter(sys.executable, probe()).packages


def test_packages_half_removed_are_left_out_and_names_are_normal(tmp_path: Path) -> None:
    for name, metadata in {
        "A_b.C-2.0": "Name: A_b.C\nVersion: 2.0\n",
        "nameless-1.0": "Version: 1.0\n",
        "without-1.0": None,
    }.items():
        info = tmp_path / f"{name}.dist-info"
        info.mkdir()
        if metadata is not None:
            (info / "METADATA").write_text(metadata)
    packages = ask_interpreter(
        sys.executable, probe(PYTHONPATH=str(tmp_path))
    ).installation.packages
    assert packages["a-b-c"] == "2.0"
    assert not packages.keys() & {"nameless", "without"}


def test_other_output_before_and_after_the_answer_is_ignored(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('hello', end=' ')\n")
    interpreter = ask_interpreter(sys.executable, probe(PYTHONPATH=str(tmp_path)))
    assert interpreter.executable == sys.executable


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("kill -SEGV $$", "was killed by signal 11"),
        ("echo 3.12", "does not answer as a Python does"),
        ("echo '{}'", "does not answer as a Python does"),
    ],
)
def test_what_is_no_python_is_an_error(script: Script, body: str, problem: str) -> None:
    path = str(script("bin/python", body))
    with pytest.raises(MissingError) as caught:
        ask_interpreter(path, probe())
    assert caught.value.message == f"{path} {problem}"
    assert caught.value.hints


def test_a_python_that_is_not_there_is_an_error() -> None:
    with pytest.raises(MissingError, match=r"there is no Python at 'python9\.9'"):
        find_interpreter("python9.9", {"PATH": "/usr/bin"})
