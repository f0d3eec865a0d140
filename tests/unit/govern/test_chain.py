"""The environment of a governed command."""

import pytest

from stoker.govern.chain import Native, governed_environment, window

NATIVE = Native(
    launcher="/d/1/launcher", library="/d/l/libstoker-preload.so", remembered="/d/launcher"
)


def environment(*, via_launcher: bool = False, **base: str) -> dict[str, str]:
    said = {"STOKER_SOCKET": "/s"}
    return governed_environment(base, NATIVE, said=said, jobs=64, via_launcher=via_launcher)


def test_the_window_is_several_times_the_cpus() -> None:
    assert [window(cpus) for cpus in (1, 2, 16, 64, 128)] == [32, 64, 512, 512, 1024]


def test_a_container_with_few_processes_has_few_jobs() -> None:
    assert [window(16, processes=most) for most in (0, 300, 2048)] == [1, 50, 341]


def test_jobs_that_wait_use_little_of_the_memory() -> None:
    gib = 2**30
    assert [window(16, memory * gib) for memory in (1, 8, 16, 64)] == [32, 204, 409, 512]
    assert window(128, 4 * gib) == 256  # every CPU has a step that runs and one that waits


def test_what_launchers_are_told_and_what_was_there_both_stand() -> None:
    told = environment(HOME="/home/me", MAX_JOBS="2", PATH="/usr/bin")
    assert (told["STOKER_SOCKET"], told["HOME"]) == ("/s", "/home/me")
    assert told["STOKER_LAUNCHER"] == "/d/1/launcher"
    assert (told["MAX_JOBS"], told["PATH"]) == ("2", "/usr/bin")


def test_a_custom_command_around_the_run_is_named_to_its_own_governor_alone() -> None:
    assert environment(STOKER_CUSTOM="12", STOKER_SOCKET="/s")["STOKER_CUSTOM"] == "12"
    assert "STOKER_CUSTOM" not in environment(STOKER_CUSTOM="12", STOKER_SOCKET="/other")


def test_the_library_is_preloaded_once_and_before_others() -> None:
    assert environment()["LD_PRELOAD"] == NATIVE.library
    twice = environment(LD_PRELOAD=f"{NATIVE.library}:/usr/lib/jemalloc.so /x.so")
    assert twice["LD_PRELOAD"] == f"{NATIVE.library}:/usr/lib/jemalloc.so:/x.so"


def test_cmake_gets_launchers_only_on_request() -> None:
    assert not [name for name in environment() if name.startswith("CMAKE_C")]
    told = environment(via_launcher=True, CMAKE_CXX_COMPILER_LAUNCHER="ccache")
    assert told["CMAKE_CXX_COMPILER_LAUNCHER"] == "ccache"
    for language in ("C", "CUDA", "HIP"):
        assert told[f"CMAKE_{language}_COMPILER_LAUNCHER"] == "/d/launcher"
        assert told[f"CMAKE_{language}_LINKER_LAUNCHER"] == "/d/launcher"


def test_the_jobs_are_told_to_build_tools() -> None:
    assert environment()["STOKER_JOBS"] == "64"


def test_cmakes_own_number_of_jobs_stays() -> None:
    assert environment()["CMAKE_BUILD_PARALLEL_LEVEL"] == "64"
    assert environment(CMAKE_BUILD_PARALLEL_LEVEL="2")["CMAKE_BUILD_PARALLEL_LEVEL"] == "2"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("-j2", "-j64"),
        ("-j 2", "-j64"),
        ("--jobs=2", "-j64"),
        ("-k -j", "-k -j64"),
        ("-k", "-k"),
        ("k -j4 --no-print-directory", "k  --no-print-directory -j64"),
        ("CFLAGS=-jump", "CFLAGS=-jump"),
        (" -j4 --jobserver-auth=3,4", " -j4 --jobserver-auth=3,4"),
    ],
)
def test_makes_jobs_are_widened_where_it_was_told_to_run_several(before: str, after: str) -> None:
    assert environment(MAKEFLAGS=before)["MAKEFLAGS"] == after
    assert "MAKEFLAGS" not in environment()
