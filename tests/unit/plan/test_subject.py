"""What follows from a variant and a machine before any rule is applied."""

import pytest

from stoker.model.errors import StokerError
from stoker.model.machine import Machine, Tool
from stoker.model.setting import OriginKind
from stoker.model.source import ProjectKind
from stoker.plan.grammar import parse
from stoker.plan.subject import target_platform
from subjects import (
    arm_linux,
    changed,
    gpu,
    linux,
    mac,
    plan,
    pytorch_tree,
    subject,
    tool,
    toolbox,
    toolkit,
    tools,
    zen4,
)


@pytest.mark.parametrize(
    ("words", "machine", "platform"),
    [
        ("cpu", linux(), "linux-x86_64"),
        ("cpu", arm_linux(), "linux-aarch64"),
        ("cpu", mac(), "macos-arm64"),
        ("cpu-avx2", arm_linux(), "linux-x86_64"),
        ("cpu-armv9", linux(), "linux-aarch64"),
        ("cpu-power9le", linux(), "linux-ppc64le"),
        ("mps", linux(), "macos-arm64"),
        ("cpu-m1", mac(), "macos-arm64"),
        ("cpu-android", linux(), "android-arm64"),
        ("cpu-avx2-linux_aarch64", linux(), "linux-aarch64"),
        ("cpu-linux-riscv64", mac(), "linux-riscv64"),
    ],
)
def test_the_platform_is_said_implied_or_here(words: str, machine: Machine, platform: str) -> None:
    assert str(target_platform(parse(words), machine.platform)) == platform


def test_a_machine_of_an_unknown_kind_is_an_error_in_words() -> None:
    """Its platform is in no table; a plan for it is refused, a plan for another one is made."""
    machine = linux(cpu=zen4(family="s390x", microarchitecture="z16"))
    with pytest.raises(StokerError, match="linux-s390x"):
        plan("cpu", machine=machine)
    assert plan("cpu-linux_x86_64", machine=machine).platform.cpu == "x86_64"


def test_here_is_a_machine_of_the_same_kind() -> None:
    assert subject("cpu-avx2").here
    assert not subject("cpu-avx2", machine=arm_linux()).here
    assert not subject("android").here


def test_without_a_tree_people_mean_pytorch() -> None:
    assert subject().kind is ProjectKind.PYTORCH
    assert not subject().is_pytorch
    assert subject(tree=pytorch_tree()).is_pytorch


def test_the_toolkit_is_the_first_that_fits_and_works() -> None:
    box = toolbox(
        cuda=(
            toolkit("12.8", problem="was killed by signal 11"),
            toolkit(None),
            toolkit("12.4"),
            toolkit("13.0"),
        )
    )
    asked = subject("cu130-sm90", toolbox=box).toolkit
    first = subject("cuda-sm90", toolbox=box).toolkit
    assert asked is not None
    assert first is not None
    assert (asked.version, first.version) == ("13.0", "12.4")
    assert subject("cu128-sm90", toolbox=box).toolkit is None
    assert subject("cpu", toolbox=box).toolkit is None
    assert subject("cu130-sm90-linux_aarch64", toolbox=box).toolkit is None


def test_the_cuda_version_is_the_one_asked_for_else_the_one_found() -> None:
    assert subject("cu128-sm90").cuda_version == "12.8"
    assert subject("cuda-sm90").cuda_version == "13.0"
    assert subject("cuda-sm90", toolbox=toolbox(cuda=())).cuda_version is None


def test_targets_come_from_the_gpus_here_where_none_is_named() -> None:
    machine = linux(gpus=(gpu("12.0"), gpu("9.0"), gpu("9.0"), gpu("99.9")))
    found = subject("cu130", machine=machine)
    assert [target.arch for target in found.gpus] == ["9.0", "12.0"]
    assert found.gpus_origin.kind is OriginKind.MACHINE
    named = subject("cu130-sm80", machine=machine)
    assert [target.arch for target in named.gpus] == ["8.0"]
    assert named.gpus_origin.kind is OriginKind.VARIANT
    assert subject("cu130-linux_aarch64", machine=machine).gpus == ()
    assert subject("cpu", machine=machine).gpus == ()


@pytest.mark.parametrize(
    ("tool", "kind"),
    [
        (tool("cxx", "12.2.0", path="/usr/bin/c++"), "gcc"),
        (tool("cxx", "17.0.1", path="/usr/bin/clang++"), "clang"),
        (tool("cxx", "17.0.1", path="/opt/llvm/bin/clang++-17"), "clang"),
        (tool("cxx", "13.1.0", path="/opt/clang-free/bin/g++"), "gcc"),
        (tool("cxx", "13.1.0", path="/home/clang/bin/g++-13"), "gcc"),
    ],
)
def test_the_compiler_is_told_by_its_own_name(tool: Tool, kind: str) -> None:
    assert subject(toolbox=toolbox(tools=tools(cxx=tool))).compiler == (kind, tool.version)


def test_a_compiler_that_cannot_be_used_is_skipped() -> None:
    broken = tool("cxx", problem="did not answer in time")
    box = toolbox(tools=(broken, tool("g++", "11.4.0")))
    assert subject(toolbox=box).compiler == ("gcc", "11.4.0")
    kind, _ = subject(toolbox=toolbox(tools=())).compiler
    assert kind == "gcc"


def test_features_are_asked_for_refused_or_left() -> None:
    about = subject("cpu-nogloo-kineto")
    answers = [about.feature(name) for name in ("gloo", "kineto", "mpi")]
    assert answers == [False, True, None]


def test_who_asked_for_a_part() -> None:
    about = subject("cpu-avx2")
    assert about.origin("cpu").kind is OriginKind.VARIANT
    assert about.origin("build_type").kind is OriginKind.DEFAULT


def test_the_release_is_that_of_a_tree_of_pytorch() -> None:
    release = subject(tree=pytorch_tree(version="2.6.0a0+gitabc")).release
    assert release is not None
    assert release.version == "2.6"
    assert subject(tree=pytorch_tree(version="9.9.0")).release is None
    assert subject(tree=changed(pytorch_tree(), kind=ProjectKind.CMAKE)).release is None
    assert subject().release is None
