"""What guides tell people to export and to type, and the plan that they get for it."""

import json
from typing import Any

import pytest

from conftest import PROJECTS, Stoker

MINI, CMAKE = str(PROJECTS / "mini-pytorch"), str(PROJECTS / "mini-cmake")
# Everything that one guide or another exports before it builds.
GUIDES = {
    "CUDA_HOME": "/usr/local/cuda",
    "CUDNN_ROOT": "/usr/local/cuda",
    "USE_CUDA": "1",
    "TORCH_CUDA_ARCH_LIST": "8.0;8.6",
    "CMAKE_BUILD_TYPE": "Release",
    "CMAKE_GENERATOR": "Ninja",
    "MAX_JOBS": "32",
    "USE_NCCL": "1",
    "USE_DISTRIBUTED": "1",
    "USE_TENSORRT": "1",
    "USE_MKL": "1",
    "MKL_ROOT": "/opt/intel/mkl",
    "USE_STATIC_MKL": "1",
    "USE_STATIC_CUDNN": "1",
    "CUDA_NVCC_FLAGS": "-O2",
    "USE_CCACHE": "1",
    "CCACHE_DIR": "/tmp/ccache",
}


def planned(stoker: Stoker, *words: str, source: str = MINI, **environment: str) -> dict[str, Any]:
    done = stoker("plan", *words, "--source", source, "--json", **environment)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def titles(plan: dict[str, Any]) -> str:
    return "\n".join(f"{each['severity']} {each['title']}" for each in plan["findings"])


@pytest.mark.parametrize(
    ("name", "value", "cubins", "ptx"),
    [
        ("TORCH_CUDA_ARCH_LIST", "8.0;8.6", ["8.0", "8.6"], []),
        ("TORCH_CUDA_ARCH_LIST", "7.5;8.0;8.6;9.0+PTX", ["7.5", "8.0", "8.6", "9.0"], ["9.0"]),
        ("TORCH_CUDA_ARCH_LIST", "8.0 8.6", ["8.0", "8.6"], []),
        ("TORCH_CUDA_ARCH_LIST", "8.0,8.6", ["8.0", "8.6"], []),
        ("TORCH_CUDA_ARCH_LIST", "Hopper", ["9.0"], ["9.0"]),
        ("TORCH_CUDA_ARCH_LIST", "sm_90", ["9.0"], []),
        ("CMAKE_CUDA_ARCHITECTURES", "80", ["8.0"], ["8.0"]),
        ("CMAKE_CUDA_ARCHITECTURES", "80-real;90a-real", ["8.0", "9.0a"], []),
    ],
)
def test_a_list_of_targets_names_a_cuda_build(
    stoker: Stoker, name: str, value: str, cubins: list[str], ptx: list[str]
) -> None:
    plan = planned(stoker, **{name: value})
    assert plan["variant"]["backend"] == "cuda"
    assert plan["targets"]["cubins"] == cubins
    assert plan["targets"]["ptx"] == ptx
    assert plan["origin"]["gpus"] == f"environment {name}"
    assert ("is read as 9.0" in titles(plan)) == (value == "sm_90")


def test_a_list_by_option_beside_a_variant(stoker: Stoker) -> None:
    same = planned(stoker, "cuda-sm80", "-D", "CMAKE_CUDA_ARCHITECTURES=80")
    assert "counts" not in titles(same)
    other = planned(stoker, "h100", "-D", "TORCH_CUDA_ARCH_LIST=8.0")
    assert other["environment"]["TORCH_CUDA_ARCH_LIST"] == "8.0"
    assert "warning -D TORCH_CUDA_ARCH_LIST=8.0 counts, not variant h100" in titles(other)


def test_of_two_lists_a_warning_says_which_counts(stoker: Stoker) -> None:
    plan = planned(stoker, TORCH_CUDA_ARCH_LIST="8.0", CMAKE_CUDA_ARCHITECTURES="90")
    assert plan["environment"]["TORCH_CUDA_ARCH_LIST"] == "8.0"
    said = "counts, not CMAKE_CUDA_ARCHITECTURES=90 of the environment"
    assert f"warning TORCH_CUDA_ARCH_LIST=8.0 of the environment {said}" in titles(plan)
    named = planned(stoker, "h100", TORCH_CUDA_ARCH_LIST="8.0")
    assert named["environment"]["TORCH_CUDA_ARCH_LIST"] == "9.0"
    assert "warning variant h100 counts, not TORCH_CUDA_ARCH_LIST=8.0" in titles(named)


def test_a_switch_chooses_the_back_end(stoker: Stoker) -> None:
    assert planned(stoker, USE_CUDA="1")["variant"]["backend"] == "cuda"
    assert planned(stoker, USE_CUDA="0", TORCH_CUDA_ARCH_LIST="8.0")["variant"]["backend"] == "cpu"
    named = planned(stoker, "cpu", USE_CUDA="1", TORCH_CUDA_ARCH_LIST="8.0")
    assert named["variant"]["backend"] == "cpu"
    assert "variant cpu counts, not TORCH_CUDA_ARCH_LIST=8.0" in titles(named)
    refused = stoker("plan", "h100", "-D", "USE_CUDA=0", "--source", MINI)
    assert refused.returncode == 2
    assert "-D USE_CUDA=0 contradicts variant h100" in refused.stderr


def test_a_list_that_the_project_cannot_use_is_a_note(stoker: Stoker) -> None:
    plan = planned(stoker, source=str(PROJECTS / "mini-wheel"), TORCH_CUDA_ARCH_LIST="8.0")
    assert plan["variant"]["backend"] == "cpu"
    assert "note TORCH_CUDA_ARCH_LIST=8.0 of the environment is not used" in titles(plan)


def test_everything_that_guides_export(stoker: Stoker) -> None:
    plan = planned(stoker, **GUIDES)
    assert plan["targets"]["cubins"] == ["8.0", "8.6"]
    said = titles(plan)
    assert "USE_MKL of the environment is not read: BLAS=MKL chooses MKL" in said
    assert "MAX_JOBS=32 is not needed" in said
    assert "error" not in said


def test_a_wrong_option_is_refused_and_a_wrong_variable_is_noted(stoker: Stoker) -> None:
    refused = stoker("plan", "cpu", "--source", MINI, "-D", "USE_CUDNN2=1")
    assert (refused.returncode, "unknown option 'USE_CUDNN2'" in refused.stderr) == (2, True)
    plan = planned(stoker, "cpu", USE_CUDNN2="1")
    assert "note" in titles(plan)
    assert "USE_CUDNN2" in titles(plan)


def test_the_exported_build_type_counts(stoker: Stoker) -> None:
    plan = planned(stoker, "cpu", source=CMAKE, CMAKE_BUILD_TYPE="Debug")
    assert plan["cmake"]["CMAKE_BUILD_TYPE"] == "Debug"
    assert plan["origin"]["CMAKE_BUILD_TYPE"] == "environment CMAKE_BUILD_TYPE"


@pytest.mark.parametrize("words", ["macos-arm64", "android", "ios", "linux-aarch64", "gh200"])
def test_another_platform_gets_no_flags_of_this_cpu(stoker: Stoker, words: str) -> None:
    for source in (MINI, CMAKE):
        done = stoker("plan", words, "--source", source, "--json", CFLAGS="", CXXFLAGS="")
        assert "-march" not in done.stdout
        assert "-mtune" not in done.stdout


def test_a_plan_for_another_machine(stoker: Stoker) -> None:
    plan = planned(stoker, "cpu", "--memory", "512G", "--cpus", "96")
    assert plan["machine"]["cpus"] == 96
    assert plan["machine"]["memory_bytes"] == 512 * 1024**3
    assert plan["environment"]["MAX_JOBS"] == "96"
    page = stoker("plan", "cpu", "--memory", "512G", "--source", MINI).stdout
    assert "a machine as given by --memory: " in page


def test_words_that_people_use(stoker: Stoker) -> None:
    for words, name in {
        "gh200": "cuda-sm90-linux_aarch64",
        "gb10": "cuda-sm121-linux_aarch64",
        "jetson orin": "cuda-sm87-linux_aarch64",
        "4090": "cuda-sm89",
        "rtx 3060": "cuda-sm86",
        "epyc 9654": "cpu-zen4",
    }.items():
        listed = json.loads(stoker("plan", "--list", words, "--json").stdout)
        assert listed["name"] == name


@pytest.mark.parametrize("words", ["cu13-h100", "cuda 13 h100"])
def test_a_major_version_is_the_installed_release(stoker: Stoker, words: str) -> None:
    assert planned(stoker, words)["variant"]["toolkit"] == installed_13()


def installed_13() -> str:
    from stoker.knowledge.gpus import cuda_releases
    from stoker.plan.survey import installed_cuda

    known = [version for version in cuda_releases() if version.startswith("13.")]
    return next(v for v in known if v in installed_cuda() or v == known[-1])


def test_a_plan_for_android_names_the_ndk(stoker: Stoker) -> None:
    plan = planned(stoker, "android", source=CMAKE, ANDROID_NDK="/opt/ndk")
    file = "/opt/ndk/build/cmake/android.toolchain.cmake"
    assert plan["cmake"]["CMAKE_TOOLCHAIN_FILE"] == file
    assert plan["cmake"]["ANDROID_ABI"] == "arm64-v8a"
    assert any(f"-DCMAKE_TOOLCHAIN_FILE={file}" in each["words"] for each in plan["commands"])
    without = planned(stoker, "android", source=CMAKE, ANDROID_NDK="")
    assert "error a build for Android needs the NDK" in titles(without)
