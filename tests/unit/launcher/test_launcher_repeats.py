"""Only a command that is known to do the same twice may be killed and started again."""

import os
import pty
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from unit.launcher.scripted import Launch, ScriptedGovernor, Word, result


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    (tmp_path / "a.c").write_text("int f(void) { return 0; }\n")
    (tmp_path / "options").write_text('-O2 "-DNAME=a b"\n')
    (tmp_path / "named").write_text("-MD -MT a.o -MF a.d\n")
    (tmp_path / "more").write_text("@options -include fifo\n")
    (tmp_path / "a.o").write_text("made before\n")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "to-fifo.c").symlink_to("fifo")
    (tmp_path / "to-null.o").symlink_to("/dev/null")
    (tmp_path / "host").write_text('#!/bin/sh\nexec g++ "$@" && date >> log\n')
    (tmp_path / "host").chmod(0o755)
    shutil.copy("/bin/true", tmp_path / "nvcc")  # on the PATH, nvcc may be a script
    for name in ("clang", "g++-real"):
        shutil.copy("/bin/true", tmp_path / name)
    return tmp_path


def kind(
    launch: Launch,
    governor: ScriptedGovernor,
    command: tuple[Word, ...],
    cwd: Path,
    stdin: int = subprocess.DEVNULL,
) -> str:
    """Return as what the launcher asks for the command."""
    process = launch(*command, cwd=cwd, stdin=stdin)
    asked, reason = governor.accept().expect("ask")[5:7]
    process.kill()
    return f"{asked.decode()}: {reason.decode()}" if reason else asked.decode()


@pytest.mark.parametrize(
    "words",
    [
        "gcc -c a.c -o a.o",
        "gcc -O2 -g -DX=/dev/stdin.h -Ifolder -MD -MF a.d -c a.c -oa.o",
        "gcc @options -c a.c -o new.o",
        "gcc -o program a.c -Wl,-Map=program.map -Wl,--version-script=absent",
        "gcc -flto -c a.c -o a.o",
        "gcc -E a.c -o a.i",
        "gcc -O3 -c a.c -o a.o -fopt-info-vec -fdump-tree-all",
        "gcc -c a.c -o a.o -MF /dev/null",
        "gcc -MD -MT a.o -MF a.d -o a.o -c a.c",  # CMake, when the object exists
        "gcc -MD -MQ a.o -MF a.d -o a.o -c a.c",  # Meson
        "gcc @named -o a.o -c a.c",
        "ld -shared -soname a.o -o a.o folder",
    ],
)
def test_a_compile_that_reads_files_and_names_its_output(
    launch: Launch, governor: ScriptedGovernor, sources: Path, words: str
) -> None:
    launch.environment["MAKEFLAGS"] = "-j --jobserver-auth=3,4"
    assert kind(launch, governor, tuple(shlex.split(words)), sources) == "compile"


COMPILE = ("gcc", "-c", "a.c", "-o", "a.o")
STDIN = "once: its stdin is not empty"
UNKNOWN_PROGRAM = "once: its program is a script, or no known compiler"

REASONS = {
    "it names no output": ("gcc -c a.c", "gcc a.c", "gcc @all"),
    "it reads a pipe or a device": (
        "gcc -c fifo -o a.o",
        "gcc -c to-fifo.c -o a.o",
        "gcc -c a.c -include fifo -o a.o",
        "gcc @fifo -c a.c -o a.o",
        "gcc @more -c a.c -o a.o",
        "gcc a.c -o program -Wl,-T,fifo",
        "gcc a.c -o program -Wl,--version-script=fifo",
    ),
    "it reads an open file or a terminal": ("gcc -c /dev/fd/0 -o a.o",),
    "an output is an open file or a terminal": (
        "gcc -c a.c -o /dev/stdout",
        "gcc -c a.c -o /dev/fd/1",
        "gcc -c a.c -o a.o -MF /dev/stderr",
        "gcc -S a.c -o -",
        "gcc -c a.c -o a.o -MD -MF -",
    ),
    "an output is no plain file": (
        "gcc -c a.c -o fifo",
        "gcc -c a.c -o to-null.o",  # a file of the user's, which cannot be deleted
    ),
    "it uses an open file or a terminal": ("gcc a.c -o program -Wl,-Map=/dev/stdout",),
    "an option starts other programs or appends to a file": (
        "gcc -c a.c -o a.o -fplugin=./a.so",
        "gcc -c a.c -o a.o -wrapper gdb,--args",
        "gcc -c a.c -o a.o -time=log",
        "./nvcc -c a.c -o a.o --time log",
        "gcc -O3 -c a.c -o a.o -fopt-info-vec=log",
        "gcc -O3 -c a.c -o a.o -fdump-tree-all=log",
        "./clang -c a.c -o a.o -Xclang -header-include-file -Xclang log",
        "./clang -c a.c -o a.o -Xclang -diagnostic-log-file -Xclang log",
        "./clang -c a.c -o a.o -fproc-stat-report=log",
    ),
    "it has too many outputs": ("gcc -c a.c -o a.o" + " -MF a.d" * 8,),
    "it takes jobs from make's job server": (
        "gcc -flto a.c -o program",  # takes tokens of the job server
    ),
    "it reads a file that it also writes": (
        "ld -r a.o -o a.o",  # reads what it writes
        "gcc -MT a.o a.o -o a.o",
    ),
    "it may start a script": ("./nvcc -c a.c -o a.o -ccbin host",),
    "its program is a script, or no known compiler": ("./host -c a.c -o a.o", "true -c a.c -o a.o"),
}


@pytest.mark.parametrize(
    ("words", "reason"), [(words, reason) for reason, rows in REASONS.items() for words in rows]
)
def test_a_command_that_may_do_more(
    launch: Launch, governor: ScriptedGovernor, sources: Path, words: str, reason: str
) -> None:
    (sources / "all").write_text("-c a.c -o a.o")  # its output is not on the command line
    launch.environment["MAKEFLAGS"] = "-j --jobserver-auth=3,4"
    assert kind(launch, governor, tuple(shlex.split(words)), sources) == f"once: {reason}"


@pytest.mark.parametrize(
    ("script", "asked"),
    [
        ('exec g++ "$@"', "compile"),
        ('# of the site\n\n  exec /usr/bin/g++ -Ifolder -isystem "/usr/include" "$@"\n', "compile"),
        ('exec g++ "$@"; rm -f counter', "once"),
        ('exec g++ "$@" >> log', "once"),
        ('exec g++ $(cat options) "$@"', "once"),
        ('exec g++ "$@"\necho more', "once"),
        ('date >> log\nexec g++ "$@"', "once"),
        ('exec ./g++-real -B/usr/bin "$@"', "compile"),
        ('exec ./mine "$@"', "once"),
        ('exec g++ -include fifo "$@"', "once"),
        ('exec g++ -fplugin=./a.so "$@"', "once"),
        ("exec g++ -c a.c", "once"),
        ('exec -a g++ g++ "$@"', "once"),
        ('g++ "$@"', "once"),
        ("", "once"),
    ],
)
def test_a_script_as_host_compiler(
    launch: Launch, governor: ScriptedGovernor, sources: Path, script: str, asked: str
) -> None:
    """One that only executes a compiler does what the compiler does."""
    (sources / "host").write_text(f"#!/bin/sh\n{script}\n")
    shutil.copy(sources / "host", sources / "mine")
    why = ": it may start a script" if asked == "once" else ""
    words = ("./nvcc", "-ccbin=./host", "-c", "a.c", "-o", "a.o")
    assert kind(launch, governor, words, sources) == asked + why


@pytest.mark.parametrize("name", ["DEPENDENCIES_OUTPUT", "SUNPRO_DEPENDENCIES"])
def test_a_compiler_that_appends_to_a_file(
    launch: Launch, governor: ScriptedGovernor, sources: Path, name: str
) -> None:
    launch.environment[name] = "list"
    assert (
        kind(launch, governor, COMPILE, sources)
        == "once: a variable makes the compiler append to a file"
    )


def test_a_script_under_a_compilers_name(
    launch: Launch, governor: ScriptedGovernor, sources: Path
) -> None:
    (sources / "host").rename(sources / "g++")
    (sources / "bin").mkdir()
    (sources / "bin/g++").symlink_to("../g++")
    for compiler in ("./g++", "bin/g++"):
        assert (
            kind(launch, governor, (compiler, "-c", "a.c", "-o", "a.o"), sources) == UNKNOWN_PROGRAM
        )


def test_what_stdin_is(launch: Launch, governor: ScriptedGovernor, sources: Path) -> None:
    """A source may include /dev/stdin: only a stdin that yields nothing is harmless."""
    with (sources / "a.c").open() as file:
        assert kind(launch, governor, COMPILE, sources, file.fileno()) == STDIN
        file.seek(0, os.SEEK_END)
        assert kind(launch, governor, COMPILE, sources, file.fileno()) == "compile"
    reader, writer = os.pipe()
    assert kind(launch, governor, COMPILE, sources, reader) == STDIN
    os.write(writer, b"int x;\n")
    os.close(writer)
    assert kind(launch, governor, COMPILE, sources, reader) == STDIN
    os.read(reader, 100)
    assert kind(launch, governor, COMPILE, sources, reader) == "compile"
    os.close(reader)


def test_a_terminal(launch: Launch, governor: ScriptedGovernor, sources: Path) -> None:
    """A step is in its background, so that reading fails each time. One that is told to read it
    runs in its foreground instead, as without us.
    """
    keyboard, terminal = pty.openpty()
    assert kind(launch, governor, COMPILE, sources, terminal) == "compile"
    reading = launch("gcc", "-x", "c", "-c", "-", "-o", "b.o", stdin=terminal, cwd=sources)
    os.write(keyboard, b"int typed;\n\x04")
    assert result(reading) == (0, b"", b"")
    assert b"typed" in (sources / "b.o").read_bytes()
    assert not governor.is_asked()
    for file in (keyboard, terminal):
        os.close(file)


def test_what_a_command_that_runs_once_is_given(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path
) -> None:
    """Its stdin, its stdout, which is not a pipe of ours, and the TMPDIR of the build."""
    launch.environment["TMPDIR"] = str(tmp_path)
    reader, writer = os.pipe()
    os.write(writer, b"from stdin\n")
    os.close(writer)
    script = 'cat; echo "$TMPDIR $STOKER_STEP"; sleep 0.1; readlink /proc/self/fd/1'
    with (tmp_path / "out").open("wb") as out:
        process = launch("/bin/sh", "-c", script, stdin=reader, stdout=out.fileno())
        os.close(reader)
        step = governor.permitted()
        step.expect("done")
        assert process.wait(60) == 0
    lines = (tmp_path / "out").read_text().splitlines()
    assert lines == ["from stdin", f"{tmp_path} 7", str(tmp_path / "out")]


def test_its_half_written_output_is_deleted_when_it_is_ended(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path
) -> None:
    made = tmp_path / "made"
    process = launch("/bin/sh", "-c", 'echo part > "$2"; sleep 1000', "sh", "-o", made)
    step = governor.permitted()
    while not made.exists():
        pass
    step.say("end")
    assert process.wait(60) != 0
    assert not made.exists()
