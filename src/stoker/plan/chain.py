"""Which launcher, cache and compiler stand in which order: the environment of a governed command.

    ninja (a wide window of jobs) -> ccache, where it is used -> launcher -> compiler

ccache calls the launcher only on a miss, so that a hit never waits. Everything that is not reached
through CMake's variables is reached through links named like the compilers, first on the PATH.
"""

from collections.abc import Mapping

from stoker.model.value import Value

_LANGUAGES = ("C", "CXX", "CUDA", "HIP")
MASQUERADED = (
    "cc", "c++", "gcc", "g++", "clang", "clang++", "nvcc", "hipcc", "icx", "icpx", "gfortran",
)  # fmt: skip


class Links(Value, frozen=True, kw_only=True):
    """Where the launcher is, and the folder with the links and the ninja shim."""

    launcher: str
    folder: str


def window(cpus: int) -> int:
    """Jobs that ninja may start: candidates to choose from, most of which only wait."""
    return max(32, 8 * cpus)


def governed_environment(
    base: Mapping[str, str], links: Links, *, cpus: int, said: Mapping[str, str]
) -> dict[str, str]:
    """``said`` is what launchers are told (socket, run, ...); the user's own launchers stay."""
    jobs = str(window(cpus))
    environment = dict(base) | dict(said)
    for language in _LANGUAGES:
        environment.setdefault(f"CMAKE_{language}_COMPILER_LAUNCHER", links.launcher)
        environment.setdefault(f"CMAKE_{language}_LINKER_LAUNCHER", links.launcher)
    environment.setdefault("CCACHE_PREFIX", links.launcher)
    # cpp_extension calls nvcc by its path, not by its name, unless it is told another.
    environment.setdefault("PYTORCH_NVCC", f"{links.folder}/nvcc")
    environment |= {
        "PATH": _path(base, links),
        "STOKER_JOBS": jobs,
        "MAX_JOBS": jobs,
        "CMAKE_BUILD_PARALLEL_LEVEL": jobs,
        "MAKEFLAGS": _make_flags(base.get("MAKEFLAGS", ""), jobs),
    }
    return environment


def _path(base: Mapping[str, str], links: Links) -> str:
    folders = [links.folder, *base.get("PATH", "").split(":")]
    if home := base.get("CUDA_HOME"):
        folders.append(f"{home}/bin")  # where the link named nvcc finds the real one
    return ":".join(dict.fromkeys(folders))


def _make_flags(flags: str, jobs: str) -> str:
    return flags if "-j" in flags or "jobserver" in flags else f"{flags} -j{jobs}".strip()
