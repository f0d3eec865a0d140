"""Output of any size is buffered and printed byte for byte."""

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import Need, missing
from unit.launcher.scripted import REPEATABLE, Launch, ScriptedGovernor, alive, pids_in, result

MIXED = """
import os, random
choice = random.Random(1)
for number in range(3000):
    os.write(choice.choice((1, 2)), b"%d " % number * choice.randrange(1, 40) + b"\\n")
"""


def test_nothing_is_shown_before_it_counts(launch: Launch, governor: ScriptedGovernor) -> None:
    reader, writer = os.pipe()
    os.set_blocking(reader, False)
    script = "echo out; echo err >&2; exit 1"
    launch(launch.compiler, "-c", script, *REPEATABLE, stdout=writer, stderr=writer)
    os.close(writer)
    step = governor.permitted()
    step.expect("done")
    with pytest.raises(BlockingIOError):
        os.read(reader, 1)
    step.say("release")
    os.set_blocking(reader, True)
    assert os.read(reader, 100) == b"out\nerr\n"
    os.close(reader)


def test_one_file_for_both_keeps_the_order(launch: Launch, governor: ScriptedGovernor) -> None:
    governor.permit_everything()
    command = [str(launch.named("clang", sys.executable)), "-I", "-S", "-c", MIXED, *REPEATABLE]
    plain = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=True)
    assert result(launch(*command, stderr=subprocess.STDOUT))[1] == plain.stdout


def test_two_streams_stay_apart(launch: Launch, governor: ScriptedGovernor) -> None:
    governor.permit_everything()
    command = [str(launch.named("clang", sys.executable)), "-I", "-S", "-c", MIXED, *REPEATABLE]
    plain = subprocess.run(command, capture_output=True, check=True)
    assert result(launch(*command)) == (0, plain.stdout, plain.stderr)


def test_a_closed_stdout_is_not_filled_with_something_else(
    launch: Launch, governor: ScriptedGovernor
) -> None:
    governor.permit_everything()
    script = f"{launch.launcher} sh -c 'echo out; echo err >&2' >&- <&-"
    assert result(launch.program(["/bin/sh", "-c", script])) == (0, b"", b"err\n")


def test_a_hundred_megabytes_in_little_memory(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path
) -> None:
    text = (
        "import os\nfor n in range(1600): os.write(1 + n % 2, bytes([n % 251]) * 65536)\n"
        "raise SystemExit(3)"  # so that the launcher waits to be told whether that counts
    )
    out, err = tmp_path / "out", tmp_path / "err"
    with out.open("wb") as stdout, err.open("wb") as stderr:
        process = launch(
            *(launch.named("clang", sys.executable), "-I", "-S", "-c", text, *REPEATABLE),
            stdout=stdout.fileno(),
            stderr=stderr.fileno(),
        )
    step = governor.permitted()
    step.expect("done")
    status = Path(f"/proc/{process.pid}/status").read_text()
    peak = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert peak
    assert int(peak[1]) < 8192 or sanitized(launch)
    assert out.stat().st_size == err.stat().st_size == 0
    step.say("release")
    assert process.wait(60) == 3
    for file, first in ((out, 0), (err, 1)):
        wanted = hashlib.sha256()
        for number in range(first, 1600, 2):
            wanted.update(bytes([number % 251]) * 65536)
        assert hashlib.sha256(file.read_bytes()).hexdigest() == wanted.hexdigest()


def sanitized(launch: Launch) -> bool:
    return b"__asan_init" in launch.launcher.read_bytes()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2500k", "none", str(folder)]
    mounted = subprocess.run(mount, capture_output=True, check=False)
    if mounted.returncode:
        missing("the right to mount a file system")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def test_a_full_disk_ends_the_holding_back(
    launch: Launch, governor: ScriptedGovernor, small_disk: Path
) -> None:
    governor.permit_everything()
    launch.environment["STOKER_SCRATCH"] = str(small_disk)
    text = "import os\nfor n in range(200): os.write(1 + n % 2, bytes([n]) * 65536)"
    status, out, err = result(launch.python(text))
    assert status == 0
    assert out == b"".join(bytes([number]) * 65536 for number in range(0, 200, 2))
    assert err == b"".join(bytes([number]) * 65536 for number in range(1, 200, 2))


def test_without_a_folder_to_spill_to(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path
) -> None:
    governor.permit_everything()
    launch.environment["STOKER_SCRATCH"] = str(tmp_path / "absent")
    assert result(launch.python("print('x' * 3_000_000)")) == (0, b"x" * 3_000_000 + b"\n", b"")


def test_a_daemon_that_keeps_the_pipe_is_not_waited_for(
    launch: Launch, governor: ScriptedGovernor, steps: Path, tmp_path: Path
) -> None:
    governor.permit_everything()
    pids = tmp_path / "pids"
    process = launch.script('echo before; (sleep 1000; echo late) & echo $! > "$1"; exit 3', pids)
    (daemon,) = pids_in(pids, 1)
    assert result(process) == (3, b"before\n", b"")
    assert alive(daemon)
    assert len(list(steps.iterdir())) == 1  # it may use the folder that it was given
    os.kill(daemon, 9)


def test_the_end_of_what_a_failed_command_printed(
    launch: Launch, governor: ScriptedGovernor
) -> None:
    launch.python("import sys\nfor n in range(5000): print(n, flush=True)\nsys.exit('the end')")
    step = governor.permitted()
    tail = step.expect("done")[6]
    whole = b"".join(b"%d\n" % number for number in range(5000)) + b"the end\n"
    assert tail == whole[-4096:]


def test_output_without_a_reader(launch: Launch, governor: ScriptedGovernor) -> None:
    reader, writer = os.pipe()
    words = (launch.compiler, "-c", "echo out; exit 3", *REPEATABLE)
    process = launch(*words, stdout=writer, stderr=writer)
    os.close(writer)
    step = governor.permitted()
    step.expect("done")
    os.close(reader)
    step.say("release")
    assert process.wait(60) == -13  # SIGPIPE, as the command itself would have ended


def test_data_on_a_full_stdout(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path, need: Need
) -> None:
    """`-o -` names stdout: the compiler writes there itself, and fails as it does without us."""
    need("gcc")
    governor.permit_everything()
    (tmp_path / "a.c").write_text("int f(void) { return 0; }\n")
    command = ["gcc", "-S", "a.c", "-o", "-"]
    seen = []
    for before in ([], [str(launch.launcher)]):
        with Path("/dev/full").open("wb") as full:
            process = launch.program([*before, *command], stdout=full.fileno(), cwd=tmp_path)
            seen.append(result(process))
    assert seen[0] == seen[1]
    assert seen[0][0] == 1
    assert b"No space left on device" in seen[0][2]


def test_data_on_a_small_disk(
    launch: Launch, governor: ScriptedGovernor, small_disk: Path, need: Need
) -> None:
    need("gcc")
    governor.permit_everything()
    source = small_disk.parent / "long.c"
    source.write_text("const int numbers[] = {" + "1," * 400_000 + "};\n")
    with (small_disk / "long.s").open("wb") as out:
        process = launch("gcc", "-S", source, "-o", "-", stdout=out.fileno())
        status, _, err = result(process)
    assert status == 1
    assert b"No space left on device" in err


@pytest.mark.parametrize("passing", [False, True])
def test_buffered_output_that_cannot_be_written(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path, passing: bool
) -> None:
    """Data on stdout is lost, so the command fails. A full stderr or log changes nothing, as with
    gcc, whose warnings are lost there.
    """
    governor.permit_everything()
    if passing:
        launch.environment["STOKER_SCRATCH"] = str(tmp_path / "absent")
    size = 3_000_000 if passing else 10
    words = (launch.named("clang", sys.executable), "-I", "-S", "-c")
    both = f"import os; os.write(1, b'x' * {size}); os.write(2, b'warning')"
    with Path("/dev/full").open("wb") as file:
        full = file.fileno()
        status, _, err = result(launch(*words, both, *REPEATABLE, stdout=full))
        assert (status, err.count(b"warning")) == (1, 1)
        assert err.endswith(b"stoker-launcher: cannot write the output: No space left on device\n")
        assert result(launch(*words, both, *REPEATABLE, stderr=full))[0] == 0
        assert result(launch(*words, both, *REPEATABLE, stdout=full, stderr=full))[0] == 0
