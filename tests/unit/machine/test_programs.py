from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Need
from stoker.knowledge.tools import KnownProgram, programs
from stoker.machine.file_tree import FileTree
from stoker.machine.python import Probe
from stoker.machine.tools import read_program
from stoker.model.machine import Tool

Script = Callable[[str, str], Path]
PRINTED = {
    "gcc": ("gcc (Debian 12.2.0-14+deb12u1) 12.2.0\nCopyright (C) 2022", "12.2.0"),
    "g++": ("g++ (crosstool-NG 1.25.0 (special)) 13.3\n", "13.3"),
    "clang": ("Ubuntu clang version 18.1.3 (1ubuntu1)\nTarget: x86_64-pc-linux-gnu", "18.1.3"),
    "cc": ("Apple clang version 15.0.0 (clang-1500.3.9.4)\n", "15.0.0"),
    "cmake": ("cmake version 3.28.0-rc1\n", "3.28.0"),
    "ninja": ("1.11.1.git.kitware.jobserver-1\n", "1.11.1"),
    "make": ("GNU Make 4.3\nBuilt for aarch64-unknown-linux-gnu", "4.3"),
    "ccache": ("ccache version 4.9.1\nFeatures: file-storage", "4.9.1"),
    "mold": ("mold 2.30.0 (compatible with GNU ld)\n", "2.30.0"),
    "lld": ("Debian LLD 14.0.6 (compatible with GNU linkers)\n", "14.0.6"),
    "gold": ("GNU gold (GNU Binutils for Debian 2.40) 1.16\n", "1.16"),
    "docker": ("Docker version 24.0.5, build ced0996\n", "24.0.5"),
    "git": ("git version 2.39.5\n", "2.39.5"),
    "icpx": ("Intel(R) oneAPI DPC++/C++ Compiler 2025.0.4 (2025.0.4.20241205)\n", "2025.0.4"),
    "swig": ("\nSWIG Version 4.1.0\n\nCompiled with g++ [x86_64-pc-linux-gnu]\n", "4.1.0"),
    "hipcc": ("HIP version: 6.2.41134-65d174c3e\nAMD clang version 18.0.0git", "6.2.41134"),
}


def program(name: str) -> KnownProgram:
    return next(row for row in programs() if row.name == name)


def read(name: str, folder: Path, timeout_s: float = 20.0, **environment: str) -> tuple[Tool, ...]:
    """``folder`` is all there is on the PATH."""
    probe = Probe(environment={"PATH": str(folder), **environment}, timeout_s=timeout_s)
    return read_program(program(name), FileTree(folder / "nothing"), probe, beside=())


@pytest.mark.parametrize("name", PRINTED)
def test_versions(name: str, script: Script, tmp_path: Path) -> None:
    printed, version = PRINTED[name]
    (tmp_path / "printed").write_text(printed)
    asked = f'[ "$1" = {program(name).asked} ]'
    path = script(f"bin/{program(name).names[0]}", f"{asked} && /bin/cat {tmp_path}/printed")
    assert read(name, tmp_path / "bin") == (Tool(name=name, path=str(path), version=version),)


def test_the_real_swig(need: Need) -> None:
    """SWIG 4.1 takes -version only: `doctor` said that there is none."""
    assert read("swig", Path(need("swig")).parent)[0].version


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    assert read("gcc", tmp_path) == ()


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("kill -SEGV $$", "was killed by signal 11"),
        ("exit 3", "ended with status 3"),
        ("echo what do you mean", "does not tell its version"),
        (r"printf '\377\000\200'", "does not tell its version"),
    ],
    ids=["crashes", "fails", "babbles", "garbage"],
)
def test_a_program_that_does_not_work(
    script: Script, tmp_path: Path, body: str, problem: str
) -> None:
    path = script("bin/gcc", body)
    assert read("gcc", tmp_path / "bin") == (Tool(name="gcc", path=str(path), problem=problem),)


@pytest.mark.parametrize(
    ("load", "problem"),
    [
        (0.0, "did not answer in time"),
        (99.0, "did not answer in time: the machine is busy, try again later"),
    ],
)
def test_a_program_that_hangs(
    script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, load: float, problem: str
) -> None:
    monkeypatch.setattr("os.getloadavg", lambda: (load, load, load))
    monkeypatch.setattr("os.cpu_count", lambda: 33)
    script("bin/gcc", "exec /bin/sleep 60")
    (tool,) = read("gcc", tmp_path / "bin", timeout_s=0.5)
    assert tool.problem == problem


def test_a_file_that_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "gcc").write_bytes(b"\x7fELF but not really")
    (tmp_path / "gcc").chmod(0o755)
    (tool,) = read("gcc", tmp_path)
    assert tool.version is None
    assert tool.problem == f"cannot run {tmp_path}/gcc: Exec format error"


def test_the_variable_is_taken_and_its_launcher_passed_over(script: Script, tmp_path: Path) -> None:
    script("bin/ccache", "echo ccache version 4.9.1")
    script("bin/cc", "echo 'cc (A) 1.0'")
    path = script("bin/my-gcc", "echo 'my-gcc (B) 14.1.0'")
    (tool,) = read("cc", tmp_path / "bin", CC="ccache my-gcc -m64")
    assert tool == Tool(name="cc", path=str(path), version="14.1.0")


@pytest.mark.parametrize(
    ("command", "path", "problem"),
    [
        ("/no/gcc -m64", "/no/gcc", "$CC names no program"),
        ("ccache", "ccache", "$CC names no program"),
        ("gcc '", "gcc '", "$CC: No closing quotation"),
    ],
)
def test_a_variable_that_names_nothing(
    tmp_path: Path, command: str, path: str, problem: str
) -> None:
    assert read("cc", tmp_path, CC=command) == (Tool(name="cc", path=path, problem=problem),)


def test_an_empty_variable_is_none(script: Script, tmp_path: Path) -> None:
    path = script("bin/gcc", "echo 'gcc (A) 12.2.0'")
    assert read("cc", tmp_path / "bin", CC=" ")[0].path == str(path)


def test_those_beside_the_interpreter_come_second_and_each_file_once(
    script: Script, tmp_path: Path
) -> None:
    first = script("bin/ninja", "echo 1.11.1")
    second = script("venv/ninja", "echo 1.13.2")
    (tmp_path / "links").mkdir()
    (tmp_path / "links/ninja").symlink_to(first)
    probe = Probe(environment={"PATH": str(tmp_path / "bin")}, timeout_s=5.0)
    beside = (str(tmp_path / "links"), str(tmp_path / "venv"))
    tools = read_program(program("ninja"), FileTree(tmp_path), probe, beside)
    assert [tool.path for tool in tools] == [str(first), str(second)]


def test_compilers_in_folders_of_their_own(script: Script, tmp_path: Path) -> None:
    path = script("opt/rocm-6.2.0/bin/hipcc", "echo HIP version: 6.2.41134")
    probe = Probe(environment={"PATH": ""}, timeout_s=5.0)
    (tool,) = read_program(program("hipcc"), FileTree(tmp_path), probe, beside=())
    assert tool.path == str(path)


def test_answers_are_asked_for_in_english(script: Script, tmp_path: Path) -> None:
    script("bin/git", 'test "$LC_ALL" = C && echo git version 2.39.5')
    (tool,) = read("git", tmp_path / "bin", LC_ALL="de_DE.UTF-8")
    assert tool.version == "2.39.5"
