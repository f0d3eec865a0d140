"""Which settings a build is asked with next, and when an answer is better."""

from stoker.ask.settling import Lack, lacks, most_used, runs_kernel, score, setting_trials
from stoker.ask.values import Asked, AskedOption, AskedVariable, AskedWord
from stoker.model.recipe import BackendRecipe
from stoker.model.variant import Backend, GpuTarget
from stoker.plan.compiled import KernelTargets
from stoker.plan.subject import Subject
from subjects import extension_tree, subject

NOTHING = BackendRecipe()


def asked_of(words: str) -> Subject:
    return subject(words, tree=extension_tree("mini"))


def test_a_switch_is_found_by_its_name_and_its_value() -> None:
    asked = Asked(
        variant="x",
        way="cmake",
        host_compiles=3,
        options=(
            AskedOption(name="Lib_ENABLE_CUDA", value="OFF", type="BOOL"),
            AskedOption(name="Lib_ENABLE_CUDA_UVM", value="OFF", type="BOOL"),
            AskedOption(name="LIB_GPU", value="OFF", type="STRING", choices=("OFF", "CUDA")),
            AskedOption(name="USE_GPU", value="ON", type="BOOL"),
        ),
        variables=(AskedVariable(name="FORCE_CUDA", where="setup.py:1"),),
        words=(AskedWord(name="--force_cuda", where="setup.py:2"),),
    )
    about = asked_of("cuda-sm90")
    assert list(lacks(about, asked)) == [Lack.DEVICE_CODE]
    found = [trial.change for trial in setting_trials(Lack.DEVICE_CODE, about, NOTHING, asked)]
    assert found == ["Lib_ENABLE_CUDA=ON", "LIB_GPU=CUDA", "FORCE_CUDA=1", "--force_cuda"]


def test_a_back_end_is_switched_on_alone_too_and_by_its_number() -> None:
    asked = Asked(
        variant="x",
        way="cmake",
        options=(
            AskedOption(name="LIB_NVIDIA_BACKEND", value="OFF", type="BOOL"),
            AskedOption(name="LIB_AMD_BACKEND", value="ON", type="BOOL"),
            AskedOption(
                name="LIB_BACKEND", value="0", type="STRING", help="0 - Vulkan, 1 - CUDA, 2 - HIP"
            ),
        ),
    )
    trials = list(setting_trials(Lack.DEVICE_CODE, asked_of("cuda-sm90"), NOTHING, asked))
    assert [trial.recipe.cmake for trial in trials] == [
        {"LIB_NVIDIA_BACKEND": "ON"},
        {"LIB_NVIDIA_BACKEND": "ON", "LIB_AMD_BACKEND": "OFF"},
        {"LIB_BACKEND": "1"},
    ]
    assert len({trial.change for trial in trials}) == 3
    (of_amd,) = setting_trials(Lack.DEVICE_CODE, asked_of("rocm-gfx942"), NOTHING, asked)
    assert of_amd.recipe.cmake == {"LIB_BACKEND": "2"}, "its switch is on already"


def test_targets_are_written_as_the_default_is() -> None:
    asked = Asked(
        variant="x",
        way="setup.py",
        backend=Backend.CUDA,
        device_compiles=1,
        cubins=("8.0", "9.0"),
        variables=(
            AskedVariable(name="COMPUTE_CAPABILITIES", where="setup.py:1", default="75,80"),
            AskedVariable(name="LIB_DISABLE_SM80", where="setup.py:2", default="FALSE"),
        ),
    )
    about = asked_of("cuda-sm90")
    assert list(lacks(about, asked)) == [Lack.TARGETS]
    first, *_, last = setting_trials(Lack.TARGETS, about, NOTHING, asked)
    assert first.recipe.environment == {"COMPUTE_CAPABILITIES": "{digits}"}
    assert first.recipe.separator == ","
    assert last.change == "LIB_DISABLE_SM80=TRUE"


def test_targets_with_the_prefix_of_nvcc() -> None:
    option = AskedOption(name="GPU_ARCH", value="sm_75", type="STRING")
    asked = Asked(variant="x", way="cmake", device_compiles=1, cubins=("7.5",), options=(option,))
    first, *_ = setting_trials(Lack.TARGETS, asked_of("cuda-sm90"), NOTHING, asked)
    assert first.recipe.cmake == {"GPU_ARCH": "sm_{digits}"}


def test_a_better_answer() -> None:
    about = asked_of("cuda-sm90")
    none = Asked(variant="x", way="cmake", host_compiles=1)
    old = Asked(variant="x", way="cmake", device_compiles=1, cubins=("7.5",))
    more = Asked(variant="x", way="cmake", device_compiles=1, cubins=("7.5", "9.0"))
    exact = Asked(variant="x", way="cmake", device_compiles=1, cubins=("9.0",))
    scores = [score(about, each) for each in (none, old, more, exact)]
    assert scores == sorted(scores)
    assert len(set(scores)) == 4
    assert list(lacks(about, exact)) == []


def test_a_cpu_build_switches_gpus_and_native_code_off() -> None:
    asked = Asked(
        variant="cpu",
        way="cmake",
        backend=Backend.CUDA,
        device_compiles=1,
        host_compiles=1,
        cpu_flags=("-march=native",),
        options=(
            AskedOption(name="USE_CUDA", value="ON", type="BOOL"),
            AskedOption(name="LIB_NATIVE", value="ON", type="BOOL"),
        ),
    )
    about = asked_of("cpu")
    wanted = [
        t.change
        for lack in lacks(about, asked)
        for t in setting_trials(lack, about, NOTHING, asked)
    ]
    assert wanted == ["USE_CUDA=OFF", "LIB_NATIVE=OFF"]


def test_a_target_of_single_kernels_is_not_that_of_all() -> None:
    """vLLM was said to be compiled for 9.0 and 9.0a, and no kernel is compiled for both."""
    kernels = [
        KernelTargets(source=name, targets=targets)
        for name, targets in (
            ("a", ("sm_90",)),
            ("b", ("sm_90", "PTX of 9.0")),
            ("c", ("sm_100f",)),
        )
    ]
    asked_for = (GpuTarget(arch="9.0"), GpuTarget(arch="8.9"))
    assert most_used(asked_for, ("8.0", "9.0", "9.0a"), kernels) == ("9.0",)
    assert most_used(asked_for, ("9.0a",), kernels) == ("9.0a",)
    assert most_used([GpuTarget(arch="10.0")], ("10.0a", "10.0f"), kernels) == ("10.0f",)


def test_which_kernels_run() -> None:
    assert runs_kernel(("sm_90a",), "9.0")
    assert not runs_kernel(("sm_90a",), "10.0")
    assert runs_kernel(("sm_80", "PTX of 8.0"), "9.0")
    assert not runs_kernel((), "9.0")
