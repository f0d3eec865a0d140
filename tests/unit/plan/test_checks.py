"""Plans that are refused, and findings of plans."""

from collections.abc import Callable
from typing import Any

import pytest

from stoker.model.errors import ExitStatus, UsageError
from stoker.model.finding import Severity
from stoker.model.source import SourceTree
from stoker.model.variant import Feature, GpuTarget
from subjects import (
    arm_linux,
    changed,
    cmake_tree,
    extension_tree,
    gpu,
    linux,
    mac,
    named,
    names,
    plan,
    plan_of,
    pytorch_tree,
    subject,
    toolbox,
    toolkit,
)


def refusal(words: str, **about: Any) -> UsageError:
    with pytest.raises(UsageError) as refused:
        plan(words, **about)
    assert refused.value.status is ExitStatus.USAGE
    return refused.value


@pytest.mark.parametrize(
    ("words", "arch", "maker", "near"),
    [
        ("cu130-v100", "7.0 (V100, GV100, Titan V)", "the last CUDA that does is 12.9", "7.5"),
        ("cu130-sm70", "7.0 (V100", "the last CUDA that does is 12.9: cu129", "7.5"),
        ("cu120-sm35", "3.5 (K20, K40)", "the last CUDA that does is 11.8: cu118", "5.0"),
        ("cu130-sm101", "10.1", "the last CUDA that does is 12.9", "10.0"),
        ("cu128-sm103", "10.3", "the first CUDA that does is 12.9", "10.1"),
        ("cu124-sm120", "12.0", "the first CUDA that does is 12.8", "9.0"),
        ("cu128-sm100f", "10.0f", "the first CUDA that does is 12.9", "10.0"),
        ("cu118-sm90a", "9.0a", "the first CUDA that does is 12.0", "9.0"),
        ("cu130-sm80+sm107", "10.7", "the first CUDA that does is 13.4", "11.0"),
    ],
)
def test_an_architecture_that_this_cuda_cannot_make(
    words: str, arch: str, maker: str, near: str
) -> None:
    error = refusal(words)
    assert f"cannot make code for {arch}" in error.message
    assert maker in error.hints[0]
    assert near in error.hints[1]


def test_an_architecture_that_the_installed_cuda_cannot_make() -> None:
    error = refusal("v100")
    assert "CUDA 13.0 in /usr/local/cuda-13.0 cannot make code for 7.0 (V100" in error.message
    assert "12.9" in error.hints[0]


def test_what_no_tree_could_have_is_refused_before_what_this_tree_lacks() -> None:
    """Also in a folder whose project has no code for GPUs, such as a checkout of stoker."""
    tree = changed(cmake_tree(), backends=("cpu",))
    assert "cannot make code for 12.0" in refusal("cu124-sm120", tree=tree).message
    error = refusal("cu130-sm90", tree=tree)
    assert error.message == f"{tree.name} has no cuda back end"
    assert any("--source" in hint for hint in error.hints)


def test_of_two_toolkits_the_one_that_makes_the_targets_is_taken() -> None:
    both = toolbox(cuda=(toolkit("13.0"), toolkit("12.8")))
    assert plan("v100", toolbox=both).value("CUDA_HOME") == "/usr/local/cuda-12.8"
    assert plan("h100", toolbox=both).value("CUDA_HOME") == "/usr/local/cuda-13.0"


def test_an_architecture_that_this_torch_does_not_know() -> None:
    error = refusal("cu128-sm100", tree=pytorch_tree())
    assert "torch 2.6.0 does not know 10.0" in error.message
    assert "9.0" in error.hints[0]
    assert error.where == "/src/pytorch"
    assert (
        "10.0f" in refusal("cu130-sm100f", tree=pytorch_tree(cuda_archs=("10.0", "10.0a"))).message
    )


def test_a_tree_without_a_list_of_architectures_takes_any() -> None:
    assert plan("cu128-sm100", tree=pytorch_tree(cuda_archs=()))
    assert plan("cu128-sm100", tree=cmake_tree())


@pytest.mark.parametrize(
    ("words", "tie"), [("cu130-sm90a+ptx", "one chip"), ("cu130-sm100f+ptx", "one family")]
)
def test_ptx_of_a_suffixed_target(words: str, tie: str) -> None:
    error = refusal(words)
    assert tie in error.message
    assert "+PTX" in error.hints[0]
    assert plan("cu130-sm90a+sm90+ptx")


@pytest.mark.parametrize(
    ("words", "platform"),
    [
        ("cpu-armv9", "linux-x86_64"),
        ("cpu-neoverse_v2", "linux-x86_64"),
        ("cpu-avx512", "linux-aarch64"),
        ("cpu-zen4", "linux-ppc64le"),
        ("cpu-avx2", "macos-arm64"),
        ("cpu-avx2", "android-arm64"),
        ("cpu-m1", "macos-x86_64"),
        ("mps-avx2", "macos-arm64"),
    ],
)
@pytest.mark.parametrize("machine", [linux(), arm_linux(), mac()])
def test_flags_of_another_cpu(words: str, platform: str, machine: Any) -> None:
    error = refusal(words, parts={"platform": platform}, machine=machine)
    assert f"the target is {platform}" in error.message


def test_a_universal_binary_takes_flags_of_either_cpu() -> None:
    assert plan("cpu-avx2-macos-universal")
    assert plan("cpu-m1-macos-universal")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("cpu-mkl-linux_aarch64", "MKL exists for x86_64 only"),
        ("cpu-mkl-armv9", "MKL exists for x86_64 only"),
        ("cpu-mkl-macos_arm64", "MKL exists for x86_64 only"),
        ("cpu-nvpl-linux_x86_64", "NVPL exists for aarch64 only"),
        ("cpu-accelerate-linux_x86_64", "vecLib exists on macos, ios only"),
    ],
)
def test_a_blas_that_the_platform_lacks(words: str, says: str) -> None:
    assert says in refusal(words).message


def test_mkl_on_an_arm_machine() -> None:
    error = refusal("cpu-mkl", machine=arm_linux())
    assert "openblas" in " ".join(error.hints)
    assert plan("cpu-openblas", machine=arm_linux())


@pytest.mark.parametrize("backend", ["cuda", "rocm", "xpu", "mps", "vulkan"])
def test_a_back_end_that_the_tree_lacks(backend: str) -> None:
    error = refusal(backend, tree=pytorch_tree(backends=("cpu",)))
    assert f"torch has no {backend} back end" in error.message
    assert "cpu" in error.hints[0]
    assert error.where == "/src/pytorch"


def test_targets_of_another_back_end() -> None:
    about = subject("cu130-sm90")
    variant = changed(about.variant, gpus=(GpuTarget(arch="gfx942"),))
    with pytest.raises(UsageError, match="gfx942 is a rocm target, not cuda"):
        plan_of(changed(about, variant=variant))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("cpu-cudnn", "feature cudnn needs cuda, not cpu"),
        ("cpu-nccl", "feature nccl needs cuda or rocm, not cpu"),
        ("rocm-cudnn", "feature cudnn needs cuda, not rocm"),
    ],
)
def test_a_feature_of_another_back_end(words: str, says: str) -> None:
    assert says in refusal(words).message


@pytest.mark.parametrize("feature", ["nccl", "gloo", "mpi", "tensorpipe"])
def test_a_feature_that_needs_one_that_is_switched_off(feature: str) -> None:
    error = refusal(f"cu130-sm90-{feature}-nodistributed")
    assert error.message == f"feature {feature} needs distributed, which is switched off"
    defines = {"USE_DISTRIBUTED": "OFF"}
    assert refusal(f"cu130-sm90-{feature}", defines=defines).message == error.message
    assert plan(f"cu130-sm90-no{feature}-nodistributed")


@pytest.mark.parametrize(
    ("python", "about", "oldest"),
    [
        ("3.7", {}, "3.8"),
        ("3.7", {"tree": extension_tree()}, "3.8"),
        ("3.7", {"tree": cmake_tree()}, "3.8"),
        ("3.8", {"tree": pytorch_tree()}, "3.9"),
        ("3.9", {"tree": pytorch_tree(version="2.10.0")}, "3.10"),
    ],
)
def test_a_python_that_is_too_old(python: str, about: dict[str, Any], oldest: str) -> None:
    error = refusal("cpu", parts={"python": python}, **about)
    assert f"Python {python} is too old" in error.message
    assert f"the oldest is {oldest}" in error.message
    assert plan("cpu", parts={"python": oldest}, **about)


def test_a_feature_may_be_refused_on_any_back_end() -> None:
    assert plan("cpu-nocudnn-nonccl")


def test_a_feature_that_the_tree_does_not_have() -> None:
    error = refusal("cpu-kineto", tree=cmake_tree())
    assert "demo has no feature kineto (USE_KINETO)" in error.message
    tree = pytorch_tree(options=tuple(o for o in pytorch_tree().options if o.name != "USE_CUFILE"))
    error = refusal("cu124-sm90-nocufile", tree=tree)
    assert "USE_CUFILE" in error.message
    assert error.hints


def test_features_that_every_project_has() -> None:
    planned = plan("cpu-lto-unity", tree=cmake_tree())
    assert planned.value("CMAKE_INTERPROCEDURAL_OPTIMIZATION") == "ON"
    assert planned.value("CMAKE_UNITY_BUILD") == "ON"


def test_a_variant_that_breaks_nothing_is_planned_for_every_kind_of_tree() -> None:
    for tree in (None, pytorch_tree(), extension_tree(), cmake_tree()):
        assert plan("cu124-sm90-avx512", tree=tree).name == "cu124-sm90-avx512"


def test_another_platform_is_a_warning() -> None:
    finding = named(plan("cpu-armv9").findings, "other-platform")
    assert finding.severity is Severity.WARNING
    assert "linux-aarch64" in finding.title
    assert "linux-x86_64" in finding.title
    assert "other-platform" not in names(plan("cpu").findings)


@pytest.mark.parametrize(
    ("words", "untested"),
    [
        ("cu126-sm90", False),
        ("cu128-sm90", True),
        ("cu130-sm90", True),
        ("cuda-sm90", True),
        ("cpu", False),
    ],
)
def test_a_toolkit_newer_than_the_release_knew_is_a_warning(words: str, untested: bool) -> None:
    findings = plan(words, tree=pytorch_tree()).findings
    assert ("toolkit-untested" in names(findings, Severity.WARNING)) == untested


def test_versions_are_compared_as_numbers() -> None:
    """2.10 with CUDA 13.0 is as released; "13.0" is not newer than "12.9" by spelling only."""
    findings = plan("cu129-sm90", tree=pytorch_tree(version="2.10.0")).findings
    assert "toolkit-untested" not in names(findings)


def test_an_unset_list_without_a_gpu_is_an_error() -> None:
    finding = named(plan("cu130").findings, "arch-list-unset")
    assert finding.severity is Severity.ERROR
    assert finding.fix
    machine = linux(gpus=(gpu("9.0"),))
    assert "arch-list-unset" not in names(plan("cu130", machine=machine).findings)
    assert "arch-list-unset" not in names(plan("cpu").findings)


@pytest.mark.parametrize("tree", [None, pytorch_tree(cuda_archs=()), extension_tree()])
def test_an_arch_list_said_otherwise_is_a_list(tree: SourceTree | None) -> None:
    said = {"TORCH_CUDA_ARCH_LIST": "9.0"}
    assert "arch-list-unset" not in names(plan("cu130", tree=tree, exported=said).findings)
    assert "arch-list-unset" not in names(plan("cu130", tree=tree, defines=said).findings)


@pytest.mark.parametrize("tree", [None, pytorch_tree(cuda_archs=()), extension_tree()])
def test_an_empty_arch_list_is_none(tree: SourceTree | None) -> None:
    planned = plan("cu130", tree=tree, exported={"TORCH_CUDA_ARCH_LIST": ""})
    assert "arch-list-unset" in names(planned.findings, Severity.ERROR)


def test_a_cmake_project_may_be_told_its_architectures_with_d() -> None:
    said = {"CMAKE_CUDA_ARCHITECTURES": "90"}
    planned = plan("cu130", tree=cmake_tree(), defines=said, cmake_variables=frozenset(said))
    assert planned.value("CMAKE_CUDA_ARCHITECTURES") == "90"
    assert "arch-list-unset" not in names(planned.findings)


def test_an_unknown_gpu_here_is_no_target() -> None:
    machine = linux(gpus=(gpu("99.0"),))
    assert "arch-list-unset" in names(plan("cu130", machine=machine).findings)


@pytest.mark.parametrize(
    ("words", "dispatch"),
    [("cpu-avx512", "AVX512"), ("cpu-avx2", "AVX2"), ("cpu-zen4", "AVX512"), ("cpu-avx", "no run")],
)
def test_what_a_cpu_level_changes_is_explained(words: str, dispatch: str) -> None:
    finding = named(plan(words).findings, "cpu-level")
    assert finding.severity is Severity.NOTE
    assert dispatch in finding.title
    assert "SIGILL" in finding.evidence
    assert "ATEN_CPU_CAPABILITY" in finding.evidence


def test_pytorchs_dispatch_is_not_explained_to_others() -> None:
    assert "cpu-level" not in names(plan("cpu-avx512", tree=cmake_tree()).findings)
    assert "cpu-level" not in names(plan("cpu").findings)


def test_no_tree_is_a_note_and_unread_files_are_warnings() -> None:
    assert named(plan("cpu").findings, "no-source").severity is Severity.NOTE
    tree = pytorch_tree(notes=("CMakeLists.txt:9: ends within a command",))
    findings = plan("cpu", tree=tree).findings
    assert named(findings, "source-unreadable").title == tree.notes[0]
    assert "no-source" not in names(findings)


def test_the_first_broken_rule_is_the_one_that_is_said() -> None:
    """Two wrongs: the plan speaks of one at a time, and always of the same one."""
    one = refusal("cu130-sm70-armv9-linux_x86_64").message
    assert one == refusal("armv9-linux_x86_64-cu130-sm70").message


@pytest.mark.parametrize(
    "change",
    [
        lambda about: changed(about, toolbox=toolbox(cuda=())),
        lambda about: changed(about, toolbox=toolbox(cuda=(toolkit("12.4"),))),
        lambda about: changed(about, toolbox=toolbox(tools=())),
        lambda about: changed(
            about, variant=changed(about.variant, features=(Feature(name="magma"),))
        ),
    ],
)
def test_what_this_machine_lacks_does_not_stop_a_plan(change: Callable[[Any], Any]) -> None:
    assert plan_of(change(subject("cu130-sm90")))


@pytest.mark.parametrize(
    "words",
    [
        *("cu130-sm90-macos_arm64", "cu130-sm90-android", "mps-linux_aarch64", "xpu-ios"),
        *("rocm-gfx942-linux_aarch64", "xpu-pvc-linux_aarch64", "cu130-sm90-linux_riscv64"),
    ],
)
def test_a_back_end_that_the_platform_does_not_have(words: str) -> None:
    with pytest.raises(UsageError, match="is built for"):
        plan(words)


@pytest.mark.parametrize("words", ["native", "this machine", "avx2"])
def test_cuda_without_a_gpu_is_planned_for_the_cpu_and_said_so(words: str) -> None:
    finding = named(plan(words).findings, "cpu-only")
    assert finding.severity is Severity.NOTE
    assert "planned for the CPU only: no GPU was found" in finding.title
    assert "CUDA 13.0 in /usr/local/cuda-13.0" in finding.evidence
    assert finding.fix


def test_cpu_only_is_not_reported_if_it_was_requested() -> None:
    assert "cpu-only" not in names(plan("cpu").findings)
    assert "cpu-only" not in names(plan("cpu-native").findings)
    assert "cpu-only" not in names(plan("native", toolbox=toolbox(cuda=())).findings)
    assert "cpu-only" not in names(plan("native", machine=linux(gpus=(gpu("9.0"),))).findings)
    assert "cpu-only" not in names(plan("cpu-armv9").findings)


def test_an_architecture_that_no_cuda_makes_is_refused() -> None:
    """Words do not name one, but a variant of the Python interface or of a record can."""
    about = subject("cuda-sm90")
    variant = changed(about.variant, gpus=(GpuTarget(arch="3.0"),))
    with pytest.raises(UsageError, match=r"cannot make code for 3\.0") as caught:
        plan_of(changed(about, variant=variant))
    assert caught.value.hints[0] == "no release of CUDA that stoker knows makes it"
    assert "7.5" in caught.value.hints[1]
