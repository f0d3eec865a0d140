"""A plan as JSON, as a page, as a difference."""

import json
from typing import Any

import msgspec
import pytest

from stoker.model.plan import Plan, Quantity
from stoker.model.source import SourceTree
from stoker.outside.terminal import rendered, show
from stoker.plan.records import compare, plan_json
from stoker.plan.shown import differences_page, plan_page
from subjects import (
    changed,
    cmake_of,
    cmake_option,
    cmake_tree,
    environment_of,
    extension_tree,
    file_line,
    plan,
    pytorch_tree,
    unknown_estimate,
)

TREES = [None, pytorch_tree(), extension_tree(), cmake_tree()]


def decoded(planned: Plan) -> dict[str, Any]:
    """What a reader of the JSON gets."""
    value: dict[str, Any] = json.loads(msgspec.json.encode(plan_json(planned)))
    return value


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("words", ["cu124-sm90-avx512", "cpu-debug-nonccl", "cpu-armv9"])
def test_names_to_values_and_an_origin_for_each(words: str, tree: SourceTree | None) -> None:
    words = words if tree in TREES[:2] else words.replace("-nonccl", "")
    planned = plan(words, tree=tree)
    value = decoded(planned)
    assert value["environment"] == environment_of(planned)
    assert value["cmake"] == cmake_of(planned)
    assert value["variant"]["name"] == planned.name
    assert value["variant"]["backend"] in ("cuda", "cpu")
    settings = {*value["environment"], *value["cmake"]}
    assert settings <= set(value["origin"])
    assert set(planned.variant_origin) <= set(value["origin"])
    assert all(isinstance(origin, str) and origin for origin in value["origin"].values())
    assert set(value["why"]) <= settings


def test_the_request() -> None:
    planned = plan(
        "cu124-sm90-avx512",
        parts={"platform": "linux-x86_64"},
        tree=pytorch_tree(),
        defines={"USE_KINETO": "0"},
        said=file_line(7),
    )
    value = decoded(planned)
    assert value["environment"]["TORCH_CUDA_ARCH_LIST"] == "9.0"
    assert value["environment"]["USE_CUDA"] == value["cmake"]["USE_CUDA"] == "1"
    assert value["origin"]["USE_KINETO"] == "stoker.toml:7"
    assert value["origin"]["BUILD_TEST"] == "recipe pytorch"
    assert value["origin"]["TORCH_CUDA_ARCH_LIST"].startswith("variant cu124-sm90-avx512")
    assert value["platform"] == "linux-x86_64"
    assert value["label"] == "cu124.sm90.avx512"
    assert value["variant"]["gpus"] == [{"arch": "9.0", "ptx": False}]
    assert value["source"]["version"] == "2.6.0"
    assert value["estimate"]["wall_s"]["amount"] < value["estimate"]["wall_s"]["most"]


@pytest.mark.parametrize("tree", TREES)
def test_a_page_holds_every_name_and_value(tree: SourceTree | None) -> None:
    planned = plan("cu124-sm90-avx2", tree=tree)
    text = rendered(plan_page(planned))
    assert planned.name in text.splitlines()[0]
    for name, value in environment_of(planned).items():
        assert name in text
        assert value in text
    for name in cmake_of(planned):
        assert name in text
    assert "\x1b" not in text, "readable without colour"


def test_estimates_are_unknown_or_come_with_their_basis() -> None:
    estimate = unknown_estimate(
        wall_s=Quantity(amount=5400, basis="the last build"),
        wheel_bytes=Quantity(amount=283 * 1024**2, basis="the official wheel"),
    )
    text = rendered(plan_page(changed(plan("cpu"), estimate=estimate)))
    assert "about 1 h 30 min" in text
    assert "the last build" in text
    assert "about 283 MiB" in text
    assert text.count("unknown") == 2


def test_a_basis_of_several_estimates_is_told_once() -> None:
    made = plan("cu124-sm90", tree=pytorch_tree())
    basis = made.estimate.largest_step_bytes.basis
    assert basis in made.estimate.wall_s.basis
    assert rendered(plan_page(made)).count(basis) == 1


def test_remarks_stand_at_the_end() -> None:
    text = rendered(plan_page(plan("cpu-armv9")))
    assert "warn   the plan is for linux-aarch64" in text


MARKUP = ["[bold]x[/bold]", "a[/b]", "nvidia[cufile]", "[red]", "/opt:key:/usr", "[/]", "\\[x]"]


@pytest.mark.parametrize("value", MARKUP)
def test_a_value_is_shown_as_it_is(value: str) -> None:
    """Square brackets and colons mean nothing in a value, whatever the terminal library thinks."""
    planned = plan("cpu", tree=cmake_tree(), defines={"DEMO_FAST": value})
    assert f" {value} " in rendered(plan_page(planned))


def test_differences() -> None:
    before, after = plan("cpu-avx2"), plan("cu124-sm90")
    text = rendered(differences_page(compare(before, after), "cpu-avx2", "cu124-sm90"))
    lines = [line.split() for line in text.splitlines()]
    assert ["~", "USE_CUDA", "0", "1"] in lines
    assert ["+", "TORCH_CUDA_ARCH_LIST", "9.0"] in lines
    assert ["-", "CFLAGS", "-mavx2", "-mfma", "-mf16c"] in lines


def test_no_difference() -> None:
    assert rendered(differences_page((), "a", "b")).strip() == "no difference"


def test_showing_without_a_terminal_has_no_colour_and_no_narrow_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    options = (cmake_option("DEMO_" + "LONG_" * 10 + "NAME"),)
    name = options[0].name
    show(plan_page(plan("cpu", tree=cmake_tree(options=options), defines={name: "x"})))
    printed = capsys.readouterr().out
    assert "\x1b" not in printed
    assert name in printed
