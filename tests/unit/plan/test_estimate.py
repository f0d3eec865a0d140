"""Estimates rest on measured figures, or are unknown."""

import json
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stoker.knowledge.estimates import estimates
from stoker.model.evidence import AskedBuild
from stoker.model.plan import Estimate, Quantity
from stoker.model.source import SourceTree
from stoker.plan.estimates import estimate, heavy_steps
from stoker.plan.planning import make_plan
from subjects import (
    changed,
    cmake_tree,
    extension_tree,
    linux,
    pytorch_tree,
    subject,
    unknown_estimate,
    zen4,
)

RESULTS = Path(__file__).parents[3] / "benchmarks/results"
MEASURED: list[dict[str, Any]] = json.loads((RESULTS / "estimates.json").read_text())["cases"]


def of(words: str, tree: SourceTree | None = None, cpus: int = 8) -> Estimate:
    return estimate(subject(words, tree=tree, machine=linux(cpu=zen4(affinity=cpus))))


def known(quantity: Quantity) -> tuple[float, float]:
    """Return an amount that is known, and the most it may be."""
    assert quantity.amount is not None
    return quantity.amount, quantity.most or quantity.amount


def test_time_shrinks_with_cpus() -> None:
    one, eight = of("cpu", pytorch_tree(), 1).wall_s, of("cpu", pytorch_tree(), 8).wall_s
    assert eight.amount == known(one)[0] / 8
    assert "8 CPUs" in eight.basis
    assert "2.6.0" in eight.basis


@pytest.mark.parametrize(
    ("words", "tree"),
    [
        ("cpu", cmake_tree()),
        ("cu130-sm90", cmake_tree()),
        ("cu130-sm90", extension_tree("my_kernels")),
        ("cpu", extension_tree("flash_attn")),
        ("rocm-gfx942", pytorch_tree()),
        ("android", pytorch_tree()),
        ("ios", None),
    ],
)
def test_what_was_not_measured_is_unknown(words: str, tree: SourceTree | None) -> None:
    found = of(words, tree)
    for quantity in (found.wall_s, found.largest_step_bytes, found.disk_bytes, found.wheel_bytes):
        assert quantity.amount is None
        assert quantity.basis


def test_a_cuda_build_takes_time_for_each_target() -> None:
    variants = ("cpu", "cu124-sm90", "cu124-sm80+sm90")
    (cpu, _), (one, most), (two, _) = (known(of(v, pytorch_tree()).wall_s) for v in variants)
    assert cpu < one < most
    assert two - one == pytest.approx(one - cpu)


def test_another_release_than_the_measured_one_needs_at_least_as_much() -> None:
    same = of("cpu", pytorch_tree(version="2.6.0"))
    other = of("cpu", pytorch_tree(version="2.15.0"))
    assert not same.wall_s.at_least
    assert not same.disk_bytes.at_least
    assert other.wall_s.at_least
    assert other.disk_bytes.at_least
    assert "yours is 2.15" in other.disk_bytes.basis


def test_no_disk_is_smaller_than_the_objects_and_libraries_of_a_build() -> None:
    for words in ("cpu", "cu124-sm90"):
        assert (of(words, pytorch_tree()).disk_bytes.amount or 0) > 3e9


def test_figures_are_of_the_nearest_release_that_was_measured() -> None:
    for version in ("2.12.1", "2.14.0"):
        found = of("cu130-sm90", pytorch_tree(version=version))
        assert "2.12.1 for sm_90" in found.wall_s.basis
        assert "2.12.1" in found.largest_step_bytes.basis


def test_a_build_with_attention_kernels_takes_their_time_too() -> None:
    tree = pytorch_tree(version="2.12.1")
    whole, without = of("cu130-sm90", tree, 1).wall_s, of("cu130-sm90-noflash", tree, 1).wall_s
    assert not whole.at_least
    assert not without.at_least
    assert known(without) < known(whole)


def test_without_flash_attention_its_figures_do_not_apply() -> None:
    found = of("cu124-sm90-noflash", pytorch_tree(version="2.6.0"))
    assert "2.12.1 for sm_90" in found.wall_s.basis
    assert found.wall_s.at_least


@pytest.mark.parametrize("name", ["flash_attn", "flash-attn"])
def test_flash_attention_by_either_name(name: str) -> None:
    assert of("cu130-sm90", extension_tree(name)).largest_step_bytes.amount == 6_600_000_000


@pytest.mark.parametrize(
    ("words", "bytes_"),
    [
        ("cu128-sm90", 284_000_000),
        ("cu124-sm90", 284_000_000),
        ("cu128-sm80+sm90", 413_000_000),
        ("cu130-sm90", 251_000_000),
        ("cu130-sm90a", None),
        ("cu130-sm89", None),
        ("cu118-sm90", None),
        ("cpu", None),
    ],
)
def test_the_wheel_is_its_base_and_its_targets(words: str, bytes_: int | None) -> None:
    assert of(words).wheel_bytes.amount == bytes_


def test_figures_of_another_release_say_so() -> None:
    tree = pytorch_tree(version="2.8.0", cuda_archs=())
    assert "yours is 2.8" in of("cu128-sm90", tree).wheel_bytes.basis
    same = pytorch_tree(version="2.9.1", cuda_archs=())
    assert "yours" not in of("cu128-sm90", same).wheel_bytes.basis


def test_heavy_steps_are_those_of_the_kind_and_back_end() -> None:
    assert heavy_steps(subject("cpu")) == ()
    assert heavy_steps(subject("cu130-sm90"))
    assert heavy_steps(subject("cpu", tree=cmake_tree())) == ()
    patterns = {step.pattern for step in heavy_steps(subject("cu130-sm90", tree=extension_tree()))}
    assert patterns == {row.pattern for row in estimates().heavy if row.name == "flash-attn"}


def test_the_plan_takes_the_estimate_it_is_given() -> None:
    about = subject("cpu")
    given = unknown_estimate(wall_s=Quantity(amount=60.0, basis="the last build here"))
    assert make_plan(about, given).estimate == given


def counted(asked: AskedBuild, cpus: int = 2) -> Quantity:
    about = subject(
        "h100", tree=extension_tree("mine", recipe=None), machine=linux(cpu=zen4(affinity=cpus))
    )
    return estimate(changed(about, asked=asked)).wall_s


def test_a_build_that_was_asked_is_estimated_from_its_compiles() -> None:
    asked = AskedBuild(cubins=("9.0",), device_compiles=24, host_compiles=3)
    tree = extension_tree("flash_mla", recipe=None)
    made = estimate(changed(subject("h100", tree=tree), asked=asked))
    device, host = (row for row in estimates().compiles if not row.with_torch)
    for end, found in enumerate((made.wall_s.amount, made.wall_s.most)):
        assert found == pytest.approx((24 * device.seconds[end] + 3 * host.seconds[end]) / 8)
    assert "24 compiles of device code and 3 others" in made.wall_s.basis
    assert made.largest_step_bytes.most == 9_800_000_000
    assert estimate(subject("h100", tree=tree)).wall_s.amount is None


@pytest.mark.parametrize("case", MEASURED, ids=lambda case: case["project"])
def test_the_range_contains_what_real_builds_took(case: dict[str, Any]) -> None:
    """On the machine of the measurement, and on one CPU."""
    asked = AskedBuild(cubins=tuple(case["targets"]), **case["compiles"])
    for cpus in (1, case["cpus"]):
        used = 1 if asked.one_at_a_time else cpus
        took = max(case["cpu_s"] / used, case["longest_s"] or 0)
        least, most = known(counted(asked, cpus))
        assert least <= took <= most, cpus


def test_sources_with_all_headers_of_pytorch_take_longer() -> None:
    plain = counted(AskedBuild(cubins=("9.0",), device_compiles=1, host_compiles=4))
    heavy = counted(
        AskedBuild(
            cubins=("9.0",),
            device_compiles=1,
            host_compiles=4,
            device_with_torch=1,
            host_with_torch=4,
        )
    )
    assert known(heavy)[0] > 2 * known(plain)[0]
    assert "5 of them include all of PyTorch's headers" in heavy.basis
    assert "headers" not in plain.basis


def test_kernels_that_were_measured_elsewhere_count_with_their_own_time() -> None:
    unknown = AskedBuild(cubins=("9.0",), device_compiles=10)
    measured = replace(unknown, known_kernels=10, known_kernels_s=2000.0)
    said = counted(measured, 2)
    least, most = known(said)
    assert 1000.0 == least < most < 2 * least
    assert "10 of them took 2,000 s elsewhere" in said.basis
    assert counted(replace(measured, longest_known_s=300.0), 64).amount == 300.0
    some, _ = known(counted(replace(measured, device_compiles=11), 2))
    assert 1000.0 < some < 1000.0 + known(counted(unknown, 2))[0]


def test_a_build_that_compiles_one_file_at_a_time_does_not_use_more_cpus() -> None:
    asked = AskedBuild(host_compiles=8, one_at_a_time=True)
    assert counted(asked, 16).amount == counted(asked, 1).amount
    assert "one file at a time" in counted(asked, 16).basis


def test_each_further_target_takes_time_but_not_that_of_the_headers_again() -> None:
    (one, one_most), (four, four_most) = (
        known(counted(AskedBuild(cubins=archs, device_compiles=4), 1))
        for archs in (("9.0",), ("8.0", "8.6", "9.0", "10.0"))
    )
    assert 1.5 * one < four < 4 * one
    assert four_most == pytest.approx(4 * one_most)


def test_heavy_steps_belong_to_their_project_and_agree_with_the_text() -> None:
    flash3 = subject("h100", tree=extension_tree("flash-attn-3"))
    (heavy,) = heavy_steps(flash3)
    assert estimate(flash3).largest_step_bytes.amount == heavy.peak_bytes == 18_000_000_000
    assert heavy_steps(subject("h100", tree=extension_tree("my_kernels"))) == ()
