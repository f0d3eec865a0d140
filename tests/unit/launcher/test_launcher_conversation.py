"""Ask, permit, done, and the governor's answers: release, again, kill, fail."""

import os
import signal
import stat
import time
from pathlib import Path

import pytest

from conftest import Need
from unit.launcher.preloaded import build
from unit.launcher.scripted import (
    REPEATABLE,
    Launch,
    ScriptedGovernor,
    alive,
    pids_in,
    result,
    until,
)


def test_the_question(launch: Launch, governor: ScriptedGovernor, tmp_path: Path) -> None:
    folder = tmp_path / "a folder of été"
    folder.mkdir()
    odd = os.fsdecode(b"\xff\t\\\n")
    launch("/bin/true", "a b", odd, "", cwd=folder)
    ask = governor.accept().expect("ask")
    assert ask[:2] == [b"7", b"1"]
    assert ask[2:6] == [os.fsencode(folder), b"1", b"0", b"once"]
    assert ask[6] == b"its program is a script, or no known compiler"
    assert ask[7:] == [b"/bin/true", b"a b", b"\xff\t\\\n", b""]


@pytest.mark.parametrize(
    ("command", "cpus"),
    [
        ("nvcc -c a.cu --threads 4", b"4"),
        ("nvcc -t=0 a.cu", b"0"),
        ("ccache nvcc -t8 a.cu", b"8"),
        ("/opt/cuda/bin/nvcc --threads=2 --threads=3", b"3"),
        ("nvcc -c a.cu -o thing", b"1"),
        ("nvcc --threads many", b"1"),
        ("g++ -t 4", b"1"),
        ("g++ -c nvcc -t 4", b"1"),
    ],
)
def test_the_cpus_that_nvcc_will_use(
    launch: Launch, governor: ScriptedGovernor, command: str, cpus: bytes
) -> None:
    launch(*command.split())
    assert governor.accept().expect("ask")[3] == cpus


def test_nvcc_takes_threads_from_its_environment(
    launch: Launch, governor: ScriptedGovernor
) -> None:
    launch.environment["NVCC_APPEND_FLAGS"] = "-lineinfo  --threads 6"
    launch("nvcc", "-t", "2")
    assert governor.accept().expect("ask")[3] == b"6"


@pytest.mark.parametrize("status", [0, 1, 42, 255])
def test_it_ends_with_the_commands_status(
    launch: Launch, governor: ScriptedGovernor, status: int
) -> None:
    process = launch.script(f"echo out; echo err >&2; exit {status}")
    step = governor.permitted()
    done = step.expect("done")
    assert done[:2] == [str(status).encode(), b"0"]
    assert all(int(number) >= 0 for number in done[2:6])
    assert done[6] == (b"" if status == 0 else b"out\nerr\n")
    step.say("release")
    assert result(process) == (status, b"out\n", b"err\n")


@pytest.mark.parametrize("name", ["SIGKILL", "SIGSEGV", "SIGTERM", "SIGABRT", "SIGPIPE"])
def test_it_ends_by_the_commands_signal(
    launch: Launch, governor: ScriptedGovernor, name: str
) -> None:
    number = signal.Signals[name]
    process = launch.script(f"echo before; kill -{int(number)} $$; sleep 60")
    step = governor.permitted()
    assert step.expect("done")[:2] == [b"0", str(int(number)).encode()]
    step.say("release")
    assert result(process) == (-number, b"before\n", b"")


def test_what_the_command_is_given(launch: Launch, governor: ScriptedGovernor, steps: Path) -> None:
    script = (
        'sleep 0.1; echo $STOKER_STEP; echo "$TMPDIR";'
        ' stat -c %a "$TMPDIR"; cat /proc/self/oom_score_adj;'
        "cut -d' ' -f5 /proc/$$/stat; grep SigBlk /proc/self/status; ls /proc/self/fd | wc -l"
    )
    process = launch.script(script)
    step = governor.asked()
    group = step.permit()
    step.expect("done")
    step.say("release")
    status, out, err = result(process)
    assert (status, err) == (0, b"")
    number, folder, mode, score, command_group, blocked, files = out.decode().splitlines()
    assert (number, mode, score) == ("7", "700", "800")
    assert Path(folder).parent == steps
    assert int(command_group) == group
    assert int(blocked.split()[1], 16) == 0
    assert int(files) == 4  # 0, 1, 2 and the folder that ls reads
    assert list(steps.iterdir()) == []


def test_an_oom_score_that_is_higher_already_stays(
    launch: Launch, governor: ScriptedGovernor
) -> None:
    governor.permit_everything()
    script = f"echo 900 > /proc/self/oom_score_adj; {launch.launcher} cat /proc/self/oom_score_adj"
    assert result(launch.program(["/bin/sh", "-c", script]))[1] == b"900\n"


def test_the_kernel_kills_what_can_be_repeated_before_what_can_not(
    launch: Launch, governor: ScriptedGovernor
) -> None:
    """The largest command would be next, and if that is not repeatable, the build has failed."""
    governor.permit_everything()
    process = launch.program([str(launch.launcher), "cat", "/proc/self/oom_score_adj"])
    assert result(process)[1] == Path("/proc/self/oom_score_adj").read_bytes()


def test_temporary_files_vanish_with_the_step(
    launch: Launch, governor: ScriptedGovernor, steps: Path
) -> None:
    process = launch.script(
        'cd "$TMPDIR"; mkdir -p a/b; echo x > a/b/c; ln -s / root; echo x > d; chmod 0 d'
    )
    step = governor.permitted()
    step.expect("done")
    step.say("release")
    assert result(process) == (0, b"", b"")
    assert list(steps.iterdir()) == []
    assert Path("/proc").is_dir()


def test_temporary_files_stay_where_a_step_began(
    launch: Launch, governor: ScriptedGovernor, steps: Path, tmp_path: Path
) -> None:
    """The place may be a link that is switched, as `stoker run` does when memory is short."""
    link, other = tmp_path / "link", tmp_path / "other"
    other.mkdir()
    link.symlink_to(steps)
    launch.environment["STOKER_SCRATCH"] = str(link)
    process = launch.script('until [ -e "$1.go" ]; do sleep 0.02; done; echo x > "$TMPDIR/x"', link)
    step = governor.permitted()
    (tmp_path / "next").symlink_to(other)
    (tmp_path / "next").replace(link)
    (tmp_path / "link.go").touch()
    step.expect("done")
    step.say("release")
    assert result(process) == (0, b"", b"")
    assert list(steps.iterdir()) == list(other.iterdir()) == []


def test_without_a_place_for_temporary_files_it_runs_all_the_same(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path
) -> None:
    governor.permit_everything()
    launch.environment |= {"STOKER_SCRATCH": str(tmp_path / "absent"), "TMPDIR": "/as/it/was"}
    assert result(launch.script("echo $TMPDIR")) == (0, b"/as/it/was\n", b"")


PARTIAL = 'echo first >&2; echo part > out.o; echo part > out.d; echo x > "$TMPDIR/x"; '


@pytest.mark.parametrize("word", ["kill", "again"])
def test_a_failed_attempt_leaves_no_trace(
    launch: Launch, governor: ScriptedGovernor, steps: Path, tmp_path: Path, word: str
) -> None:
    """A command that hangs (killed) or fails (run again), and does well the second time."""
    pids = tmp_path / "pids"
    script = tmp_path / "compile.c"
    script.write_text(
        f"if [ -e {pids} ]; then echo second; echo whole > out.o; exit 0; fi\n"
        f"{PARTIAL}\n"
        f"sleep 1000 & echo $! >> {pids}\n"
        f"setsid sleep 1000 & echo $! >> {pids}\n"
        f"{'wait' if word == 'kill' else 'exit 1'}\n"
    )
    words = (script, "-MD", "-MF", "out.d", "-o", "out.o")
    process = launch(launch.compiler, *words, cwd=tmp_path)
    step = governor.permitted()
    sleepers = pids_in(pids, 2)
    if word == "kill":
        step.say("kill")
        assert len(step.expect("killed")) == 4
    else:
        assert step.expect("done")[6] == b"first\n"
        step.say("again")
        until(lambda: not (tmp_path / "out.o").exists(), "outputs deleted")
    step.permit()
    assert not any(alive(pid) for pid in sleepers)
    step.expect("done")
    step.say("release")
    assert result(process) == (0, b"second\n", b"")
    assert (tmp_path / "out.o").read_text() == "whole\n"
    assert not (tmp_path / "out.d").exists()
    assert list(steps.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "goes"),
    [
        (["-o", "out"], True),
        (["-oout"], True),
        (["-MF", "out"], True),
        (["-MFout"], True),
        (["--output-file", "out"], True),
        (["--output-file=out"], True),
        (["--dependency-output=out"], True),
        (["-Wp,-MMD,out"], True),
        (["-c", "out"], False),
        (["-o"], False),
        (["--outputs", "out"], False),
    ],
)
def test_which_files_are_half_written_outputs(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path, arguments: list[str], goes: bool
) -> None:
    script = "echo part > out; echo > ready; sleep 1000"
    launch(launch.compiler, "-c", script, *arguments, cwd=tmp_path)
    step = governor.permitted()
    until((tmp_path / "ready").exists, "it has written")
    step.kill()
    assert (tmp_path / "out").exists() is not goes


def test_what_is_no_regular_file_is_not_deleted(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/null")
    names = [str(tmp_path / name) for name in ("folder", "pipe", "link")]
    launch("/bin/sh", "-c", "sleep 1000", *(f"-o{name}" for name in names), "-o", "/dev/null")
    step = governor.permitted()
    step.kill()
    assert all(os.path.lexists(name) for name in names)
    assert stat.S_ISCHR(Path("/dev/null").stat().st_mode)


def test_nvccs_other_options_that_begin_like_an_output(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path
) -> None:
    (tmp_path / "nvcc").symlink_to("/bin/sh")
    (tmp_path / "dir").touch()
    launch(tmp_path / "nvcc", "-c", "sleep 1000", "-odir", "dir", cwd=tmp_path)
    step = governor.permitted()
    step.kill()
    assert (tmp_path / "dir").exists()


def test_a_step_that_was_given_up(launch: Launch, governor: ScriptedGovernor) -> None:
    process = launch.script("echo out; exit 4")
    step = governor.permitted()
    step.expect("done")
    step.say("fail", "a.cc needs\n9 GiB")
    assert result(process) == (4, b"out\n", b"a.cc needs\n9 GiB\n")

    process = launch("/bin/false")
    governor.asked().say("fail", "never")
    assert result(process) == (1, b"", b"never\n")


def test_another_protocol(launch: Launch, governor: ScriptedGovernor) -> None:
    process = launch("/bin/sh", "-c", "echo $$; exit 5")
    governor.asked().say("wrong_version")
    assert result(process) == (5, b"%d\n" % process.pid, b"")


def test_words_out_of_place_are_ignored(launch: Launch, governor: ScriptedGovernor) -> None:
    process = launch.script("sleep 0.1; exit 6")
    step = governor.asked()
    for word in ("kill", "pause", "resume", "release", "again", "hail", ""):
        step.say(word, "and", "more")
    step.permit()
    for word in ("run", "resume", "release", "again", "hail"):
        step.say(word, "and", "more")
    step.expect("done")
    step.say("kill")  # it crossed our done, as does the next
    step.say("pause")
    step.say("run", "8")
    step.say("release", "extra")
    assert result(process) == (6, b"", b"")


def test_words_that_come_in_pieces(launch: Launch, governor: ScriptedGovernor) -> None:
    process = launch("/bin/true")
    step = governor.asked()
    for byte in b"hail\t1\nrun\t7":
        step.say_raw(bytes([byte]))
        time.sleep(0.001)
    step.say_raw(b"\n")
    step.expect("started")
    step.expect("done")
    step.say("release")
    assert result(process) == (0, b"", b"")


def test_a_line_without_end_is_a_broken_governor(
    launch: Launch, governor: ScriptedGovernor
) -> None:
    process = launch("/bin/sh", "-c", "echo $$")
    step = governor.asked()
    step.say_raw(b"x" * ((1 << 16) + 1))
    assert result(process) == (0, b"%d\n" % process.pid, b"")


def test_a_nested_launcher_has_its_permit(launch: Launch, governor: ScriptedGovernor) -> None:
    process = launch(launch.launcher, launch.launcher, "/bin/echo", "inner")
    step = governor.permitted()
    step.expect("done")
    step.say("release")
    assert result(process) == (0, b"inner\n", b"")
    assert not governor.is_asked()


def test_an_enormous_command_line(launch: Launch, governor: ScriptedGovernor) -> None:
    arguments = [f"-Dname{number}={'x' * 100}" for number in range(10_000)]
    process = launch("/bin/true", *arguments)
    step = governor.accept()
    assert step.expect("ask")[8:] == [argument.encode() for argument in arguments]
    step.permit()
    step.expect("done")
    step.say("release")
    assert result(process) == (0, b"", b"")


SHOWING = r"""
#include <stdio.h>
int main(int count, char **words)
{
    for (int at = 1; at < count; at++)
        printf("%s|", words[at]);
    return 3;
}
"""


def test_a_permit_adds_options_for_one_attempt_behind_the_compilers_name(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path
) -> None:
    compiler = build(tmp_path, "g++", SHOWING)
    process = launch(compiler, "-c", "a b.cc", "-o", "a.o")
    step = governor.accept()
    kind, reason, *command = step.expect("ask")[5:]
    assert (kind, reason) == (b"compile", b"")
    assert command == [bytes(compiler), b"-c", b"a b.cc", b"-o", b"a.o"]
    step.say("run", "7", "--param=one=1", "a b")
    assert step.expect("started") == []
    assert step.expect("done")[6] == b"--param=one=1|a b|-c|a b.cc|-o|a.o|"
    step.say("again")
    step.say("run", "7")
    assert step.expect("started") == []
    assert step.expect("done")[6] == b"-c|a b.cc|-o|a.o|"
    step.say("release")
    assert result(process) == (3, b"-c|a b.cc|-o|a.o|", b"")


def test_a_custom_command_gets_no_options(launch: Launch, governor: ScriptedGovernor) -> None:
    process = launch("--custom", "/bin/echo", "word")
    step = governor.asked()
    step.say("run", "7", "--param=one=1")
    step.expect("started")
    step.expect("done")
    assert result(process) == (0, b"word\n", b"")


def test_a_remote_command_says_how_many_jobs_the_workers_take_and_keeps_our_library(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path, need: Need
) -> None:
    """A compiler that it starts here can ask by itself, and says within which step."""
    shown = 'echo "$STOKER_CUSTOM $STOKER_STEP $LD_PRELOAD"; exit 3'
    library = "/nowhere/libstoker-preload.so"
    launch.environment |= {"STOKER_SLOTS": "40", "LD_PRELOAD": library, "DISTCC_FALLBACK": "0"}
    command = (launch.compiler, "-c", shown, "sh", *REPEATABLE)
    distcc = tmp_path / "distcc"
    distcc.symlink_to(need("env"))
    process = launch(distcc, *command)
    step = governor.accept()
    assert step.expect("ask")[3:6] == [b"40", b"0", b"remote"]
    for last in (False, True):  # its output is kept until the attempt counts
        step.say("run", "7", "--param=one=1")
        step.expect("started")
        assert f"7  {library}".encode() in step.expect("done")[6]
        step.say("release" if last else "again")
    status, out, _ = result(process)
    assert (status, out) == (3, f"7  {library}\n".encode())


def test_a_remote_compile_that_fails_runs_here_and_prints_once(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path, need: Need
) -> None:
    distcc = tmp_path / "distcc"
    distcc.symlink_to(need("env"))
    command = (launch.compiler, "-c", "echo of $STOKER_CUSTOM; exit 3", "sh", *REPEATABLE)
    process = launch(distcc, *command)
    away = governor.accept()
    assert away.expect("ask")[5] == b"remote"
    away.say("run", "7")
    away.expect("started")
    assert b"of 7" in away.expect("done")[6]
    away.say("release")
    here = governor.accept()
    assert here.expect("ask")[5] == b"compile"
    here.say("run", "8")
    here.expect("started")
    here.expect("done")
    here.say("release")
    status, out, _ = result(process)
    assert (status, out.count(b"of")) == (3, 1)
