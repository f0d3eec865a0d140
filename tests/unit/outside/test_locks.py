"""Locks: holders, waiting processes, and deleted lock files."""

import subprocess
from contextlib import ExitStack
from pathlib import Path

import pytest

from held_locks import held_elsewhere
from stoker.outside import locks


def test_lock_waits_or_says_so(tmp_path: Path) -> None:
    lock = tmp_path / "deep/lock"
    with held_elsewhere(lock, "shared"):
        with locks.held(lock, shared=True):
            pass
        with pytest.raises(locks.BusyError), locks.held(lock):
            pass
    assert not locks.is_held(lock)
    assert not locks.is_held(tmp_path / "absent")
    with ExitStack() as other:
        other.enter_context(held_elsewhere(lock))
        with locks.held(lock, waiting=other.close):
            assert locks.is_held(lock)


def test_the_process_that_holds_a_lock_is_named(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    words = ["flock", str(lock), "sh", "-c", "echo held; read line"]
    with subprocess.Popen(words, stdin=-1, stdout=-1, text=True) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        named = pytest.raises(locks.BusyError, match=rf"busy \(process {holder.pid}\)")
        with named, locks.held(lock, busy="busy"):
            pass
        holder.communicate("go\n")


def test_a_deleted_lock_is_held_by_no_process(tmp_path: Path) -> None:
    """A process that waited for a lock that its holder deleted must not assume that it holds it."""
    lock = tmp_path / "lock"

    with ExitStack() as first:
        first.enter_context(locks.held(lock))
        first.callback(lock.unlink)
        with locks.held(lock, waiting=first.close):
            assert lock.exists()
            with pytest.raises(locks.BusyError), locks.held(lock):
                pass
