"""CFLAGS, CXXFLAGS and LDFLAGS."""

import pytest

from stoker.knowledge.cpus import cpu_family, cpu_names
from stoker.model.errors import UsageError
from stoker.model.source import SourceTree
from subjects import (
    arm_linux,
    cmake_tree,
    environment_of,
    extension_tree,
    plan,
    pytorch_tree,
    tool,
    toolbox,
    tools,
)

TREES = [None, pytorch_tree(), extension_tree(), cmake_tree()]
FLAGS = {"CFLAGS", "CXXFLAGS", "LDFLAGS"}


@pytest.mark.parametrize("tree", TREES)
def test_no_flags_where_none_are_asked_for(tree: SourceTree | None) -> None:
    assert not FLAGS & set(environment_of(plan("cpu", tree=tree)))


@pytest.mark.parametrize("tree", TREES)
def test_a_cpu_level_is_flags_for_c_and_cxx(tree: SourceTree | None) -> None:
    environment = environment_of(plan("cpu-avx2", tree=tree))
    assert environment["CFLAGS"] == environment["CXXFLAGS"] == "-mavx2 -mfma -mf16c"
    assert "LDFLAGS" not in environment


def test_the_users_own_flags_stay_in_front_and_nothing_is_said_twice() -> None:
    exported = {"CXXFLAGS": "-g -mfma", "LDFLAGS": "-Wl,-O1"}
    planned = plan("cpu-avx2-ubsan", exported=exported)
    environment = environment_of(planned)
    assert environment["CXXFLAGS"] == "-g -mfma -mavx2 -mf16c -fsanitize=undefined"
    assert environment["CFLAGS"] == "-mavx2 -mfma -mf16c -fsanitize=undefined"
    assert environment["LDFLAGS"] == "-Wl,-O1 -fsanitize=undefined"
    whys = {setting.name: setting.why for setting in planned.environment}
    assert whys["CXXFLAGS"]
    assert not whys["CFLAGS"]


def test_flags_that_are_quoted_stay_whole() -> None:
    """The user's own text is kept as it is: a define may hold a space."""
    mine = "-DGREETING='two  words' -O2"
    environment = environment_of(plan("cpu-avx2", exported={"CXXFLAGS": mine}))
    assert environment["CXXFLAGS"] == f"{mine} -mavx2 -mfma -mf16c"


@pytest.mark.parametrize("tree", [extension_tree(), cmake_tree()])
@pytest.mark.parametrize(
    ("sanitizer", "flag"), [("asan", "address"), ("ubsan", "undefined"), ("tsan", "thread")]
)
def test_a_sanitizer_compiles_and_links(tree: SourceTree, sanitizer: str, flag: str) -> None:
    environment = environment_of(plan(f"cpu-{sanitizer}", tree=tree))
    for name in FLAGS:
        assert f"-fsanitize={flag}" in environment[name]


def test_pytorch_has_options_for_two_sanitizers() -> None:
    for sanitizer, name in (("asan", "USE_ASAN"), ("tsan", "USE_TSAN")):
        environment = environment_of(plan(f"cpu-{sanitizer}", tree=pytorch_tree()))
        assert environment[name] == "1"
        assert not FLAGS & set(environment)
    environment = environment_of(plan("cpu-ubsan", tree=pytorch_tree()))
    assert environment["CXXFLAGS"] == environment["LDFLAGS"] == "-fsanitize=undefined"
    assert not {"USE_ASAN", "USE_TSAN"} & set(environment)


def test_a_compiler_that_cannot_is_refused() -> None:
    box = toolbox(tools=tools(cxx=tool("cxx", "10.2.1")))
    with pytest.raises(UsageError, match=r"gcc 10\.2\.1 cannot make code for x86_64_v3") as refused:
        plan("cpu-x86_64_v3", toolbox=box)
    assert refused.value.hints


def test_another_machines_compiler_is_not_ours_to_judge() -> None:
    box = toolbox(tools=tools(cxx=tool("cxx", "10.2.1")))
    environment = environment_of(plan("cpu-x86_64_v3", toolbox=box, machine=arm_linux()))
    assert environment["CXXFLAGS"] == "-march=x86-64-v3"


def test_clang_has_flags_of_its_own() -> None:
    box = toolbox(tools=tools(cxx=tool("cxx", "17.0.1", path="/usr/bin/clang++")))
    assert "-march=znver4" in environment_of(plan("cpu-zen4", toolbox=box))["CXXFLAGS"]


def test_every_cpu_name_can_be_planned_for_from_any_machine() -> None:
    """What is not for this machine is planned for a compiler that is new enough."""
    for cpu in cpu_names():
        machine = None if cpu_family(cpu) == "aarch64" else arm_linux()
        assert "-m" in environment_of(plan(f"cpu-{cpu}", machine=machine))["CXXFLAGS"], cpu
