"""The gate belongs to the job of the build tool: how many run at once, and what they wait for."""

import os
import shlex
import sys
from collections.abc import Iterable

import msgspec
import pytest

from conftest import Need
from governed import Build, Finished, finished
from memory_groups import MakeGroup, MemoryGroup
from stoker.model.runs import RunSummary

MIB = 1 << 20
TOOLS = ("ninja", "make")
# gcc needs 70 MiB for it, and half a second of CPU time.
LARGE = f"int large[] = {{{','.join(map(str, range(200_000)))}}};\n"
# What torch.utils.cpp_extension does where two processes build the same extension.
BATON = """
import os, subprocess, sys, time
while True:
    try:
        baton = os.open("baton", os.O_CREAT | os.O_EXCL)
        break
    except FileExistsError:
        while os.path.exists("baton"):
            time.sleep(0.1)
time.sleep(0.2)
status = subprocess.call(sys.argv[1:])
os.close(baton)
os.remove("baton")
sys.exit(status)
"""


def project(build: Build, need: Need, commands: Iterable[str]) -> list[str]:
    """Write the same jobs for ninja and for make; return what they make."""
    need("make")
    names = []
    ninja = ["rule job\n  command = $run && touch $out\n"]
    makefile = []
    for number, command in enumerate(commands):
        names.append(f"job{number}")
        ninja.append(f"build job{number}: job\n  run = {command}\n")
        makefile.append(f"job{number}:\n\t{command} && touch $@\n")
    (build.folder / "build.ninja").write_text("\n".join(ninja))
    (build.folder / "Makefile").write_text(f"all: {' '.join(names)}\n" + "\n".join(makefile))
    (build.folder / "a.c").write_text("int a;\n")
    return names


def words_of(tool: str, jobs: int) -> tuple[str, ...]:
    return (tool, f"-j{jobs}")


def made(build: Build, names: Iterable[str]) -> list[str]:
    return [name for name in names if (build.folder / name).exists()]


def python(name: str, *words: str) -> str:
    return shlex.join([sys.executable, "-S", name, *words])


def in_group(build: Build, group: MemoryGroup, *words: str) -> tuple[Finished, RunSummary]:
    file = build.folder / "summary.json"
    run = build.start(*words, options=["--summary", str(file)], prefix=group.enter)
    done = finished(run)
    return done, msgspec.json.decode(file.read_bytes(), type=RunSummary)


@pytest.fixture
def group(make_group: MakeGroup) -> MemoryGroup:
    group = make_group("gate")
    group.set_limit(1024 * MIB)
    return group


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("cpus", ["1", "2"])
def test_jobs_that_compile_while_they_hold_a_lock(
    build: Build, need: Need, tool: str, cpus: str
) -> None:
    """The compiler of the one that has it does not wait for a CPU that the others hold."""
    need("flock")
    (build.folder / "locked.sh").write_text("exec 9>lock; flock 9; sleep 0.2; gcc -c a.c -o a.o\n")
    names = project(build, need, ["sh locked.sh"] * 8)
    done = build.run(*words_of(tool, 8), options=["--cpus", cpus])
    assert done.status == 0, done
    assert made(build, names) == names


@pytest.mark.parametrize("tool", TOOLS)
def test_jobs_that_compile_while_they_hold_the_baton_of_torch(
    build: Build, need: Need, tool: str
) -> None:
    (build.folder / "baton.py").write_text(BATON)
    job = python("baton.py", "gcc", "-c", "a.c", "-o", "a.o")
    names = project(build, need, [job] * 6)
    done = build.run(*words_of(tool, 6), options=["--cpus", "1"])
    assert done.status == 0, done
    assert made(build, names) == names


@pytest.mark.slow
@pytest.mark.parametrize("way", ["ninja", "make -j4"])
def test_compiles_of_another_user_run_as_many_at_once_as_without_stoker(
    build: Build, need: Need, group: MemoryGroup, way: str
) -> None:
    """They cannot ask, but their jobs can."""
    if os.geteuid() != 0:
        pytest.skip("only root becomes another user")
    need("setpriv")
    become = "setpriv --reuid=65534 --regid=65534 --clear-groups"
    names = project(build, need, [f"{become} gcc -c large.c -o o{i}.o" for i in range(12)])
    (build.folder / "large.c").write_text(LARGE)
    build.folder.chmod(0o777)
    group.set_limit(500 * MIB)
    done, summary = in_group(build, group, *way.split())
    assert done.status == 0, done
    assert made(build, names) == names
    assert summary.oom_kills == 0


@pytest.mark.slow
@pytest.mark.parametrize("tool", TOOLS)
def test_a_job_that_has_compiled_still_counts(
    build: Build, need: Need, group: MemoryGroup, tool: str
) -> None:
    """It compiles something tiny, then needs a third of the memory."""
    code = "import time; memory = b'x' * (300 << 20); time.sleep(1)"
    (build.folder / "hold.py").write_text(code)
    job = f"sleep 0.1; gcc -c a.c -o a$$$$.o && {python('hold.py')}"
    names = project(build, need, [job] * 8)
    done, summary = in_group(build, group, *words_of(tool, 8))
    assert done.status == 0, done
    assert made(build, names) == names
    assert summary.oom_kills == 0


@pytest.mark.slow
@pytest.mark.parametrize("tool", TOOLS)
def test_a_timeout_begins_after_the_wait(build: Build, need: Need, tool: str) -> None:
    """All of them together take longer than the time that each has."""
    need("timeout")
    (build.folder / "compile.sh").write_text("sleep 0.8\n")
    job = "timeout 8 ./gcc compile.sh"  # a shell with the name of a compiler
    names = project(build, need, [job] * 48)
    done = build.run(*words_of(tool, 4), options=["--cpus", "2"])
    assert done.status == 0, done
    assert made(build, names) == names


# Ends only when as many as the build tool was told to run have begun.
MEET = """
import os, sys, time
open("begun-" + sys.argv[1], "w").close()
for _ in range(600):
    if sum(name.startswith("begun-") for name in os.listdir()) >= 32:
        sys.exit()
    time.sleep(0.1)
sys.exit("the others have not begun")
"""


@pytest.mark.parametrize("tool", TOOLS)
def test_jobs_that_wait_have_the_number_of_the_user(build: Build, need: Need, tool: str) -> None:
    """Tests, downloads and remote executors take no CPU."""
    (build.folder / "meet.py").write_text(MEET)
    names = project(build, need, [python("meet.py", str(number)) for number in range(32)])
    done = build.run(*words_of(tool, 32), options=["--cpus", "2"])
    assert done.status == 0, done
    assert made(build, names) == names


# Notes how many of them run at once.
CROWD = """
import os, sys, time
open("now-" + sys.argv[1], "w").close()
with open("crowd", "a") as file:
    print(sum(name.startswith("now-") for name in os.listdir()), file=file)
time.sleep(0.3)
os.remove("now-" + sys.argv[1])
"""


@pytest.mark.parametrize(("words", "most"), [("ninja", 4), ("ninja -j3", 3), ("make -j3", 3)])
def test_jobs_that_do_not_compile_are_no_more_than_without_stoker(
    build: Build, need: Need, words: str, most: int
) -> None:
    (build.folder / "crowd.py").write_text(CROWD)
    names = project(build, need, [python("crowd.py", str(number)) for number in range(16)])
    done = build.run(*words.split(), options=["--cpus", "2"])
    assert done.status == 0, done
    assert made(build, names) == names
    assert max(map(int, (build.folder / "crowd").read_text().split())) <= most


# A client of the job server: it takes all tokens that are there, and gives them back.
CLIENT = """
import os, re
flags = os.environ.get("MAKEFLAGS", "")
found = re.search(r"--jobserver-(?:auth|fds)=(?:fifo:(\\S+)|(\\d+),(\\d+))", flags)
if found[1]:
    taken_from = given_to = os.open(found[1], os.O_RDWR | os.O_NONBLOCK)
else:
    # A new description of the pipe, so that others still wait when they read.
    taken_from = os.open(f"/proc/self/fd/{found[2]}", os.O_RDONLY | os.O_NONBLOCK)
    given_to = int(found[3])
try:
    tokens = os.read(taken_from, 1000)
except BlockingIOError:
    tokens = b""
os.write(given_to, tokens)
with open("tokens", "a") as file:
    print(len(tokens), file=file)
"""


@pytest.mark.parametrize("compiles", [False, True])
def test_a_client_of_the_job_server_gets_tokens_of_the_users_number(
    build: Build, need: Need, compiles: bool
) -> None:
    """Linkers with lto, cargo and others start as many processes as there are tokens."""
    (build.folder / "client.py").write_text(CLIENT)
    project(build, need, [])
    run = python("client.py")
    if compiles:  # a program under a compiler's name, as a driver that optimizes at link time
        (build.folder / "gcc").unlink()
        (build.folder / "gcc").symlink_to(sys.executable)
        run = "./gcc -S client.py"
    (build.folder / "Makefile").write_text(f"all: a b\na b:\n\t+{run}\n\ttouch $@\n")
    done = build.run("make", "-j4", options=["--cpus", "2"])
    assert done.status == 0, done
    check_tokens(build)


def test_respected_jobs_leave_the_job_server_alone(build: Build, need: Need) -> None:
    (build.folder / "client.py").write_text(CLIENT)
    project(build, need, [])
    (build.folder / "Makefile").write_text(f"all: a b\na b:\n\t+{python('client.py')}\n")
    done = build.run("make", "-j4", options=["--cpus", "2", "--respect-jobs"])
    assert done.status == 0, done
    check_tokens(build)


def check_tokens(build: Build) -> None:
    tokens = list(map(int, (build.folder / "tokens").read_text().split()))
    assert len(tokens) == 2
    assert 2 <= max(tokens) <= 3, "one of four is the job's own, and the other job may have one"
