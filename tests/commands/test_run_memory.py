"""Builds that need more memory than there is, in a cgroup with a real limit."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from governed import WAIT, Build, alive, finished, wait_until
from memory_groups import MakeGroup, MemoryGroup
from stoker.model.runs import Outcome, RunSummary

MIB = 1 << 20
LIMIT = 400 * MIB

# A compiler's life in miniature: memory grows for a while, then it ends.
HOG = """
import sys, time
whole, seconds = int(sys.argv[1]) << 20, float(sys.argv[2])
pieces = []
for piece in range(20):
    pieces.append(b"x" * (whole // 20))
    time.sleep(seconds / 20)
"""
# Two of these do not fit. At first they hold what they have until the other one was killed; one
# that was killed itself waits for the other to be done.
RIVAL = """
import os, sys, time
own, other = sys.argv[1:]
with open("attempts-" + own, "a") as file:
    file.write("attempt\\n")

def attempts(name):
    try:
        return len(open("attempts-" + name).readlines())
    except FileNotFoundError:
        return 0

def wait(condition):
    while not (condition() or os.path.exists(other)):
        time.sleep(0.01)

if attempts(own) == 1:
    wait(lambda: attempts(other))
    memory = b"x" * (250 << 20)
    wait(lambda: attempts(other) > 1)
else:
    wait(lambda: own < other and attempts(other) > 1)
    memory = b"x" * (250 << 20)
"""
# Takes more than there is, when it is told to; once only.
VICTIM = """
import os, time
if not os.path.exists("pid"):
    with open("pid", "w") as file:
        print(os.getpid(), file=file)
    while not os.path.exists("go"):
        time.sleep(0.01)
    memory = b"x" * (1000 << 20)
"""


@pytest.fixture
def group(make_group: MakeGroup) -> MemoryGroup:
    group = make_group("run")
    group.set_limit(LIMIT)
    return group


def hog(mebibytes: int, seconds: float = 0.5) -> str:
    return f"'{sys.executable}' -S hog.py {mebibytes} {seconds}"


@pytest.fixture
def heavy(build: Build) -> Build:
    """Six steps of which two fit at a time, and light ones among them."""
    (build.folder / "hog.py").write_text(HOG)
    for number in range(6):
        build.step(f"heavy{number}", hog(150))
        build.step(f"light{number}", hog(5, 0.1))
    return build


@pytest.mark.slow
def test_a_build_that_ninja_alone_loses(heavy: Build, group: MemoryGroup) -> None:
    plain = subprocess.run(
        [*group.enter, "ninja", "-j6", "-k0"], cwd=heavy.folder, capture_output=True, check=False
    )
    assert plain.returncode != 0
    assert len(heavy.made()) < 12
    for name in heavy.made():
        (heavy.folder / name).unlink()
    done = finished(heavy.start(prefix=group.enter))
    assert done.status == 0, done
    assert len(heavy.made()) == 12


def test_an_oom_kill_is_a_retry_that_ninja_never_notices(build: Build, group: MemoryGroup) -> None:
    """A policy that ignores memory lets the kernel kill steps."""
    (build.folder / "rival.py").write_text(RIVAL)
    build.step("one", f"'{sys.executable}' -S rival.py one two")
    build.step("two", f"'{sys.executable}' -S rival.py two one")
    done = finished(build.start(prefix=group.enter, options=["--policy", "fixed:2"]))
    assert done.status == 0, done
    assert b"Killed" not in done.out
    outcomes = {attempt.outcome for attempt in build.attempts()}
    assert outcomes == {Outcome.OOM, Outcome.DONE}
    assert "out of memory after" in done.err


def test_a_kill_in_another_group_than_the_governors_is_a_retry(
    build: Build, group: MemoryGroup, make_group: MakeGroup, tmp_path: Path
) -> None:
    """The governor sleeps through it: all that it ever reads is that there is plenty of memory."""
    own, other = (make_group(name, inside=group) for name in ("own", "other"))
    first = build.start("sh", "-c", WAIT, prefix=own.enter)
    wait_until(build.sockets, "the governor listens")
    joined = Build(tmp_path / "joined", build.home)
    (joined.folder / "victim.py").write_text(VICTIM)
    joined.step("one", f"'{sys.executable}' -S victim.py")
    second = joined.start(prefix=other.enter)
    victim = joined.pid("pid")
    (governor,) = build.governors()
    os.kill(governor, signal.SIGSTOP)
    joined.let_go()
    wait_until(lambda: not alive(victim), "the kernel has killed it")
    os.kill(governor, signal.SIGCONT)
    done = finished(second)
    assert done.status == 0, done
    assert [attempt.outcome for attempt in joined.attempts()] == [Outcome.OOM, Outcome.DONE]
    build.let_go()
    assert finished(first).status == 0


@pytest.mark.slow
@pytest.mark.parametrize("way", ["pipe", "file", "fifo"])
def test_a_compile_of_a_stream_is_not_started_twice(
    build: Build, group: MemoryGroup, way: str
) -> None:
    """The second time it would read nothing, and make an empty object with success."""
    (build.folder / "hog.py").write_text(HOG)
    # gcc is a shell here, which reads its commands from stdin.
    compiler = f"'{build.launcher}' ./gcc -s -- -o made"
    start = {
        "pipe": f"cat source | {compiler}",
        "file": f"{compiler} < source",
        "fifo": f"mkfifo fifo; cat source > fifo & {compiler.replace('-s --', 'fifo')}",
    }[way]
    (build.folder / "source").write_text(f"echo x >> attempts\n{hog(1000)} && echo whole > made\n")
    done = finished(build.start("sh", "-c", start, prefix=group.enter))
    assert done.status != 0, done
    assert (build.folder / "attempts").read_text() == "x\n"
    assert [attempt.outcome for attempt in build.attempts()] == [Outcome.FAILED]


def test_a_shell_with_an_empty_environment_is_not_started_twice(
    build: Build, group: MemoryGroup
) -> None:
    """Only the compile that it starts is, and its temporary files are not ours to delete."""
    (build.folder / "victim.py").write_text(VICTIM)
    build.let_go()
    (build.folder / "source").write_text(f"'{sys.executable}' -S victim.py && echo whole > made\n")
    inner = "echo x >> attempts; mktemp > name; ./gcc source -o made; cat made"
    shell = f"env -i PATH=/usr/bin:/bin sh -c '{inner}' && test -e $(cat name)"
    done = finished(build.start("sh", "-c", shell, prefix=group.enter))
    assert done.status == 0, done
    assert done.out == b"whole\n"
    assert (build.folder / "attempts").read_text() == "x\n"
    outcomes = [attempt.outcome for attempt in build.attempts()]
    assert outcomes == [Outcome.OOM, Outcome.DONE]
    Path((build.folder / "name").read_text().strip()).unlink()


def test_a_step_that_can_never_fit_is_named(build: Build, group: MemoryGroup) -> None:
    (build.folder / "hog.py").write_text(HOG)
    build.step("giant", f"echo attempt >> attempts\n{hog(1000)}")
    build.step("other", "true")
    done = finished(build.start("ninja", "-k0", prefix=group.enter))
    assert done.status != 0
    assert b"giant ran out of memory 3 times" in done.out
    assert b"of 400 MiB" in done.out
    assert (build.folder / "attempts").read_text() == "attempt\n" * 3
    assert build.made() == {"other"}


def test_another_process_takes_half_the_memory_and_frees_it(
    heavy: Build, group: MemoryGroup
) -> None:
    take = "b = b'x' * (200 << 20); print('taken', flush=True); input()"
    run = heavy.start(prefix=group.enter)
    wait_until(lambda: "light0" in heavy.made() or "heavy0" in heavy.made(), "it has begun")
    other_process = subprocess.Popen(
        [*group.enter, sys.executable, "-S", "-c", take],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert other_process.stdout is not None
    other_process.stdout.readline()
    before = len(heavy.made())
    light = {f"light{number}" for number in range(6)}  # a heavy one may have to wait

    def continues() -> bool:
        return len(heavy.made()) > before or light <= heavy.made()

    wait_until(continues, "a step finishes beside the other process")
    other_process.communicate(b"\n")
    done = finished(run)
    assert done.status == 0, done
    assert len(heavy.made()) == 12


NAMESPACES = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--cgroup"]


def contained(group: MemoryGroup) -> list[str]:
    """The words before a command that is to see what it would see in a container: its own group as
    the outermost, where every other container sees its own, and process numbers from 1 on.
    """
    mount = f'mount --bind "{group.folder}" "{group.folder.parent}" && exec "$@"'
    words = [*group.enter, *NAMESPACES, "sh", "-c", mount, "container"]
    if subprocess.run([*words, "true"], capture_output=True, check=False).returncode:
        pytest.skip("no namespaces can be made here")
    return words


def test_containers_that_share_a_home_have_a_governor_each(
    heavy: Build, group: MemoryGroup, make_group: MakeGroup, tmp_path: Path
) -> None:
    """Joined to the first one's, the second one's steps would all run at once, and be killed."""
    roomy = make_group("roomy")
    roomy.set_limit(4000 * MIB)
    other = Build(tmp_path / "other", heavy.home)
    other.step("waits", WAIT)
    first = other.start(prefix=contained(roomy), options=["--cpus", "6"])
    wait_until(heavy.sockets, "the first governor listens")
    file = heavy.folder / "summary.json"
    options = ["--cpus", "6", "--summary", str(file)]
    second = finished(heavy.start(prefix=contained(group), options=options))
    assert second.status == 0, second
    summary = msgspec.json.decode(file.read_bytes(), type=RunSummary)
    assert (summary.limit_bytes, summary.steps, summary.oom_kills) == (LIMIT, 12, 0)
    assert len(heavy.made()) == 12
    other.let_go()
    done = finished(first)
    assert done.status == 0, done
    assert "died" not in done.err + second.err
    heavy.wait_for_end()


def test_a_run_in_a_pid_namespace_of_its_own_has_a_governor_of_its_own(
    build: Build, tmp_path: Path, group: MemoryGroup
) -> None:
    namespace = contained(group)[len(group.enter) :][:5]
    inner = Build(tmp_path / "inner", build.home)
    for number in range(4):
        inner.step(f"step{number}", "true")
    build.step("own", WAIT)
    run = build.start()
    wait_until(build.sockets, "the governor listens")
    done = finished(inner.start(prefix=namespace))
    assert done.status == 0, done
    assert len(list((build.home / "run").glob("*.sock.lock"))) == 2
    assert len(inner.attempts()) == 4
    build.let_go()
    assert finished(run).status == 0


@pytest.mark.usefixtures("group")  # where tests cannot have a memory cgroup, the demo has none
def test_each_demo_has_a_cgroup_and_removes_it_when_it_is_ended(tmp_path: Path) -> None:
    """Two demos in one cgroup would share a limit that only one fits into."""
    program = str(Path(__file__).parents[2] / "examples" / "demo.py")
    demo = subprocess.Popen([sys.executable, program, str(tmp_path / "demo")])

    def groups() -> list[Path]:
        parents = [Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/memory")]
        paths = [parent / f"stoker-demo-{demo.pid}" for parent in parents]
        return [path for path in paths if path.exists()]

    try:
        wait_until(groups, "the demo has its cgroup")
    finally:
        demo.terminate()
    assert demo.wait() == 128 + signal.SIGTERM
    assert not groups()
