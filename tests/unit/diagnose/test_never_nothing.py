"""A log with an error, a killed program or a status other than zero never failed in nothing."""

from io import BytesIO

import pytest

from stoker.diagnose.sieve import read_log
from stoker.diagnose.values import Status
from stoker.diagnose.verdict import diagnose

FAILED = [
    "make: *** [Makefile:4: mill.o] Error 1",
    "make: *** [Makefile:4: mill.o] Killed",
    "/bin/sh: line 1: 2214 Killed                  cc -c mill.c",
    "Killed",
    "mill.c:12:5: error: expected ';' before 'grain'",
    "ld: mill.o: cannot open: Permission denied",
    "error: builder for '/nix/store/q-mill.drv' failed with exit code 1;",
    "Building module(s)...(bad exit status: 2)",
    "subprocess.CalledProcessError: Command '['mill']' returned non-zero exit status 1.",
    "The step exited with code 2",
    "==> ERROR: A failure occurred in build().",
    "npm error code ELIFECYCLE",
    "ERROR: mill.build: unknown grain",
    "Process completed with exit code 137.",
    "cc1plus: fatal error: Killed signal terminated program cc1plus",
    "mill: command not found",
    "Makefile:12: *** missing separator.  Stop.",
    "go: errors parsing go.mod:",
    "  thread 'main' (5790) panicked at /src/mill-sys/build/main.rs:472:5:",
    "You have not agreed to the Xcode license agreements. Please run sudo xcodebuild -license",
    "make[1]: *** /lib/modules/6.8.0/build: No such file or directory.  Stop.",
]


def status(text: str) -> Status:
    return diagnose(read_log(BytesIO(text.encode()))).status


@pytest.mark.parametrize("after", ["", "\n\n", "\nCleaning up\nSee the log for details\n" * 3])
@pytest.mark.parametrize("line", FAILED)
def test_a_line_about_a_failure_is_never_nothing(line: str, after: str) -> None:
    built = "-- Build files have been written to: /src/build\n[2/2] Linking mill\n"
    assert status(f"{built}{line}{after}") is not Status.NOTHING_FAILED
