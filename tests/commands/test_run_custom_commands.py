"""Custom commands of a build under `stoker run`: what they start, and how they end."""

import os
import shlex
import signal
import sys

import msgspec
import pytest

from conftest import Need
from counted_compilers import Project
from governed import STOKER, Build, at_terminal, finished, wait_until
from memory_groups import MakeGroup
from stoker.model.runs import RunSummary

MIB = 1 << 20


@pytest.fixture
def project(build: Build, need: Need) -> Project:
    return Project(build, need)


def ninja_file(commands: dict[str, str], *more: str) -> str:
    """A build file with custom commands, by what they make."""
    statements = [
        f"rule {name}\n  command = {command} && touch {name}\nbuild {name}: {name}\n"
        for name, command in commands.items()
    ]
    return "\n".join([*statements, *more]) + "\n"


def python(code: str) -> str:
    return shlex.join([sys.executable, "-S", "-c", code])


@pytest.mark.slow
@pytest.mark.parametrize("words", ["ninja", "ninja -j4", "make -j4"])
def test_sixty_custom_commands_under_a_limit(
    project: Project, make_group: MakeGroup, need: Need, words: str
) -> None:
    """A window of them at once would not fit."""
    command = python("import time; memory = b'x' * (60 << 20); time.sleep(0.1)")
    names = [f"c{i}" for i in range(60)]
    project.write(
        build_ninja=ninja_file(dict.fromkeys(names, command)),
        Makefile=f"all: {' '.join(names)}\nc%:\n\t{command} && touch $@\n",
    )
    need(words.split()[0])
    group = make_group("custom")
    group.set_limit(700 * MIB)
    file = project.folder / "summary.json"
    run = project.build.start(*words.split(), options=["--summary", str(file)], prefix=group.enter)
    done = finished(run)
    assert done.status == 0, done
    assert all((project.folder / name).exists() for name in names)
    assert msgspec.json.decode(file.read_bytes(), type=RunSummary).oom_kills == 0
    assert len(project.build.attempts()) == 60


COMPILES = """
import subprocess, sys
words = ["gcc", "-c", "a.c", "-o"]
running = [subprocess.Popen([*words, f"{sys.argv[1]}-{i}.o"]) for i in range(4)]
sys.exit(any([each.wait() for each in running]))
"""


@pytest.mark.parametrize("cpus", ["1", "2"])
def test_a_custom_command_that_starts_compilers(project: Project, cpus: str) -> None:
    """It gives its permit back for them, so even one CPU is enough."""
    command = f"{sys.executable} compiles.py"
    project.write(a_c="int a;\n", compiles_py=COMPILES)
    project.write(build_ninja=ninja_file({name: f"{command} {name}" for name in ("x", "y", "z")}))
    done = project.build.run("ninja", options=["--cpus", cpus])
    assert done.status == 0, done
    assert len(project.started()) == len(project.compiles()) == 12


def test_a_run_in_a_custom_command(project: Project) -> None:
    """The one CPU is free for its compiles, though they belong to another run."""
    project.file("run.sh", f"sleep 0\n'{STOKER}' run -- gcc -c a.c -o a.o\n")
    project.write(a_c="int a;\n", build_ninja=ninja_file({"x": "sh run.sh"}))
    done = project.build.run("ninja", options=["--cpus", "1"])
    assert done.status == 0, done
    assert len(project.started()) == 1


def test_a_make_in_a_script_shares_the_jobs(project: Project, need: Need) -> None:
    need("make")
    project.sources("sub/")
    project.file("sub.sh", "sleep 0\nmake -C sub $1.o\n")
    project.write(sub__Makefile="%.o: %.c\n\tgcc -c $< -o $@\n")
    project.write(Makefile="all: s0 s1 s2\ns%:\n\t+sh ./sub.sh $@\n")
    done = project.build.run("make", "-j4", options=["--cpus", "1"])
    assert done.status == 0, done
    assert "jobserver" not in done.err
    assert len(project.started()) == len(project.compiles()) == 3


def test_a_custom_command_without_memory_is_not_started_twice(
    project: Project, make_group: MakeGroup
) -> None:
    command = "echo once >> attempts && " + python("memory = b'x' * (1 << 30)")
    project.write(build_ninja=ninja_file({"large": command}))
    group = make_group("once")
    group.set_limit(400 * MIB)
    done = finished(project.build.start(prefix=group.enter))
    assert done.status != 0
    assert b"FAILED: " in done.out
    assert (project.folder / "attempts").read_text() == "once\n"


@pytest.mark.parametrize(
    ("command", "said"), [("exit 7", "Error 7"), ("kill -SEGV $$$$", "Segmentation fault")]
)
def test_how_a_custom_command_fails_is_seen(
    project: Project, need: Need, command: str, said: str
) -> None:
    need("make")
    project.write(Makefile=f'all: ; @sh -c "sleep 0; {command}"\n')
    done = project.build.run("make", LC_ALL="C")
    assert done.status == 2
    assert said in done.err, done
    assert len(project.build.attempts()) == 1


def test_an_interrupt_ends_custom_commands(project: Project) -> None:
    command = "echo $$$$ > pid && (setsid sleep 1000 & sleep 1000)"
    project.write(build_ninja=ninja_file({"long": command}))
    run = project.build.start()
    project.build.pid("pid")
    run.send_signal(signal.SIGINT)
    assert finished(run).status != 0
    project.build.wait_for_end()


def test_a_custom_command_at_a_terminal_has_it(project: Project) -> None:
    """ninja gives its terminal to the jobs of the pool `console`."""
    console = "rule ask\n  command = python3 ask.py\n  pool = console\nbuild answer: ask"
    ask = "open('answer', 'w').write(input('Which? '))\n"
    project.write(build_ninja=ninja_file({}, console), ask_py=ask)
    with at_terminal(project.build) as terminal:
        os.write(terminal.keyboard, b"this one\n")
        wait_until((project.folder / "answer").exists, "it is answered")
        terminal.screen()
    project.build.wait_for_end()
    assert (project.folder / "answer").read_text() == "this one"
    assert project.build.attempts() == []
