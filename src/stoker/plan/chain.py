"""Which launcher, cache and compiler stand in which order: the environment of a governed command.

    ninja (a wide window of jobs) -> ccache, where it is used -> launcher -> compiler

ccache calls the launcher only on a miss, so that a hit never waits. Everything that is not reached
through CMake's variables is reached through links named like the compilers, first on the PATH.
"""

import re
from collections.abc import Mapping

from stoker.model.value import Value

_LANGUAGES = ("C", "CXX", "CUDA", "HIP")
# The one list of compilers, under whatever prefix and version they are installed: the launcher
# stands for them on the PATH, and their command lines are read.
COMPILER = re.compile(
    r"(?:.*-)?(?:cc|c\+\+|gcc|g\+\+|clang|clang\+\+|nvcc|hipcc|icx|icpx|gfortran)(?:-[\d.]+)?"
)
# Programs whose jobs are ours to choose; cmake is among them for what it finds when it configures.
BUILD_TOOLS = ("ninja", "make", "gmake", "cmake")
_JOBS = re.compile(r"(?:^|(?<=\s))(?:-j\s*\d*|--jobs(?:=\d*)?)(?=\s|$)")


class Links(Value, frozen=True, kw_only=True):
    """Where things are that `stoker run` puts before others."""

    launcher: str
    compilers: str  # folder of links named like compilers
    tools: str  # folder of stand-ins for the build tools
    nvcc: str  # what PyTorch's extensions are to call


def window(cpus: int) -> int:
    """Jobs that ninja may start: candidates to choose from, most of which only wait."""
    return max(32, 8 * cpus)


def governed_environment(
    base: Mapping[str, str],
    links: Links,
    *,
    cpus: int,
    said: Mapping[str, str],
    cuda_home: str | None = None,
) -> dict[str, str]:
    """``said`` is what launchers are told (socket, run, ...); the user's own launchers stay.

    ``cuda_home`` is what a build would take the toolkit to be; it could not tell by an nvcc on the
    PATH that is a link of ours.
    """
    jobs = str(window(cpus))
    environment = dict(base) | dict(said)
    for language in _LANGUAGES:
        environment.setdefault(f"CMAKE_{language}_COMPILER_LAUNCHER", links.launcher)
        environment.setdefault(f"CMAKE_{language}_LINKER_LAUNCHER", links.launcher)
    if " " not in links.launcher:  # ccache takes a prefix apart at its spaces
        environment.setdefault("CCACHE_PREFIX", links.launcher)
    # It must know a compiler by its own file, not by a link of ours: that stays when it changes.
    environment.setdefault("CCACHE_PATH", base.get("PATH", ""))
    if cuda_home:
        environment.setdefault("CUDA_HOME", cuda_home)
        environment.setdefault("PYTORCH_NVCC", links.nvcc)
    return environment | {
        "PATH": _path(base.get("PATH", ""), links, cuda_home),
        "STOKER_LAUNCHER": links.launcher,
        "STOKER_LINKS": links.compilers,
        "STOKER_JOBS": jobs,
        "MAX_JOBS": jobs,
        "CMAKE_BUILD_PARALLEL_LEVEL": jobs,
        "MAKEFLAGS": _make_flags(base.get("MAKEFLAGS", ""), jobs),
    }


def _path(path: str, links: Links, cuda_home: str | None) -> str:
    folders = [links.tools, links.compilers, *path.split(":")]
    if cuda_home:
        folders.append(f"{cuda_home}/bin")  # where a link named nvcc may find the real one
    return ":".join(dict.fromkeys(folders))


def _make_flags(flags: str, jobs: str) -> str:
    """Below a make that shares its jobs out, those of ours would break the sharing."""
    if "--jobserver" in flags:
        return flags
    return f"{_JOBS.sub('', flags).strip()} -j{jobs}".strip()
