"""Builds under `stoker run` with real ninja and real processes.

Every process that a test starts has the test's STOKER_HOME in its environment, so that the test
finds processes that outlive it.
"""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from stoker.govern.client.native import stable_native
from stoker.govern.history.store import History
from stoker.model.runs import Attempt, RunSummary

STOKER = str(Path(sys.executable).with_name("stoker"))
# A line of a step that ends when the test calls let_go().
WAIT = "until [ -e go ]; do sleep 0.05; done"


def wait_until(condition: Callable[[], object], what: str, seconds: float = 60.0) -> None:
    """Poll until the condition holds. The deadline only prevents a test from hanging."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain until {what}"
        time.sleep(0.02)


def alive(pid: int) -> bool:
    """Return whether the process runs; a zombie does not."""
    return _stat(pid)[:1] not in ([], ["Z"])


def parent_of(pid: int) -> int:
    return int(_stat(pid)[1])


def above(pid: int, name: str) -> int:
    """Return the nearest ancestor that runs a program of that name."""
    while Path(f"/proc/{pid}/exe").readlink().name != name:
        pid = parent_of(pid)
    return pid


def _stat(pid: int) -> list[str]:
    """Return the fields after the name in /proc/PID/stat: the state, the parent, ..."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return []


def command_of(pid: int) -> str:
    try:
        return (
            Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        )
    except OSError:
        return ""


class Build:
    """A build folder with shell scripts as steps, each wrapped by the launcher. The shell has the
    name of a compiler: a command that is not known to be one is never started twice.
    """

    def __init__(self, folder: Path, home: Path):
        self.folder = folder
        self.home = home
        folder.mkdir(parents=True, exist_ok=True)
        self.launcher = stable_native().launcher
        self.environment = dict(os.environ, STOKER_HOME=str(home))
        self._runs: list[subprocess.Popen[bytes]] = []
        (folder / "gcc").symlink_to("/bin/sh")
        self._statements = {"": "rule step\n  command = $before $shell ./$name.sh -o $out\n"}

    def step(
        self, name: str, script: str, *, needs: Iterable[str] = (), before: str | None = None
    ) -> None:
        """Add a step that creates a file of its name if its script succeeds."""
        shell = "./gcc" if before is None else "sh"
        before = f"'{self.launcher}'" if before is None else before
        (self.folder / f"{name}.sh").write_text(f"set -e\n{script}\ntouch {name}\n")
        self._statements[name] = (
            f"build {name}: step {' '.join(needs)}\n"
            f"  name = {name}\n  before = {before}\n  shell = {shell}\n"
        )
        (self.folder / "build.ninja").write_text("\n".join(self._statements.values()))

    def start(
        self,
        *words: str,
        options: Iterable[str] = (),
        prefix: Iterable[str] = (),
        **environment: str,
    ) -> subprocess.Popen[bytes]:
        """Start ``stoker run OPTIONS -- WORDS``; the default command is ninja."""
        run = subprocess.Popen(
            [*prefix, STOKER, "run", *options, "--", *(words or ("ninja",))],
            cwd=self.folder,
            env=self.environment | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self._runs.append(run)
        return run

    def let_go(self) -> None:
        """Let the steps with WAIT continue."""
        (self.folder / "go").touch()

    def run(self, *words: str, options: Iterable[str] = (), **environment: str) -> "Finished":
        return finished(self.start(*words, options=options, **environment))

    def summary(self, *words: str, options: Iterable[str] = (), **environment: str) -> RunSummary:
        """Run the build; fail the test if it fails. Return the summary."""
        file = self.folder / "summary.json"
        done = self.run(*words, options=["--summary", str(file), *options], **environment)
        assert done.status == 0, done
        return msgspec.json.decode(file.read_bytes(), type=RunSummary)

    def made(self) -> set[str]:
        """Return the names of the finished steps."""
        return {file.stem for file in self.folder.glob("*.sh") if file.with_suffix("").exists()}

    def pid(self, name: str) -> int:
        """Wait until a step has written its process id to the file NAME; return it."""
        file = self.folder / name
        wait_until(lambda: file.exists() and file.read_text().endswith("\n"), f"{name} is written")
        return int(file.read_text())

    def attempts(self) -> list[Attempt]:
        """Return the attempts of the last run in this folder with governed steps, or nothing. Runs
        of other folders may have the same history, and be recorded before or after it.
        """
        with History(self.home / "state" / "history.sqlite") as history:
            runs = [run for run in history.runs() if run.directory == str(self.folder)]
            return [each for run in runs[:1] for each in history.attempts(run.id)]

    def processes(self) -> list[int]:
        """Return all processes that belong to this test."""
        mark = f"STOKER_HOME={self.home}".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                pid = int(folder.name)
                if mark in (folder / "environ").read_bytes().split(b"\0") and alive(pid):
                    found.append(pid)
        return found

    def governors(self) -> list[int]:
        return [pid for pid in self.processes() if "stoker.govern.server.daemon" in command_of(pid)]

    def sockets(self) -> list[Path]:
        return list((self.home / "run").glob("*.sock"))

    def wait_for_end(self) -> None:
        """Wait until all commands, launchers and the governor have exited."""
        wait_until(lambda: not self.processes(), "nothing is left of it")

    def kill_what_is_left(self) -> list[str]:
        """Kill the processes that should have exited; return them for the failure message."""
        found = self.processes()
        left = [f"{pid}: {command_of(pid)}" for pid in found]
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for run in self._runs:
            run.communicate()
        return left


class Finished:
    def __init__(self, status: int, out: bytes, err: str):
        self.status = status
        self.out = out
        self.err = err

    def __repr__(self) -> str:
        return f"status {self.status}\n{self.out.decode(errors='replace')[-2000:]}\n{self.err}"


def finished(process: subprocess.Popen[bytes], seconds: float = 120.0) -> Finished:
    out, err = process.communicate(timeout=seconds)
    return Finished(process.returncode, out, err.decode())


class Terminal:
    """A command that runs in its own pseudoterminal."""

    def __init__(self, pid: int, keyboard: int):
        self.pid = pid
        self.keyboard = keyboard

    def screen(self) -> bytes:
        """Return everything written to the terminal, until every process has closed it."""
        shown = b""
        while True:
            try:
                chunk = os.read(self.keyboard, 1 << 16)
            except OSError:
                return shown
            shown += chunk


@contextmanager
def at_terminal(build: Build) -> Iterator[Terminal]:
    pid, keyboard = pty.fork()
    if pid:
        fcntl.ioctl(keyboard, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    if pid == 0:
        os.chdir(build.folder)
        os.environ.update(build.environment | {"TERM": "xterm"})
        os.execv(STOKER, ["stoker", "run", "--", "ninja"])
    try:
        yield Terminal(pid, keyboard)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(keyboard)
