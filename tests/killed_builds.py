"""Kill random processes of a build again and again; each time, restart the build."""

import os
import random
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

from governed import STOKER, alive, command_of

TIMEOUT_S = 1800.0  # only prevents a test from hanging
VICTIMS = ("all", "governor", "ninja", "compiler")
_PROGRAMS = {"ninja": ("ninja",), "compiler": ("cc1plus", "as", "c++", "g++", "ld")}


def build_killed(
    tree: Path, out: Path, home: Path, *options: str, kills: int, seed: int
) -> list[str]:
    """Kill that many processes, then let the build finish. Return the kinds of the victims.

    A build continues without its governor, so the next victim belongs to the same build. If a
    build ends before all kills, its objects are deleted, so that the next one has work to do.
    """
    chance = random.Random(seed)
    killed: list[str] = []
    while len(killed) < kills:
        build = _start(tree, out, home, *options)
        while len(killed) < kills:
            after = chance.uniform(0.2, 3.0)
            victim = _kill(chance, build, home, after=after)
            if victim is None:
                break
            killed.append(victim)
        build.wait(timeout=TIMEOUT_S)
        if len(killed) < kills and build.returncode == 0:
            for file in home.glob("cache/builds/*/build/CMakeFiles/*/**/*.o"):
                file.unlink()
    final = _start(tree, out, home, *options)
    assert final.wait(timeout=TIMEOUT_S) == 0, (out.parent / "output").read_text()
    return killed


def _start(tree: Path, out: Path, home: Path, *options: str) -> subprocess.Popen[bytes]:
    with (out.parent / "output").open("ab") as stream:
        return subprocess.Popen(
            [STOKER, "build", str(tree), "--variant", "cpu", "--out", str(out), *options],
            env={**os.environ, "STOKER_HOME": str(home)},
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
        )


def _kill(
    chance: random.Random, build: subprocess.Popen[bytes], home: Path, *, after: float
) -> str | None:
    """Kill one process of that kind after a delay; return None if the build ended before."""
    moment = time.monotonic() + after
    while build.poll() is None:
        found = {kind: pids for kind in VICTIMS if (pids := _find(kind, home))}
        if time.monotonic() >= moment and found:
            victim = chance.choice(sorted(found))
            if victim == "all":
                _kill_all(home)
            else:
                with suppress(ProcessLookupError):
                    os.kill(found[victim][0], signal.SIGKILL)
            return victim
        time.sleep(0.02)
    return None


def _find(kind: str, home: Path) -> list[int]:
    return [pid for pid in processes(home) if _is(kind, pid)]


def _kill_all(home: Path) -> None:
    while left := processes(home):
        for pid in left:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.02)


def _is(victim: str, pid: int) -> bool:
    if victim == "all":
        return True
    if victim == "governor":
        return "stoker.govern.server.daemon" in command_of(pid)
    with suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip() in _PROGRAMS[victim]
    return False


def processes(home: Path) -> list[int]:
    """Return all processes of the build with this STOKER_HOME, including the build itself."""
    mark = os.fsencode(f"STOKER_HOME={home}")
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if mark in (folder / "environ").read_bytes().split(b"\0") and alive(int(folder.name)):
                found.append(int(folder.name))
    return found
