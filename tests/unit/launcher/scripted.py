"""A governor that follows a test's script, and a launcher that a test can observe."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

TIMEOUT_S = 60.0  # seconds until a test that waits gives up

_ESCAPES = {b"\\": b"\\\\", b"\t": b"\\t", b"\n": b"\\n", b"\r": b"\\r", b"\0": b"\\0"}

Word = str | os.PathLike[str]

REPEATABLE = ("-o", "output-of-no-compile")  # a command that names no output is never repeated


def encoded(*fields: str | bytes) -> bytes:
    """A line of the protocol, written as simply as its definition."""
    escaped = []
    for field in fields:
        raw = field.encode() if isinstance(field, str) else field
        for byte, letters in _ESCAPES.items():
            raw = raw.replace(byte, letters)
        escaped.append(raw)
    return b"\t".join(escaped) + b"\n"


def decoded(line: bytes) -> list[bytes]:
    letters = {escape[1:]: byte for byte, escape in _ESCAPES.items()}
    fields = []
    for raw in line.removesuffix(b"\n").split(b"\t"):
        head, *parts = raw.replace(b"\\\\", b"\\/").split(b"\\")
        letters[b"/"] = b"\\"
        fields.append(head + b"".join(letters[part[:1]] + part[1:] for part in parts))
    return fields


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for something that another process will make true."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, f"never came true: {what}"
        time.sleep(0.005)


def alive(pid: int) -> bool:
    """Whether it runs; one that waits for its parent to notice its death does not."""
    return state(pid) not in ("", "Z", "X")


def state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return ""


def children(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(fields[1]) == pid:
            found.append(int(entry.parent.name))
    return found


def process_and_namespace(pid: int) -> str:
    """A process of our own pid namespace, as STOKER_PROCESS names it."""
    return f"{pid} {Path('/proc/self/ns/pid').stat().st_ino}"


def pids_in(file: Path, count: int) -> list[int]:
    """The process numbers that a script has written there, once there are so many."""
    until(lambda: file.exists() and file.read_bytes().count(b"\n") >= count, f"{count} in {file}")
    return [int(line) for line in file.read_text().split()]


class Conversation:
    """What one launcher says and is told."""

    def __init__(self, stream: socket.socket):
        stream.settimeout(TIMEOUT_S)
        self._stream = stream
        self._received = b""
        self.keeper = 0  # the process whose pidfd came last

    def hear_raw(self) -> list[bytes]:
        """The next message; empty when the launcher is gone."""
        while b"\n" not in self._received:
            chunk, descriptors, _, _ = socket.recv_fds(self._stream, 1 << 16, 1)
            for descriptor in descriptors:
                self.keeper = _process_of(descriptor)
            if not chunk:
                return []
            self._received += chunk
        line, _, self._received = self._received.partition(b"\n")
        return decoded(line)

    def hear(self) -> list[bytes]:
        """The next message but for questions whether we are alive, which are answered."""
        message = self.hear_raw()
        while message == [b"ping"]:
            self.say("pong")
            message = self.hear_raw()
        return message

    def expect(self, word: str) -> list[bytes]:
        """The fields of the next message but for reports of memory."""
        message = self.hear()
        while message and message[0] == b"memory" and word != "memory":
            message = self.hear()
        assert message, f"the launcher was gone before it said {word}"
        assert message[0] == word.encode(), message
        return message[1:]

    def say(self, *fields: str | bytes) -> None:
        self.say_raw(encoded(*fields))

    def say_raw(self, line: bytes) -> None:
        with suppress(BrokenPipeError):  # after success it does not wait for an answer
            self._stream.sendall(line)

    def permit(self) -> int:
        """Let it run; the process group of the command."""
        self.say("run", "7")
        self.expect("started")
        return self.keeper

    def kill(self) -> None:
        """Let it kill the command, and wait until it has."""
        self.say("kill")
        self.expect("killed")

    def close(self) -> None:
        self._stream.close()


def _process_of(pidfd: int) -> int:
    lines = Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines()
    os.close(pidfd)
    return int(next(line for line in lines if line.startswith("Pid:")).split()[1])


class ScriptedGovernor:
    def __init__(self, path: Path, backlog: int = 64):
        self.path = path
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen(backlog)
        self._listener.settimeout(TIMEOUT_S)
        self._conversations: list[Conversation] = []

    def accept(self) -> Conversation:
        conversation = Conversation(self._listener.accept()[0])
        self._conversations.append(conversation)
        return conversation

    def asked(self) -> Conversation:
        """A launcher whose question has come."""
        conversation = self.accept()
        conversation.expect("ask")
        return conversation

    def permitted(self) -> Conversation:
        """A launcher whose question has come and whose command runs."""
        conversation = self.asked()
        conversation.permit()
        return conversation

    def is_asked(self) -> bool:
        """Whether anyone is at the door."""
        self._listener.settimeout(0)
        try:
            self.accept()
        except BlockingIOError:
            return False
        finally:
            self._listener.settimeout(TIMEOUT_S)
        return True

    def permit_everything(self) -> list[list[bytes]]:
        """From now on, on threads of its own; the list fills with what was asked."""
        asked: list[list[bytes]] = []
        threading.Thread(target=self._serve, args=(asked,), daemon=True).start()
        return asked

    def _serve(self, asked: list[list[bytes]]) -> None:
        while True:
            try:
                conversation = self.accept()
            except OSError:
                return
            threading.Thread(target=_permit, args=(conversation, asked), daemon=True).start()

    def die(self) -> None:
        """As after kill -9: everything is closed, the socket's name stays."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits there
        self._listener.close()
        for conversation in self._conversations:
            conversation.close()


def _permit(conversation: Conversation, asked: list[list[bytes]]) -> None:
    try:
        asked.append(conversation.expect("ask"))
        conversation.permit()
        conversation.expect("done")
        conversation.say("release")
    except (OSError, ValueError, AssertionError):
        return  # the launcher was killed, or the test is over


class Launch:
    """Starts the launcher in an environment of the test's, and leaves nothing behind."""

    def __init__(self, launcher: Path, environment: Mapping[str, str], names: Path):
        """Prepare. ``names`` is a folder for programs under other names."""
        self.launcher = launcher
        self._names = names
        self.environment = dict(environment)
        self._started: list[subprocess.Popen[bytes]] = []

    def __call__(
        self,
        *command: Word,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
        stdin: int = subprocess.DEVNULL,
        cwd: Path | None = None,
    ) -> subprocess.Popen[bytes]:
        words = [self.launcher, *command]
        return self.program(words, stdout=stdout, stderr=stderr, stdin=stdin, cwd=cwd)

    def program(
        self,
        command: Sequence[Word],
        *,
        stdout: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
        stdin: int = subprocess.DEVNULL,
        cwd: Path | None = None,
    ) -> subprocess.Popen[bytes]:
        """Something else that may start launchers."""
        process = subprocess.Popen(
            command, stdout=stdout, stderr=stderr, stdin=stdin, cwd=cwd, env=self.environment
        )
        self._started.append(process)
        return process

    def script(self, text: str, *arguments: Word) -> subprocess.Popen[bytes]:
        """The launcher before a shell script, which it takes for a compile that it may repeat."""
        return self(self.compiler, "-c", text, "sh", *arguments, *REPEATABLE)

    def python(self, text: str, *arguments: Word) -> subprocess.Popen[bytes]:
        """The launcher before a Python program, which it takes for a compile."""
        compiler = self.named("clang", sys.executable)
        return self(compiler, "-I", "-S", "-c", text, *arguments, *REPEATABLE)

    @property
    def compiler(self) -> Path:
        """A shell under the name of a compiler: only compilers are started twice."""
        return self.named("gcc", "/bin/sh")

    def named(self, name: str, program: str) -> Path:
        """A program under another name."""
        link = self._names / name
        if not link.is_symlink():
            link.symlink_to(program)
        return link

    def end(self) -> None:
        for process in self._started:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.communicate()


def result(process: subprocess.Popen[bytes]) -> tuple[int, bytes, bytes]:
    """Wait for the process; return its status, output and errors."""
    out, err = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, out, err
