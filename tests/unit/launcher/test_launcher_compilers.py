"""The launcher with real compilers, caches and build tools."""

import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from conftest import Need
from unit.launcher.preloaded import build
from unit.launcher.scripted import Launch, ScriptedGovernor, alive, children, result, until

PROGRAM = "#include <cstdio>\n#include <map>\nint main() { std::map<int, int> m; return m[1]; }\n"
THROUGH = """
#include <unistd.h>
int main(int count, char **words)
{
    char *command[count + 2];
    command[0] = "%s";
    command[1] = "%s";
    for (int at = 1; at <= count; at++)
        command[at + 1] = words[at];
    return execv(command[0], command);
}
"""
KERNEL = "__global__ void kernel(float *a) { a[threadIdx.x] += 1; }\n"


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_the_same_object_and_the_same_words(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path, need: Need, compiler: str
) -> None:
    need(compiler)
    governor.permit_everything()
    (tmp_path / "a.cc").write_text(PROGRAM)
    (tmp_path / "bad.cc").write_text(PROGRAM + "int x = y\nint z = w;\n")
    seen = []
    befores: list[list[str]] = [[], [str(launch.launcher)]]
    for before in befores:
        command = [*before, compiler, "-O1", "-g", "-Wall", "-MD", "-MF", "a.d", "-c"]
        good = launch.program([*command, "a.cc", "-o", "a.o"], cwd=tmp_path)
        assert result(good) == (0, b"", b"")
        produced = ((tmp_path / "a.o").read_bytes(), (tmp_path / "a.d").read_text())
        bad = launch.program([*command, "bad.cc"], cwd=tmp_path, stderr=subprocess.STDOUT)
        seen.append((produced, *result(bad)[:2]))
        (tmp_path / "a.o").unlink()
    assert seen[0] == seen[1]
    assert seen[0][1] == 1


def test_ccache_asks_only_for_what_it_has_not(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path, need: Need
) -> None:
    ccache = need("ccache")
    asked = governor.permit_everything()
    launch.environment |= {"CCACHE_PREFIX": str(launch.launcher), "CCACHE_DIR": str(tmp_path / "c")}
    (tmp_path / "a.c").write_text("int f(void) { return 1; }\n")
    for _ in range(3):
        compiled = launch.program([ccache, "gcc", "-c", "a.c", "-o", "a.o"], cwd=tmp_path)
        assert result(compiled) == (0, b"", b"")
    assert len([ask for ask in asked if b"-c" in ask]) == 1


def test_nvcc_with_a_host_compiler_of_ours(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path, need: Need
) -> None:
    """One question for nvcc and all it starts; nothing stays behind when it is killed."""
    (tmp_path / "a.cu").write_text(KERNEL)
    question = [need("nvcc"), "--dryrun", "-c", "a.cu"]
    dry = subprocess.run(question, cwd=tmp_path, capture_output=True, text=True, check=True)
    (folder,) = re.findall(r"^#\$ _HERE_=(.*)$", dry.stderr, re.MULTILINE)
    nvcc = f"{folder}/nvcc"  # the one on the PATH may be a script
    (tmp_path / "ours").mkdir()
    for name in ("gcc", "g++"):
        source = THROUGH % (launch.launcher, need(name))
        build(tmp_path / "ours", name, source)
    (tmp_path / "a.cu").write_text(KERNEL)
    launch.environment["PATH"] = f"{tmp_path}/ours:{launch.environment['PATH']}"
    process = launch(
        *(nvcc, "-ccbin", tmp_path / "ours/g++", "-t", "2", "-c", "a.cu", "-o", "a.o"), cwd=tmp_path
    )
    step = governor.accept()
    assert step.expect("ask")[3] == b"2"
    group = step.permit()
    steps = Path(launch.environment["STOKER_SCRATCH"])
    until(lambda: bool(list(steps.glob("stoker-*/tmpxft*"))), "nvcc's intermediate files")
    step.kill()
    assert list(steps.iterdir()) == []
    assert not alive(group)
    step.permit()
    done = step.expect("done")
    assert done[:2] == [b"0", b"0"]
    assert int(done[4]) > 10 << 20
    step.say("release")
    assert result(process) == (0, b"", b"")
    assert (tmp_path / "a.o").exists()
    assert list(steps.iterdir()) == []
    assert not governor.is_asked()


@pytest.fixture
def project(tmp_path: Path, need: Need, launch: Launch) -> Path:
    """A configured build folder with the launcher before every compile and link."""
    source = tmp_path / "source"
    source.mkdir()
    (source / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.21)\nproject(p C)\nadd_executable(p a.c b.c)\n"
        "add_executable(slow s.c)\n"
    )
    (source / "a.c").write_text("int b(void);\nint main(void) { return b(); }\n")
    (source / "b.c").write_text("int b(void) { return 0; }\n")
    (source / "s.c").write_text("int main(void) { return 0; }\n")
    configure = [
        *(need("cmake"), "-G", "Ninja", "-S", str(source), "-B", str(tmp_path / "build")),
        *(f"-DCMAKE_C_{kind}_LAUNCHER={launch.launcher}" for kind in ("COMPILER", "LINKER")),
    ]
    need("ninja")
    subprocess.run(configure, check=True, capture_output=True)
    return tmp_path / "build"


def test_a_project_of_cmake(launch: Launch, governor: ScriptedGovernor, project: Path) -> None:
    asked = governor.permit_everything()
    assert result(launch.program(["ninja", "p"], cwd=project))[0] == 0
    outputs = {ask[ask.index(b"-o") + 1] for ask in asked}
    assert outputs == {b"CMakeFiles/p.dir/a.c.o", b"CMakeFiles/p.dir/b.c.o", b"p"}
    assert {ask[2] for ask in asked} == {os.fsencode(project)}
    assert result(launch.program(["ninja", "p"], cwd=project))[1] == b"ninja: no work to do.\n"


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGKILL"])
def test_an_interrupted_ninja(
    launch: Launch, governor: ScriptedGovernor, project: Path, name: str
) -> None:
    ninja = launch.program(["ninja", "-j8"], cwd=project)
    steps = [governor.asked() for _ in range(3)]
    keeper = steps[0].permit()
    shells = children(ninja.pid)
    everyone = [keeper, *shells, *(pid for shell in shells for pid in children(shell))]
    ninja.send_signal(signal.Signals[name])
    assert ninja.wait(60) != 0
    until(lambda: not any(alive(pid) for pid in everyone), "no launcher is left")
    governor.permit_everything()
    assert result(launch.program(["ninja"], cwd=project))[0] == 0
