"""Which variant a machine gets, and why: recorded machines against a catalogue of variants."""

import pytest
from msgspec.structs import replace

from catalogue_wheels import AVX2, host, published
from stoker.catalogue.ranking import rank
from stoker.catalogue.values import (
    ArchCode,
    Candidate,
    CodeRegions,
    Fit,
    Host,
    HostGpu,
    PublishedWheel,
)

CATALOGUE = (
    published("cu128-sm75"),
    published("cu128-sm80"),
    published("cu128-sm86"),
    published("cu128-sm89"),
    published("cu128-sm90"),
    published("cu128-sm90a"),
    published("cu128-sm120+ptx"),
    published("cu128-sm90", family="aarch64"),
    published("cpu"),
    published("cpu-avx2"),
    published("cpu-avx512"),
    published("cpu", family="aarch64"),
    published("cpu-armv9", family="aarch64"),
)

GRACE = host(
    cpu_family="aarch64",
    cpu="neoverse_v2",
    cpu_features=("asimddp", "asimdhp", "fphp", "sve", "sve2"),
)
MACHINES = {
    "H100": host("NVIDIA H100 80GB HBM3", "9.0"),
    "RTX 4090": host("NVIDIA GeForce RTX 4090", "8.9", cpu_features=AVX2),
    "L40S": host("NVIDIA L40S", "8.9"),
    "T4": host("Tesla T4", "7.5"),
    "GTX 1080": host("NVIDIA GeForce GTX 1080", "6.1", cpu_features=AVX2),
    "RTX 5090": host("NVIDIA GeForce RTX 5090", "12.0"),
    "CPU with AVX2": host(cpu="haswell", cpu_features=AVX2),
    "CPU with AVX-512": host(),
    "Grace": GRACE,
    "Grace Hopper": replace(GRACE, gpus=(HostGpu(name="NVIDIA GH200 480GB", capability="9.0"),)),
}


def best(machine: Host, wheels: tuple[PublishedWheel, ...] = CATALOGUE) -> Candidate:
    return rank(machine, wheels)[0]


@pytest.mark.parametrize(
    ("machine", "variant", "fit", "reason"),
    [
        ("H100", "cu128-sm90a", Fit.NATIVE, "native sm_90a code for NVIDIA H100 80GB HBM3 (9.0)"),
        (
            "RTX 4090",
            "cu128-sm89",
            Fit.NATIVE,
            "native sm_89 code for NVIDIA GeForce RTX 4090 (8.9)",
        ),
        ("L40S", "cu128-sm89", Fit.NATIVE, "native sm_89 code for NVIDIA L40S (8.9)"),
        ("T4", "cu128-sm75", Fit.NATIVE, "native sm_75 code for Tesla T4 (7.5)"),
        ("RTX 5090", "cu128-sm120-ptx", Fit.NATIVE, "native sm_120 code"),
        (
            "GTX 1080",
            "cpu-avx2",
            Fit.CPU,
            "runs on the CPU alone, code for avx2; the GPU is not used",
        ),
        ("CPU with AVX2", "cpu-avx2", Fit.CPU, "runs on the CPU alone, code for avx2"),
        ("CPU with AVX-512", "cpu-avx512", Fit.CPU, "runs on the CPU alone, code for avx512"),
        ("Grace", "cpu-armv9", Fit.CPU, "runs on the CPU alone, code for armv9"),
        (
            "Grace Hopper",
            "cu128-sm90",
            Fit.NATIVE,
            "native sm_90 code for NVIDIA GH200 480GB (9.0)",
        ),
    ],
)
def test_recorded_machines(machine: str, variant: str, fit: Fit, reason: str) -> None:
    choice = best(MACHINES[machine])
    assert (choice.wheel.variant, choice.fit) == (variant, fit)
    assert choice.reason.startswith(reason)
    assert choice.wheel.tags[0].endswith(MACHINES[machine].cpu_family)


def test_an_l40s_never_gets_code_for_hopper() -> None:
    """Compatible code of its own generation, the newest first; never code of a newer one."""
    left: tuple[PublishedWheel, ...] = CATALOGUE
    order = []
    while (choice := best(MACHINES["L40S"], left)).fit is not Fit.CPU:
        order.append((choice.wheel.variant, choice.fit))
        left = tuple(wheel for wheel in left if wheel is not choice.wheel)
    assert order == [
        ("cu128-sm89", Fit.NATIVE),
        ("cu128-sm86", Fit.COMPATIBLE),
        ("cu128-sm80", Fit.COMPATIBLE),
    ]
    refused = {one.wheel.variant: one for one in rank(MACHINES["L40S"], left)}
    assert refused["cu128-sm90"].reason == "NVIDIA L40S (8.9) cannot run what it holds: sm_90"
    assert not refused["cu128-sm90"].runs
    assert not refused["cu128-sm120-ptx"].runs


def test_a_newer_gpu_runs_ptx() -> None:
    """As the driver compiles it, it is better than none and worse than machine code."""
    future = host("NVIDIA RTX 7090", "13.0")
    choice = best(future)
    assert (choice.wheel.variant, choice.fit) == ("cu128-sm120-ptx", Fit.PTX)
    assert (
        "through PTX (compute_120), compiled by a driver that is as new as CUDA 12.8"
        in choice.reason
    )


def test_code_for_one_chip_runs_on_no_other() -> None:
    choices = {one.wheel.variant: one for one in rank(host("B300", "10.3"), CATALOGUE)}
    assert not choices["cu128-sm90a"].runs


@pytest.mark.parametrize(
    ("machine", "wheel", "reason"),
    [
        (host(), published("cu128-sm90"), "it is for NVIDIA GPUs, and there is none"),
        (
            host("H100", "9.0", driver="470.82.01"),
            published("cu128-sm90"),
            "it needs NVIDIA driver 525 or newer; this machine has 470.82.01",
        ),
        (
            host("H100", "9.0", driver="535.104"),
            published("cu128-sm90", minimum_driver="550.54.14"),
            "it needs NVIDIA driver 550.54.14 or newer; this machine has 535.104",
        ),
        (
            host(cpu="haswell", cpu_features=AVX2),
            published("cpu-avx512"),
            "it needs avx512: haswell lacks avx512bw, avx512cd, avx512dq, avx512f, avx512vl",
        ),
        (
            host(libc="glibc 2.17"),
            published("cpu"),
            "it needs glibc 2.28; this machine has glibc 2.17",
        ),
        (
            host(libc="musl 1.2.4"),
            published("cpu"),
            "it needs glibc 2.28; this machine has musl 1.2.4",
        ),
        (host(python="3.11.2"), published("cpu"), "it is for Python cp312, not 3.11.2"),
        (
            host(python="3.12.1", free_threaded=True),
            published("cpu"),
            "it is for Python cp312, not 3.12.1t",
        ),
        (GRACE, published("cpu"), "it is for manylinux_2_28_x86_64, not linux aarch64"),
        (host(), published("rocm6.4-gfx942"), "it is for gfx942 (rocm), and there is no such GPU"),
    ],
)
def test_why_a_wheel_does_not_run(machine: Host, wheel: PublishedWheel, reason: str) -> None:
    (choice,) = rank(machine, [wheel])
    assert not choice.runs
    assert choice.reason.startswith(reason)


def test_the_newest_release_that_uses_the_gpu() -> None:
    """A newer release without code for the GPU does not displace one that has it."""
    wheels = (
        published("cu128-sm90", version="2.9.1"),
        published("cu128-sm80", version="2.10.0"),
        published("cu128-sm90", version="2.10.0"),
        published("cpu", version="2.11.0"),
    )
    order = [one.wheel.version for one in rank(MACHINES["H100"], wheels)]
    assert order == ["2.10.0+cu128.sm90", "2.9.1+cu128.sm90", "2.11.0+cpu", "2.10.0+cu128.sm80"]


def test_most_regions_decide() -> None:
    """A few kernels for one chip only, or stubs of slimming, make no wheel for that chip."""
    regions = (CodeRegions(archs=("sm_80",), count=95), CodeRegions(archs=("sm_90a",), count=5))
    code = (
        ArchCode(arch="sm_80", size_bytes=1, count=95),
        ArchCode(arch="sm_90a", size_bytes=1, count=5),
    )
    wheel = published("cu128-sm80", regions=regions, code=code)
    (on_a100,) = rank(host("A100", "8.0"), [wheel])
    assert on_a100.runs
    assert on_a100.notes == ("5 of 100 kernel groups have no code for A100 (8.0)",)
    (on_h100,) = rank(MACHINES["H100"], [wheel])
    assert not on_h100.runs


def test_several_gpus() -> None:
    """A wheel that serves all of them goes before one that serves some."""
    both = replace(
        MACHINES["H100"],
        gpus=(HostGpu(name="H100", capability="9.0"), HostGpu(name="T4", capability="7.5")),
    )
    one, all_ = published("cu128-sm90"), published("cu128-sm75+sm90")
    first, second = rank(both, [one, all_])
    assert first.wheel == replace(all_)
    assert first.notes == ()
    assert second.notes == ("T4 (7.5) cannot run what it holds: sm_90",)


def test_a_wheel_without_device_code_suits_any_gpu() -> None:
    wheel = published("cu128-sm90", regions=(), code=())
    (choice,) = rank(MACHINES["T4"], [wheel])
    assert choice.runs
    assert "no device code of its own" in choice.reason
