"""The order, the labels and the time of a matrix."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.builds.matrices.decisions import (
    build_sharing,
    cache_order,
    check_same_cuda,
    check_slim,
    completed_label,
    distinct_labels,
    matrix_label,
    names_of_one_variant,
    slim_estimate,
    slim_label,
    slim_sharing,
    whole_time,
)
from stoker.builds.matrices.matrix import MatrixJob, WheelFrom
from stoker.knowledge.estimates import estimates
from stoker.model.errors import UsageError
from stoker.model.plan import Quantity
from stoker.plan.grammar import parse
from subjects import subject


def job(name: str, *sharing: str, seconds: float | None = None, **changes: Any) -> MatrixJob:
    return MatrixJob(
        name=name,
        variant="cpu",
        label="cpu",
        made_from=WheelFrom.BUILD,
        given=".",
        sharing=sharing,
        seconds=Quantity(amount=seconds, basis=""),
        wheel_bytes=Quantity(amount=None, basis=""),
        **changes,
    )


def names(jobs: tuple[MatrixJob, ...]) -> str:
    return " ".join(job.name for job in jobs)


def test_what_shares_most_is_made_one_after_another() -> None:
    jobs = [
        job("a", "gcc", "avx2", "3.11"),
        job("b", "clang", "avx2", "3.11"),
        job("c", "gcc", "avx512", "3.11"),
        job("d", "gcc", "avx2", "3.12"),
        job("e", "clang", "avx2", "3.12"),
    ]
    assert names(cache_order(jobs)) == "a d c b e"


def test_without_anything_in_common_the_order_of_the_file_counts() -> None:
    jobs = [job("z", "1"), job("a", "2"), job("m", "3")]
    assert names(cache_order(jobs)) == "z a m"


levels = st.tuples(*(st.sampled_from("abc") for _ in range(3)))


@given(st.lists(levels, max_size=12))
def test_equal_levels_are_never_apart(found: list[tuple[str, ...]]) -> None:
    jobs = [job(str(index), *sharing) for index, sharing in enumerate(found)]
    ordered = cache_order(jobs)
    assert sorted(one.name for one in ordered) == sorted(one.name for one in jobs)
    for depth in (1, 2, 3):
        runs = [one.sharing[:depth] for one in ordered]
        groups = [one for n, one in enumerate(runs) if n == 0 or runs[n - 1] != one]
        assert len(groups) == len(set(groups))


def test_gpus_and_python_come_last_in_what_compiles_depend_on() -> None:
    def shared(one: str, other: str) -> int:
        pair = zip(
            build_sharing(subject(one), "."), build_sharing(subject(other), "."), strict=True
        )
        return next(n for n, (left, right) in enumerate(pair) if left != right)

    assert shared("cu130-sm90-py311", "cu130-sm90-py312") == 4
    assert shared("cu130-sm90", "cu130-sm80") == 3
    assert shared("cu130-sm90-avx2", "cu130-sm90-avx512") == 2
    assert shared("cu130-sm90", "cu128-sm90") == 1
    assert build_sharing(subject("cpu"), "a")[0] != build_sharing(subject("cpu"), "b")[0]


def test_slims_of_one_wheel_and_python_are_together() -> None:
    first, second = (slim_sharing(parse(f"{gpu}-py312"), "torch==2.9.1") for gpu in ("h100", "t4"))
    assert first[:2] == second[:2] == ("slim torch==2.9.1", "3.12")


def test_a_label_names_the_variant_without_python_and_platform() -> None:
    assert matrix_label(parse("cu128-sm90-avx512-py312-linux-x86_64")) == "cu128.sm90.avx512"
    assert slim_label(parse("h100")) == "sm90"
    assert slim_label(parse("cu128-h100+ptx")) == "cu128.sm90.ptx"


@pytest.mark.parametrize(
    ("label", "original", "cuda", "expected"),
    [
        ("sm90", "", "12.8", "cu128.sm90"),
        ("cu128.sm90", "", "12.8", "cu128.sm90"),
        ("sm90", "", None, "sm90"),
        ("sm90", "cu128", "12.8", "cu128.sm90"),
        ("cu128.sm90", "cu128", "12.8", "cu128.sm90"),
        ("sm90", "cu12torch2.9cxx11abitrue", None, "cu12torch2.9cxx11abitrue.sm90"),
    ],
)
def test_a_slimmed_wheel_keeps_what_its_version_says(
    label: str, original: str, cuda: str | None, expected: str
) -> None:
    assert completed_label(label, original=original, cuda=cuda) == expected


def test_variants_with_one_label_get_their_names() -> None:
    labels = {"plain": (".", "cpu"), "Loud One": (".", "cpu"), "gpu": (".", "cu128.sm90")}
    assert distinct_labels(labels) == {
        "plain": "cpu.plain",
        "Loud One": "cpu.loud.one",
        "gpu": "cu128.sm90",
    }
    assert names_of_one_variant(labels) == {"plain", "Loud One"}
    elsewhere = {"a": ("mill", "cpu"), "b": ("kiln", "cpu")}
    assert distinct_labels(elsewhere) == {"a": "cpu", "b": "cpu"}
    assert names_of_one_variant(elsewhere) == frozenset()


def test_names_that_cannot_be_told_apart() -> None:
    with pytest.raises(UsageError, match=r"a-b and a\.b would have the same name"):
        distinct_labels({"a-b": (".", "cpu"), "a.b": (".", "cpu")})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("cpu", "names no NVIDIA GPU"),
        ("gfx942", "names no NVIDIA GPU"),
        ("cu128", "names no NVIDIA GPU"),
        ("h100-avx512", "does not change its cpu"),
        ("h100-debug-mkl", "does not change its blas and build type"),
    ],
)
def test_what_slimming_cannot_give(words: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_slim(parse(words))


def test_a_wheel_of_another_cuda_release() -> None:
    check_slim(parse("cu128-h100-py312-linux-x86_64"))
    check_same_cuda(parse("cu128-h100"), "12.8")
    check_same_cuda(parse("h100"), "12.8")
    check_same_cuda(parse("cu128-h100"), None)
    with pytest.raises(UsageError, match=r"CUDA 12\.8, and the variant for 12\.6"):
        check_same_cuda(parse("cu126-h100"), "12.8")


def test_the_whole_is_the_sum_of_what_is_known() -> None:
    whole = whole_time([job("a", seconds=60.0), job("b"), job("c", seconds=30.0)])
    assert (whole.seconds, whole.unknown) == (90.0, 1)


def test_a_wheel_of_twice_the_size_takes_twice_as_long() -> None:
    figures = estimates().slim
    one, two = (slim_estimate(size, figures, cpus=2).amount for size in (1000, 2000))
    assert one is not None
    assert two == 2 * one
    assert slim_estimate(1000, figures, cpus=1).amount == 2 * one
    assert slim_estimate(1000, figures, cpus=64).amount == one  # no more CPUs were measured
    assert slim_estimate(None, figures, cpus=2).amount is None
