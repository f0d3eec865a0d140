"""Makes the environment of a governed command, which has its compiles ask the governor.

    ninja (a wide window of jobs) -> a cache, if one is used -> launcher -> compiler

A preloaded library starts the launcher in place of each compiler, whatever configured the build;
with a cache it starts the cache, and the launcher in place of the compiler that the cache starts.
What the cache itself needs is in ``cache.chains``. CMake's launcher variables are set on
request only, for build tools that a library cannot be preloaded into.
"""

import re
from collections.abc import Mapping
from math import inf

from stoker.model.value import Value

_LANGUAGES = ("C", "CXX", "CUDA", "HIP")
_JOBS = re.compile(r"(?:^|(?<=\s))(?:-j\s*\d*|--jobs(?:=\d*)?)(?=\s|$)")
_NUMBER = re.compile(r"(?:-j\s*|--jobs=)(\d+)(?=\s|$)")
_WIDE = 512  # jobs; containers may be limited to some thousand processes
_WAITING = 2**20  # bytes that a shell, a cache and a launcher use while their job waits
_FOR_WAITING = 0.025  # share of memory that waiting jobs may use
_PROCESSES = (
    6  # of those that may be started, for each job: three wait, and running steps have more
)
_FILES_BESIDE = 64  # files that ninja opens besides the pipes of its jobs, or inherits


class Native(Value, frozen=True, kw_only=True):
    """The paths of stoker's native parts."""

    launcher: str
    library: str  # preloaded into every dynamic program of the build
    remembered: str  # leads to the launcher of the version that was used last: for build folders


def window(
    cpus: int, memory: float = inf, files: float = inf, processes: float = inf, slots: int = 0
) -> int:
    """Return the number of jobs that ninja may start, most of which only wait for admission.

    ``files`` is how many a process may have open. ninja has a pipe for each of its jobs. A long
    step can start early only if it is in the window, but each job is two or three ``processes``.
    """
    most = min(files - min(_FILES_BESIDE, files // 2), processes // _PROCESSES)
    wide = min(max(min(32 * cpus, _WIDE), 8 * cpus), memory * _FOR_WAITING // _WAITING)
    return int(max(1, min(max(32, 2 * cpus, wide) + slots, most)))


def files_for(jobs: int) -> int:
    """Return the number of files that ninja must be allowed to open, and no more: a program that
    closes all files it might have, or that uses select(), suffers from a high limit.
    """
    return jobs + _FILES_BESIDE


def governed_environment(
    base: Mapping[str, str],
    native: Native,
    *,
    said: Mapping[str, str],
    jobs: int | None = None,
    via_launcher: bool = False,
    slots: int = 0,
) -> dict[str, str]:
    """Return the environment of a governed build. ``said`` is for launchers (socket, run, ...); the
    user's own launchers are kept. ``slots`` compiles run on other machines. Without ``jobs``, build
    tools keep their own number of jobs.
    """
    environment = {
        **base,
        **said,
        "LD_PRELOAD": _preload(base.get("LD_PRELOAD", ""), native.library),
        "STOKER_LAUNCHER": native.launcher,
        "STOKER_SLOTS": str(slots),
    }
    if base.get("STOKER_SOCKET") != said.get("STOKER_SOCKET"):
        environment.pop("STOKER_CUSTOM", None)  # the number of a step that another governor knows
    for name in ("STOKER_JOBS", "STOKER_PLACES"):
        environment.pop(name, None)
    if jobs is None:
        environment["STOKER_PLACES"] = str(_WIDE)  # the build tools keep their own number
    else:
        environment |= _wide_jobs(base, str(jobs))
    if via_launcher:
        environment["STOKER_VIA_LAUNCHER"] = "1"
        for language in _LANGUAGES:
            environment.setdefault(f"CMAKE_{language}_COMPILER_LAUNCHER", native.remembered)
            environment.setdefault(f"CMAKE_{language}_LINKER_LAUNCHER", native.remembered)
    return environment


def _wide_jobs(base: Mapping[str, str], jobs: str) -> dict[str, str]:
    """Return the variables that give build tools a window of jobs."""
    flags = base.get("MAKEFLAGS")
    return {
        "STOKER_JOBS": jobs,
        # CMake's own Makefiles can run jobs at once; make is told so only where this is set.
        "CMAKE_BUILD_PARALLEL_LEVEL": base.get("CMAKE_BUILD_PARALLEL_LEVEL", jobs),
        **({"MAKEFLAGS": _make_flags(flags, jobs)} if flags else {}),
        **({"STOKER_PLACES": told[1]} if (told := _NUMBER.search(flags or "")) else {}),
    }


def _preload(before: str, library: str) -> str:
    others = [entry for entry in re.split("[: ]", before) if entry and entry != library]
    return ":".join([library, *others])


def _make_flags(flags: str, jobs: str) -> str:
    """Return MAKEFLAGS with our number of jobs, if the user gave one; unchanged under a make with a
    job server, and if the user asked for one job at a time.
    """
    told = _JOBS.findall(flags)
    if "--jobserver" in flags or not told or re.search(r"\D1$", told[-1]):
        return flags
    return f"{_JOBS.sub('', flags).strip()} -j{jobs}".strip()
