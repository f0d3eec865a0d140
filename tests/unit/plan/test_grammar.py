"""Words to variants and back: every spelling, and a suggestion for every misspelling."""

import pytest

from stoker.model.errors import UsageError
from stoker.model.machine import Machine
from stoker.model.variant import (
    Backend,
    BuildType,
    Feature,
    GpuTarget,
    Platform,
    Sanitizer,
    Variant,
)
from stoker.plan.grammar import canonical, label, parse, parse_part
from subjects import arm_linux, changed, gpu, linux, mac, zen4

ARM = Platform(os="linux", cpu="aarch64")


def targets(*archs: str) -> tuple[GpuTarget, ...]:
    """``targets("8.0", "9.0+PTX")``"""
    return tuple(
        GpuTarget(arch=arch.removesuffix("+PTX"), ptx=arch.endswith("+PTX")) for arch in archs
    )


def cuda(*archs: str, **parts: str) -> Variant:
    return Variant(
        backend=Backend.CUDA,
        gpus=targets(*archs),
        toolkit=parts.get("toolkit"),
        cpu=parts.get("cpu"),
        python=parts.get("python"),
    )


@pytest.mark.parametrize(
    ("text", "variant"),
    [
        ("cu130-sm90-avx512", cuda("9.0", toolkit="13.0", cpu="avx512")),
        ("cpu-avx2", Variant(cpu="avx2")),
        ("cu128-sm80+sm90+ptx", cuda("8.0", "9.0+PTX", toolkit="12.8")),
        ("rocm6.4-gfx942", Variant(backend=Backend.ROCM, toolkit="6.4", gpus=targets("gfx942"))),
        ("cpu", Variant()),
        ("CPU only", Variant()),
        ("H100 with AVX-512", cuda("9.0", cpu="avx512")),
        # Names of other catalogues.
        ("pytorch-sm90-avx512", cuda("9.0", cpu="avx512")),
        ("torch-sm90", cuda("9.0")),
        ("python313Packages.pytorch-sm86-avx2", cuda("8.6", cpu="avx2", python="3.13")),
        ("python39Packages.torch-sm75", cuda("7.5", python="3.9")),
        ("pytorch-cpu-avx2", Variant(cpu="avx2")),
        # GPUs by name.
        ("h100", cuda("9.0")),
        ("rtx4090", cuda("8.9")),
        ("RTX 3090 Ti", cuda("8.6")),
        ("rtx 6000 ada", cuda("8.9")),
        ("Grace Hopper", changed(cuda("9.0"), platform=ARM)),
        ("h100+rtx4090", cuda("8.9", "9.0")),
        ("mi300x", Variant(backend=Backend.ROCM, gpus=targets("gfx942"))),
        ("ats-m150", Variant(backend=Backend.XPU, gpus=targets("ats-m150"))),
        # GPUs as nvidia-smi and other drivers print them.
        ("NVIDIA H100 80GB HBM3", cuda("9.0")),
        ("Tesla T4", cuda("7.5")),
        ("NVIDIA GeForce RTX 3090", cuda("8.6")),
        ("NVIDIA A100-SXM4-80GB", cuda("8.0")),
        ("NVIDIA RTX 6000 Ada Generation", cuda("8.9")),
        ("NVIDIA GeForce RTX 4070 Laptop GPU", cuda("8.9")),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", cuda("12.0")),
        ("NVIDIA TITAN X (Pascal)", cuda("6.1")),
        ("NVIDIA GH200 480GB", changed(cuda("9.0"), platform=ARM)),
        ("Orin (nvgpu)", changed(cuda("8.7"), platform=ARM)),
        ("RTX 4090 + RTX 3090", cuda("8.6", "8.9")),
        ("AMD Instinct MI300X", Variant(backend=Backend.ROCM, gpus=targets("gfx942"))),
        ("Radeon RX 7900 XTX", Variant(backend=Backend.ROCM, gpus=targets("gfx1100"))),
        ("Intel(R) Arc(TM) A770 Graphics", Variant(backend=Backend.XPU, gpus=targets("dg2"))),
        ("rdna3", Variant(backend=Backend.ROCM, gpus=targets("gfx1100", "gfx1101", "gfx1102"))),
        # Targets as CMAKE_CUDA_ARCHITECTURES has them, PTX as a word.
        ("80;90", cuda("8.0", "9.0")),
        ("90a", cuda("9.0a")),
        ("cuda 80;90", cuda("8.0", "9.0")),
        ("sm90 ptx", cuda("9.0+PTX")),
        ("h100 with PTX", cuda("9.0+PTX")),
        ("sm80 sm90 +PTX", cuda("8.0", "9.0+PTX")),
        # TORCH_CUDA_ARCH_LIST.
        ("8.0;8.6;9.0+PTX", cuda("8.0", "8.6", "9.0+PTX")),
        ("8.0 8.6 9.0+PTX", cuda("8.0", "8.6", "9.0+PTX")),
        ("8.0,9.0a", cuda("8.0", "9.0a")),
        ("9.0", cuda("9.0")),
        ("8.0+PTX;9.0", cuda("8.0+PTX", "9.0")),
        ("9.0;", cuda("9.0")),
        ("Hopper", cuda("9.0+PTX")),
        ("Ampere", cuda("8.0", "8.6+PTX")),
        ("8.9;Hopper", cuda("8.9", "9.0+PTX")),
        # CPUs by name.
        ("cpu-zen4", Variant(cpu="zen4")),
        ("cpu genoa", Variant(cpu="zen4")),
        ("cpu-x86-64-v3", Variant(cpu="x86_64_v3")),
        ("cpu v3", Variant(cpu="x86_64_v3")),
        ("Neoverse V2", Variant(cpu="neoverse_v2")),
        ("Intel Xeon Sapphire Rapids", Variant(cpu="sapphirerapids")),
        ("arm neoverse", Variant(cpu="neoverse_n1", platform=Platform(os="linux", cpu="aarch64"))),
        # Toolkits.
        ("cuda", Variant(backend=Backend.CUDA)),
        ("cuda12.8", cuda(toolkit="12.8")),
        ("cu12.8", cuda(toolkit="12.8")),
        ("12.8", cuda(toolkit="12.8")),
        ("12.8 9.0", cuda("9.0", toolkit="12.8")),
        ("12.0", cuda("12.0")),
        ("cuda12", cuda(toolkit="12.9")),
        ("cu12-sm90", cuda("9.0", toolkit="12.9")),
        ("CUDA 13.0", cuda(toolkit="13.0")),
        ("cuda-13.0-sm_90", cuda("9.0", toolkit="13.0")),
        ("xpu2025.2-pvc", Variant(backend=Backend.XPU, toolkit="2025.2", gpus=targets("pvc"))),
        ("mps", Variant(backend=Backend.MPS)),
        ("metal", Variant(backend=Backend.MPS)),
        ("m1", Variant(backend=Backend.MPS, cpu="m1")),
        ("cpu m1", Variant(cpu="m1")),
        ("vulkan", Variant(backend=Backend.VULKAN)),
        # The rest of the parts.
        ("cpu-openblas", Variant(blas="openblas")),
        ("cpu-vecLib", Variant(blas="accelerate")),
        ("cpu-py312", Variant(python="3.12")),
        ("cpu-cp39", Variant(python="3.9")),
        ("cpu python3.13", Variant(python="3.13")),
        ("cpu-debug-asan", Variant(build_type=BuildType.DEBUG, sanitizer=Sanitizer.ADDRESS)),
        ("cpu-release", Variant()),
        (
            "cpu-nonccl-kineto",
            Variant(features=(Feature(name="kineto"), Feature(name="nccl", on=False))),
        ),
        ("cpu-linux-aarch64", Variant(platform=Platform(os="linux", cpu="aarch64"))),
        ("cpu-amd64", Variant(platform=Platform(os="linux", cpu="x86_64"))),
        ("macos-universal2", Variant(platform=Platform(os="macos", cpu="universal"))),
        ("android", Variant(platform=Platform(os="android", cpu="arm64"))),
    ],
)
def test_what_words_mean(text: str, variant: Variant) -> None:
    assert parse(text) == variant
    assert parse(variant.name) == variant


@pytest.mark.parametrize(
    "text",
    [
        "cu130-sm90-avx512",
        "CU130-SM90-AVX512",
        "cu130 sm_90 avx-512",
        "avx512 sm90 cu130",
        "cu130, compute_90, AVX 512",
        "CUDA 13.0 for the H100 and AVX_512",
        "  cu130--sm90-avx512  ",
    ],
)
def test_spelling_and_order_do_not_matter(text: str) -> None:
    assert parse(text).name == "cu130-sm90-avx512"


def test_doubles_are_one_and_lists_are_sorted() -> None:
    variant = parse("sm90+sm80+ptx sm80 h100 nonccl nonccl")
    assert variant.gpus == targets("8.0+PTX", "9.0")
    assert variant.features == (Feature(name="nccl", on=False),)
    assert parse("sm120+sm100+sm90a+sm90").name == "cuda-sm90+sm90a+sm100+sm120"


def test_the_name_holds_every_part_that_is_not_the_default() -> None:
    variant = Variant(
        backend=Backend.CUDA,
        toolkit="13.0",
        gpus=targets("9.0a", "12.0+PTX"),
        cpu="avx512",
        blas="openblas",
        python="3.12",
        build_type=BuildType.DEBUG,
        sanitizer=Sanitizer.UNDEFINED,
        features=(Feature(name="lto"), Feature(name="nccl", on=False)),
        platform=Platform(os="linux", cpu="x86_64"),
    )
    assert variant.name == (
        "cu130-sm90a+sm120+ptx-avx512-openblas-py312-debug-ubsan-lto-nonccl-linux_x86_64"
    )
    assert label(variant) == "cu130.sm90a.sm120.ptx.avx512.openblas.py312.debug.ubsan.lto.nonccl"


def test_the_short_label() -> None:
    assert label(parse("cu130-sm90-avx512")) == "cu130.sm90.avx512"
    assert label(Variant()) == "cpu"


@pytest.mark.parametrize(
    ("text", "says", "near"),
    [
        ("cu130-sm95", "sm95", "sm90"),
        ("cu131x", "cu131x", "cu130"),
        ("cu135-sm90", "13.5", "13.0"),
        ("cu130-sm90-avx521", "avx521", "avx512"),
        ("h10", "h10", "h100"),
        ("rtx4099", "rtx4099", "rtx4090"),
        ("sm9", "sm9", "sm90"),
        ("gfx943", "gfx943", "gfx942"),
        ("sm80+sm9o", "sm9o", "sm90"),
        ("cpu-opneblas", "opneblas", "openblas"),
        ("cpu-zen44", "zen44", "zen4"),
        ("hoper", "hoper", "hopper"),
        ("cpu-debgu", "debgu", "debug"),
        ("nativ", "nativ", "native"),
        ("8.0;9.5", "9.5", "9.0"),
        ("13.9", "GPU architecture or CUDA version '13.9'", "13.4"),
        ("RTX 4099", "unknown words 'rtx 4099'", "rtx4090"),
        ("NVIDIA GeForce RTX 4099 Laptop GPU", "unknown words 'rtx 4099'", "rtx4090"),
        ("cpu-mold", "unknown word 'mold'", "--linker mold"),
        ("intel cpu", "unknown word 'intel'", "stoker plan --list"),
        ("linux-x86_46", "linux", "linuxx8664"),
        ("rocm6-gfx942", "rocm6", "rocm6.4"),
    ],
)
def test_a_misspelt_word_comes_with_similar_words(text: str, says: str, near: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse(text)
    assert says in refused.value.message
    assert near in " ".join(refused.value.hints)


def test_the_whole_variant_is_quoted_where_it_is_longer_than_the_word() -> None:
    with pytest.raises(UsageError, match=r"unknown word 'foo' in variant 'cu130-Foo'"):
        parse("cu130-Foo")
    with pytest.raises(UsageError, match=r"unknown word 'foo'$"):
        parse("Foo")


@pytest.mark.parametrize(
    "text",
    [
        "cu130-cu128",
        "cuda-rocm",
        "cu130-gfx942",
        "h100 mi300x",
        "h100 cpu",
        "cpu-h100",
        "cpu-cu130",
        "cpu metal",
        "12.8 cu130",
        "rocm6.4-rocm6.3-gfx942",
        "cpu-avx2-avx512",
        "cpu-mkl-openblas",
        "cpu-py311-py312",
        "python313Packages.pytorch-sm90-py312",
        "cpu-debug-minsizerel",
        "cpu-asan-tsan",
        "cpu-linux_x86_64-linux_aarch64",
    ],
)
def test_contradictions_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="two values"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("cu130-nccl-nonccl", "nccl is both asked for and refused"),
        ("sm90+gfx942", "mixes cuda and rocm"),
        ("native", "native"),  # of which machine is not known
        *(
            (text, "at least one word")
            for text in ("", " ", "-", ";", "with", "for the a", "pytorch-")
        ),
        *((text, "unknown") for text in ("ptx", "ptx+sm90", "sm90+mkl", "sm90+")),
    ],
)
def test_words_that_are_no_variant(text: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse(text)


@pytest.mark.parametrize("text", ["py3\u0661", "rocm6.\u0664", "xpu202\u0665.1", "sm9\u0660"])
def test_digits_of_other_scripts_are_no_numbers(text: str) -> None:
    with pytest.raises(UsageError):
        parse(text)


@pytest.mark.parametrize("text", ["h100\u00e9", "rocm\u0666.\u0664", "cpu\u4e2d"])
def test_letters_are_not_dropped_from_a_word(text: str) -> None:
    """Dashes, dots and case are spelling; a letter that no word has makes another word."""
    with pytest.raises(UsageError):
        parse(text)


@pytest.mark.parametrize("text", ["native", "this machine", "This-Machine", "NATIVE"])
def test_native_without_a_gpu_is_the_cpu(text: str) -> None:
    assert parse(text, linux()) == Variant(cpu="zen4")


@pytest.mark.parametrize(
    ("machine", "variant"),
    [
        (linux(gpus=(gpu("9.0"),)), cuda("9.0", cpu="zen4")),
        (linux(gpus=(gpu("12.0"), gpu("8.9"))), cuda("8.9", "12.0", cpu="zen4")),
        (linux(gpus=(gpu("8.6"), gpu("8.6", index=1))), cuda("8.6", cpu="zen4")),
        (linux(cpu=zen4(microarchitecture="x86_64")), Variant()),
        (linux(cpu=zen4(microarchitecture="zen99")), Variant()),
        (linux(cpu=zen4(microarchitecture="x86_64_v3")), Variant(cpu="x86_64_v3")),
        (arm_linux(), Variant(cpu="neoverse_v2")),
        (mac(), Variant(backend=Backend.MPS, cpu="m1")),
    ],
)
def test_native_is_what_the_machine_is(machine: Machine, variant: Variant) -> None:
    assert parse("native", machine) == variant
    assert parse(variant.name) == variant


def test_native_can_be_narrowed() -> None:
    machine = linux(gpus=(gpu("9.0"),))
    assert parse("cu130-native-debug", machine).name == "cu130-sm90-zen4-debug"
    assert parse("cu130-sm80-native", linux()).name == "cu130-sm80-zen4"


def test_native_on_a_gpu_that_no_cuda_makes_code_for() -> None:
    """A GPU newer than our tables: refused or left out, but never a name that cannot be read."""
    machine = linux(gpus=(gpu("99.0"),))
    try:
        variant = parse("native", machine)
    except UsageError:
        return
    assert parse(variant.name) == variant


@pytest.mark.parametrize(
    ("part", "text", "value"),
    [
        ("blas", "OpenBLAS", "openblas"),
        ("python", "3.12", "3.12"),
        ("python", "py312", "3.12"),
        ("build_type", "RelWithDebInfo", BuildType.RELWITHDEBINFO),
        ("build_type", "release", BuildType.RELEASE),
        ("sanitizer", "ASAN", Sanitizer.ADDRESS),
        ("platform", "linux-x86_64", Platform(os="linux", cpu="x86_64")),
        ("platform", "macos universal", Platform(os="macos", cpu="universal")),
        ("features", "nonccl", (Feature(name="nccl", on=False),)),
    ],
)
def test_one_part_apart(part: str, text: str, value: object) -> None:
    assert parse_part(part, text) == value


@pytest.mark.parametrize(
    ("part", "text", "near"),
    [
        ("blas", "openbals", "openblas"),
        ("build_type", "Debugg", "Debug"),
        ("sanitizer", "asam", "asan"),
        ("platform", "linux-x86", "linux-x86_64"),
        ("features", "ncl", "nccl"),
    ],
)
def test_a_misspelt_part_has_its_place_and_similar_words(part: str, text: str, near: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_part(part, text, "stoker.toml:7")
    assert refused.value.where == "stoker.toml:7"
    assert near in " ".join(refused.value.hints)


@pytest.mark.parametrize(
    ("part", "text"),
    [
        ("blas", "h100"),
        ("blas", "native"),
        ("python", "2.7"),
        ("python", ""),
        ("platform", "cu130"),
    ],
)
def test_a_word_of_another_part_is_refused(part: str, text: str) -> None:
    with pytest.raises(UsageError):
        parse_part(part, text)


def test_canonical_joins_ptx_and_keeps_suffixes_apart() -> None:
    variant = canonical(cuda("9.0", "9.0a", "9.0+PTX"))
    assert variant.gpus == targets("9.0+PTX", "9.0a")


@pytest.mark.parametrize(
    ("part", "known"),
    [
        ("blas", "mkl, openblas, blis"),
        ("build_type", "Release, Debug, RelWithDebInfo, MinSizeRel"),
        ("sanitizer", "asan, ubsan, tsan"),
        ("platform", "linux-x86_64, linux-aarch64"),
        ("features", "cudnn, nccl"),
    ],
)
def test_a_wrong_part_lists_the_right_ones(part: str, known: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_part(part, "nonsense")
    assert f"choose from: {known}" in refused.value.hints[-1]


def test_native_of_a_cpu_alone() -> None:
    assert parse("cpu native", mac()) == Variant(cpu="m1")
    assert parse("cpu native", linux(gpus=(gpu("9.0"),))) == Variant(cpu="zen4")
