"""The environment of a governed command: who stands before whom."""

import pytest

from stoker.plan.chain import COMPILER, Links, governed_environment, window

LINKS = Links(launcher="/d/launcher", compilers="/d/links", tools="/d/tools", nvcc="/d/torch/nvcc")


def environment(cuda_home: str | None = None, **base: str) -> dict[str, str]:
    base = {"PATH": "/usr/bin:/bin"} | base
    return governed_environment(
        base, LINKS, cpus=4, said={"STOKER_SOCKET": "/s"}, cuda_home=cuda_home
    )


def test_the_window_is_several_times_the_cpus() -> None:
    assert window(1) == 32
    assert window(64) == 512


def test_the_tools_and_the_compilers_come_first_on_the_path() -> None:
    assert environment()["PATH"] == "/d/tools:/d/links:/usr/bin:/bin"


def test_a_run_in_a_run_does_not_lengthen_the_path() -> None:
    assert environment(PATH=environment()["PATH"])["PATH"] == environment()["PATH"]


def test_what_launchers_are_told_and_what_was_there_both_stand() -> None:
    told = environment(HOME="/home/me")
    assert (told["STOKER_SOCKET"], told["HOME"]) == ("/s", "/home/me")


def test_every_language_of_cmake_has_the_launcher() -> None:
    told = environment()
    for language in ("C", "CXX", "CUDA", "HIP"):
        assert told[f"CMAKE_{language}_COMPILER_LAUNCHER"] == "/d/launcher"
        assert told[f"CMAKE_{language}_LINKER_LAUNCHER"] == "/d/launcher"


def test_ccache_stays_where_it_is_and_calls_the_launcher_on_a_miss() -> None:
    told = environment(CMAKE_CXX_COMPILER_LAUNCHER="ccache")
    assert told["CMAKE_CXX_COMPILER_LAUNCHER"] == "ccache"
    assert told["CCACHE_PREFIX"] == "/d/launcher"
    assert told["CCACHE_PATH"] == "/usr/bin:/bin"


def test_a_launcher_that_ccache_could_not_call_is_not_its_prefix() -> None:
    links = Links(launcher="/a b/l", compilers="/a b/c", tools="/a b/t", nvcc="/a b/n")
    assert "CCACHE_PREFIX" not in governed_environment({}, links, cpus=1, said={})


def test_the_users_own_prefix_stays() -> None:
    assert environment(CCACHE_PREFIX="distcc")["CCACHE_PREFIX"] == "distcc"


def test_jobs_are_the_window_for_whoever_asks() -> None:
    told = environment(MAX_JOBS="2", CMAKE_BUILD_PARALLEL_LEVEL="2")
    for name in ("STOKER_JOBS", "MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL"):
        assert told[name] == "32"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "-j32"),
        ("-j2", "-j32"),
        ("-j 2", "-j32"),
        ("--jobs=2", "-j32"),
        ("-k -j", "-k -j32"),
        ("k -j4 --no-print-directory", "k  --no-print-directory -j32"),
        ("CFLAGS=-jump", "CFLAGS=-jump -j32"),
        (" -j4 --jobserver-auth=3,4", " -j4 --jobserver-auth=3,4"),
    ],
)
def test_make_gets_its_jobs_through_its_variable(before: str, after: str) -> None:
    assert environment(MAKEFLAGS=before)["MAKEFLAGS"] == after


def test_without_a_toolkit_nothing_is_said_of_one() -> None:
    assert not {"CUDA_HOME", "PYTORCH_NVCC"} & set(environment())


def test_the_toolkit_is_named_because_a_link_named_nvcc_lies_elsewhere() -> None:
    told = environment(cuda_home="/opt/cuda")
    assert told["CUDA_HOME"] == "/opt/cuda"
    assert told["PYTORCH_NVCC"] == "/d/torch/nvcc"
    assert told["PATH"].endswith(":/opt/cuda/bin")


def test_the_users_own_toolkit_stays() -> None:
    told = environment(cuda_home="/opt/cuda", CUDA_HOME="/opt/cuda", PYTORCH_NVCC="/my/nvcc")
    assert (told["CUDA_HOME"], told["PYTORCH_NVCC"]) == ("/opt/cuda", "/my/nvcc")


@pytest.mark.parametrize(
    "name",
    ["cc", "g++", "gcc-12", "clang++-17", "x86_64-conda-linux-gnu-c++", "nvcc", "gfortran", "icpx"],
)
def test_compilers_by_name(name: str) -> None:
    assert COMPILER.fullmatch(name)


@pytest.mark.parametrize("name", ["gcc-ar", "ccache", "cpp", "clang-format", "nvcc.profile", "ld"])
def test_programs_that_are_no_compilers(name: str) -> None:
    assert not COMPILER.fullmatch(name)
