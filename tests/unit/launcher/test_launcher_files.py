"""What an attempt leaves on disk: as a plain compile does, also if it is killed and repeated."""

import os
import subprocess
from pathlib import Path

import pytest

from conftest import Need
from unit.launcher.scripted import Conversation, Launch, ScriptedGovernor, result, until


class Gate:
    """A header that a compiler waits for, after it has opened its output."""

    def __init__(self, header: Path):
        self._header = header
        os.mkfifo(header)

    def wait(self) -> None:
        """Wait until a compiler reads it; it then waits until it is killed."""
        until(self._has_reader, "a compiler reads the header")

    def _has_reader(self) -> bool:
        try:
            self._writer = os.open(self._header, os.O_WRONLY | os.O_NONBLOCK)
        except OSError:
            return False
        return True

    def open(self) -> None:
        """Let each compiler pass from now on."""
        os.close(self._writer)
        self._header.unlink()
        self._header.write_text("int from_header;\n")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    file = tmp_path / "source/a.c"
    file.write_text('#include "gate.h"\nint f(void) { return from_header; }\n')
    return file


@pytest.fixture
def build(launch: Launch, tmp_path: Path) -> Path:
    """The folder for temporary files that the build has set."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    launch.environment["TMPDIR"] = str(folder)
    return folder


def look(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return the mode, the links and the content of each file."""
    return {
        path.name: (path.stat().st_mode & 0o777, path.stat().st_nlink, path.read_bytes())
        for path in folder.iterdir()
        if path.is_file()
    }


def killed(step: Conversation) -> None:
    step.kill()


@pytest.mark.parametrize("content", ["", "old"])
@pytest.mark.parametrize(
    "words",
    [
        "gcc -S {source} -o out",
        "gcc -E {source} -o out",
        "gcc -c {source} -o out",
        "gcc -c {source} -MD -MF out -o other.o",
        "gcc -S {source} -MD -MF other.d -o out",
        "clang -c {source} -o out",
        "clang -S {source} -o out",
        "clang -c {source} -MD -MF out -o other.o",
    ],
)
def test_links_and_modes_of_outputs_that_exist(
    launch: Launch, governor: ScriptedGovernor, source: Path, need: Need, words: str, content: str
) -> None:
    """A plain compiler writes some in place and replaces others."""
    need(words.split()[0])
    command = words.format(source=source).split()
    gate = Gate(source.with_name("gate.h"))
    folders = [source.parent / place for place in ("governed", "plain")]
    for folder in folders:
        folder.mkdir()
        (folder / "out").write_text(content)
        (folder / "out").chmod(0o600)
        os.link(folder / "out", folder / "linked")
    process = launch(*command, cwd=folders[0])
    step = governor.permitted()
    gate.wait()
    killed(step)
    gate.open()
    step.permit()
    step.expect("done")
    assert result(process) == (0, b"", b"")
    subprocess.run(command, cwd=folders[1], check=True)
    assert look(folders[0]) == look(folders[1])


@pytest.mark.parametrize("again", [True, False])
def test_an_output_that_was_written_in_place_and_one_that_was_replaced(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path, again: bool
) -> None:
    """While a repeat waits, make must not take what is there for complete."""
    (tmp_path / "out").write_text("old")
    (tmp_path / "deps").write_text("old")
    os.link(tmp_path / "deps", tmp_path / "linked")  # else the new file may get the old inode
    script = "echo part > out; rm deps; echo part > deps; echo > ready; sleep 1000"
    words = ("-c", script, "-o", "out", "-MF", "deps")
    process = launch(launch.compiler, *words, cwd=tmp_path)
    step = governor.permitted()
    until((tmp_path / "ready").exists, "it has written")
    if again:
        killed(step)
        assert ((tmp_path / "out").read_text(), (tmp_path / "out").stat().st_mtime) == ("", 0)
    else:
        step.say("end")
        assert process.wait(60) != 0
        assert not (tmp_path / "out").exists()
    assert not (tmp_path / "deps").exists()
    assert (tmp_path / "linked").read_text() == "old"


@pytest.mark.parametrize(("writes", "gone"), [("other", []), ("deps", ["out"])])
def test_an_output_that_was_not_touched_stays(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path, writes: str, gone: list[str]
) -> None:
    """Unless its list of headers was: without that, make would take an old object for new."""
    names = ["out", "other", "deps", "-"]
    for name in names:
        (tmp_path / name).write_text("old")
    words = ("-c", f"echo part > {writes}; sleep 1000", "-o", "out", "-MF", "deps", "-o", "-")
    launch("/bin/sh", *words, cwd=tmp_path)
    step = governor.permitted()
    until(lambda: (tmp_path / writes).read_text() == "part\n", "it has written")
    killed(step)
    assert [name for name in names if not (tmp_path / name).exists()] == gone


def test_clang_leaves_no_temporary_file(
    launch: Launch, governor: ScriptedGovernor, source: Path, need: Need
) -> None:
    folder = source.parent
    gate = Gate(folder / "gate.h")
    for similar in ("a-12345678.o.tmp.c", "a-1234567.o.tmp", "a-123456xx.o.tmp"):
        (folder / similar).touch()
    before = set(look(folder))
    launch(need("clang"), "-c", source, "-o", "a.o", cwd=folder)
    step = governor.permitted()
    gate.wait()
    assert [name[-6:] for name in set(look(folder)) - before] == [".o.tmp"]
    killed(step)
    assert set(look(folder)) == before


def test_lld_leaves_no_temporary_file(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path
) -> None:
    """As lld names it, without waiting for a link that takes long enough."""
    script = "echo x > lib.so.tmp0a1b2c3; echo x > lib.so.tmpfile; echo > ready; sleep 1000"
    launch(launch.compiler, "-c", script, "-o", "./lib.so", cwd=tmp_path)
    step = governor.permitted()
    until((tmp_path / "ready").exists, "it has written")
    killed(step)
    assert (tmp_path / "lib.so.tmpfile").exists()
    assert not (tmp_path / "lib.so.tmp0a1b2c3").exists()


@pytest.mark.parametrize("ends", ["kill", "end", "killed launcher"])
def test_mold_leaves_no_temporary_file(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path, ends: str
) -> None:
    """Its name says nothing of the output, so that of another link stays."""
    ours, other, ready = (tmp_path / name for name in (".mold-aB3dE6", ".mold-gH1jK2", "ready"))
    other.touch()
    process = launch.python(
        "import mmap, sys, time\n"
        "file = open(sys.argv[1], 'wb+')\n"
        "file.truncate(8192)\n"
        "mapped = mmap.mmap(file.fileno(), 0)\n"
        "file.close()\n"
        "open(sys.argv[2], 'w').close()\n"
        "time.sleep(1000)\n",
        ours,
        ready,
    )
    step = governor.permitted()
    until(ready.exists, "it links")
    if ends == "kill":
        killed(step)
    elif ends == "end":
        step.say("end")
    else:
        process.kill()
    until(lambda: not ours.exists(), "it is deleted")
    assert other.exists()


@pytest.mark.parametrize("scratch", ["disk", "memory"])
def test_a_reproducer_outlives_its_step(
    launch: Launch, governor: ScriptedGovernor, steps: Path, build: Path, scratch: str
) -> None:
    """In another file system too."""
    if scratch == "memory":
        memory = Path("/dev/shm") / f"stoker-test-{os.getpid()}"
        memory.mkdir()
        launch.environment["STOKER_SCRATCH"] = str(memory)
    script = 'mkdir "$TMPDIR/cache"; echo x > "$TMPDIR/cache/a"; echo y > "$TMPDIR/a.c"; exit 70'
    process = launch.script(script)
    step = governor.permitted()
    step.expect("done")
    step.say("release")
    status, out, err = result(process)
    if scratch == "memory":
        assert list(memory.iterdir()) == []
        memory.rmdir()
    assert (status, out) == (70, b"")
    (kept,) = build.iterdir()
    assert os.fsencode(kept) in err
    assert {path.name for path in kept.rglob("*")} == {"cache", "a", "a.c"}
    assert (kept / "a.c").read_text() == "y\n"
    assert list(steps.iterdir()) == []


def test_the_reproducer_of_clang(
    launch: Launch, governor: ScriptedGovernor, source: Path, build: Path, need: Need
) -> None:
    source.write_text("#pragma clang __debug parser_crash\n")
    governor.permit_everything()
    status, _, _ = result(launch(need("clang"), "-c", source, "-o", "a.o", cwd=build.parent))
    assert status
    (kept,) = build.iterdir()
    assert {path.suffix for path in kept.iterdir()} == {".c", ".sh"}


@pytest.mark.parametrize("word", ["again", "kill"])
def test_what_a_repeated_attempt_left_does_not_stay(
    launch: Launch, governor: ScriptedGovernor, steps: Path, tmp_path: Path, build: Path, word: str
) -> None:
    ready = tmp_path / "ready"
    end = "exit 1" if word == "again" else f"echo > {ready}; sleep 1000"
    process = launch.script(
        f'[ -e {ready}.2 ] && exit 0; echo > {ready}.2; echo > "$TMPDIR/x"; {end}'
    )
    step = governor.permitted()
    if word == "again":
        step.expect("done")
        step.say("again")
    else:
        until(ready.exists, "it has written")
        killed(step)
    step.permit()
    step.expect("done")
    assert result(process)[0] == 0
    assert list(steps.iterdir()) == list(build.iterdir()) == []


def test_an_interrupted_command_moves_nothing(
    launch: Launch, governor: ScriptedGovernor, steps: Path, tmp_path: Path, build: Path
) -> None:
    ready = tmp_path / "ready"
    wait = f'echo > "$TMPDIR/x"; echo > {ready}; while :; do sleep 0.02; done'
    process = launch.script(f'trap "exit 3" TERM; {wait}')
    step = governor.permitted()
    until(ready.exists, "it has written")
    process.terminate()
    step.expect("done")
    assert process.wait(60) == 3
    assert list(steps.iterdir()) == list(build.iterdir()) == []
