"""`stoker slim` on a folder, killed before each of its changes to the file system in turn.

Run as a script, since a test process with threads must not fork. The last word it prints is how
many kills there were; a state from which some command does not recover is an error.
"""

import errno
import itertools
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NoReturn

from stoker.cli.wheel import slim as command
from stoker.model.errors import StokerError, UsageError

SIGNALS = signal.SIGKILL, signal.SIGTERM, signal.SIGHUP
SLIM = ("--for", "sm90")
# The commands that are killed, and the commands that run before them.
CASES: tuple[tuple[tuple[str, ...], tuple[str, ...] | None], ...] = (
    (SLIM, None),
    (("--undo",), SLIM),
    (("--discard",), SLIM),
    ((*SLIM, "--discard"), None),
)
_CHANGES = {"os.rename", "os.link", "os.remove", "os.rmdir", "os.mkdir"}

Tree = dict[str, bytes]


def tree(folder: Path) -> Tree:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def has_store(found: Tree) -> bool:
    return any(".stoker-slim/" in name for name in found)


def slim(folder: Path, words: Sequence[str]) -> int:
    """Run `stoker slim` in a child process; return its exit status."""
    child = os.fork()
    if not child:
        _run(folder, words)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed_at(step: int, folder: Path, words: Sequence[str]) -> bool:
    """Return whether the child was killed; False if it has fewer steps."""
    child = os.fork()
    if not child:
        sys.addaudithook(_killer(step))
        _run(folder, words)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert status in (0, -SIGNALS[step % 3]), f"step {step} of {words}: {status}"
    return status != 0


def _killer(step: int) -> Callable[[str, tuple[Any, ...]], None]:
    seen = itertools.count()

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_CREAT
        if (writes or event in _CHANGES) and next(seen) == step:
            os.kill(os.getpid(), SIGNALS[step % 3])

    return look


def _run(folder: Path, words: Sequence[str]) -> NoReturn:
    status = 1
    try:
        with (
            Path(os.devnull).open("w") as nowhere,
            redirect_stderr(nowhere),
            redirect_stdout(nowhere),
        ):
            status = int(command.main([str(folder), *words], standalone_mode=False) or 0)
    except StokerError as error:
        status = error.status
    finally:
        os._exit(status)


def check(state: Path, before: Tree, after: Tree, *, may_be_lost: bool) -> None:
    """Check that every command works on a copy of the state and leads to one of both trees."""
    trial = state.with_name("trial")
    left = [name for name in tree(state) if ".stoker-slim/" in name and not name.endswith("/lock")]
    for words in (("--undo",), ("--discard",), SLIM):
        subprocess.run(["cp", "-a", state, trial], check=True)
        status, found = slim(trial, words), tree(trial)
        what = f"{words}: {status}, from {sorted(tree(state))} to {sorted(found)}"
        if words == SLIM:
            assert status in (0, UsageError.status if left else 0), what
            if has_store(found):
                assert slim(trial, ("--undo",)) == 0, what
                assert tree(trial) == before, what
            else:
                assert found == after, what
        elif status == 0:
            assert found in ((before,) if words == ("--undo",) else (before, after)), what
        else:  # it reports that nothing is kept, correctly
            assert status == UsageError.status, what
            assert not left or (may_be_lost and found == after), what
            assert found in (before, after), what
        shutil.rmtree(trial)


def _no_link(*_: object, **__: object) -> None:
    """Fail like a file system without hard links."""
    raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))


def kills(folder: Path, words: Sequence[str], done_before: Sequence[str] | None) -> int:
    before = tree(folder)
    state, slimmed = folder.with_name("state"), folder.with_name("slimmed")
    shutil.copytree(folder, slimmed)
    # Imported here, so that the children do not import it again.
    command.main([str(slimmed), *SLIM, "--discard"], standalone_mode=False)
    after = tree(slimmed)
    assert after.keys() > before.keys()  # the record of slimming
    for step in itertools.count():
        shutil.copytree(folder, state)
        if done_before:
            assert slim(state, done_before) == 0
        if not killed_at(step, state, words):
            return step
        try:
            check(state, before, after, may_be_lost="--discard" in words)
        except AssertionError as error:
            raise AssertionError(f"{words} killed at step {step}: {error}") from None
        shutil.rmtree(state)
    raise AssertionError


if __name__ == "__main__":
    words, done_before = CASES[int(sys.argv[2])]
    if "no-links" in sys.argv:
        os.link = _no_link
    sys.stdout.write(f"kills: {kills(Path(sys.argv[1]), words, done_before)}\n")
