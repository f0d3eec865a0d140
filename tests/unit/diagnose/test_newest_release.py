"""Fixes that take another release of the project, by the tool that builds it, and of its system."""

from pathlib import Path

import pytest

from diagnosed import BOOKWORM, commands, machine, of_elsewhere, only

REMOVED = "mill.cpp:7:12: error: 'grind' is not a member of 'spdlog'\nmake: *** [mill.o] Error 1\n"


@pytest.mark.parametrize(
    ("before", "command"),
    [
        ("c++ -c mill.cpp\n", 'git checkout "$(git describe --tags --abbrev=0 origin/HEAD)"'),
        (
            "cd /var/tmp/portage/dev-util/mill-2.1/work/mill-2.1\n",
            "emerge --sync && emerge --update dev-util/mill",
        ),
        ("c++ -c /home/u/.cache/yay/mill-git/src/mill.cpp\n", "yay -Syu mill-git"),
        ("$ brew install --HEAD mill\n", "brew update && brew upgrade mill"),
        ("$ pecl install mill\n", "pecl upgrade mill"),
        ("* installing *source* package 'mill' ...\n", "install.packages('mill')"),
        ("gyp info cwd /w/node_modules/mill/build\n", "npm install mill@latest"),
        (
            "Collecting mill==2.1\nBuilding wheel for mill (pyproject.toml)\n",
            "-m pip install --upgrade mill",
        ),
    ],
)
def test_the_newest_release_is_taken_by_the_tool_that_builds(
    before: str, command: str, tmp_path: Path
) -> None:
    found = only(before + REMOVED, machine(tmp_path, BOOKWORM))
    assert found.cause == "dependency-api-changed"
    assert command in commands(found)


@pytest.mark.parametrize(
    "before",
    ["cd /nix/store/abc-mill\n", "rpmbuild -ba mill.spec\n", "==> Making package: mill 2.1-1\n"],
)
def test_a_package_of_a_distribution_is_no_checkout(before: str, tmp_path: Path) -> None:
    found = only(before + REMOVED, machine(tmp_path, BOOKWORM))
    assert "git " not in commands(found)


def test_a_program_is_installed_by_winget_on_windows_of_elsewhere(tmp_path: Path) -> None:
    here = machine(tmp_path, BOOKWORM)
    lacks = "'protoc' is not recognized as an internal or external command,\n"
    assert commands(of_elsewhere(f"C:\\Users\\u\\mill> ninja\n{lacks}", here)) == (
        "winget install -e --id Google.Protobuf"
    )
    assert "winget" in commands(of_elsewhere(f"> ninja\n{lacks}", here))  # words of Windows
    assert "winget" not in commands(of_elsewhere("$ ninja\nsh: 1: protoc: not found\n", here))


def test_cl_and_nvcc_get_an_include_in_their_own_way(tmp_path: Path) -> None:
    here = machine(tmp_path, BOOKWORM)
    by_cl = "C:\\w\\mill.cpp(31,8): error C2039: 'string': is not a member of 'std'\n"
    assert commands(of_elsewhere(by_cl, here)) == "set CL=/FIstring %CL%"
    posix = "C:\\w\\mill.cpp(8): error C3861: 'strcasecmp': identifier not found\n"
    assert commands(of_elsewhere(posix, here)) == "set CL=/Dstrcasecmp#_stricmp %CL%"
    by_nvcc = '/w/mill.hpp(63): error: identifier "uint32_t" is undefined\n'
    assert 'NVCC_APPEND_FLAGS="${NVCC_APPEND_FLAGS:-} -include cstdint"' in commands(
        of_elsewhere(by_nvcc, here)
    )


def test_another_system_gets_no_gcc_of_this_one(tmp_path: Path) -> None:
    crash = "mill.cpp:8:2: internal compiler error: Segmentation fault: 11\n"
    here = machine(tmp_path, BOOKWORM)
    assert "gcc-" in commands(of_elsewhere(crash, here))
    there = "-- The CXX compiler identification is AppleClang 17.0.0\n"
    assert "gcc-" not in commands(of_elsewhere(there + crash, here))
