"""Killing processes that a killed process left."""

import os
import subprocess

from stoker.outside.processes import end_all_with


def sleeper(mark: str, **how: bool) -> "subprocess.Popen[bytes]":
    child = subprocess.Popen(
        ["sh", "-c", "echo on; exec sleep 1000"],
        env={**os.environ, "MARK_OF_TEST": mark},
        stdout=subprocess.PIPE,
        start_new_session=how.get("server", False),
    )
    assert child.stdout is not None
    child.stdout.readline()
    return child


def test_only_those_with_the_mark_and_no_servers() -> None:
    marked, other = sleeper("here"), sleeper("there")
    server = sleeper("here", server=True)
    try:
        end_all_with("MARK_OF_TEST", "here")
        assert marked.wait(timeout=60) == -9
        assert (other.poll(), server.poll()) == (None, None)
    finally:
        for child in (marked, other, server):
            child.kill()
            child.communicate()
