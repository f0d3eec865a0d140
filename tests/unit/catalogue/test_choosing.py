"""Wheels that are installed together: PyTorch and its extensions in step."""

from typing import Any

import pytest

from catalogue_wheels import host, published
from stoker.catalogue.choosing import NoVariantError, choose, read_words
from stoker.catalogue.document import with_wheels
from stoker.catalogue.values import PublishedCatalogue, PublishedWheel
from stoker.model.artifact import CxxAbi
from stoker.model.errors import UsageError

H100 = host("H100", "9.0")


def catalogue(*wheels: PublishedWheel) -> PublishedCatalogue:
    return with_wheels(PublishedCatalogue(), wheels)


def chosen(found: PublishedCatalogue, *words: str) -> list[str]:
    selection = choose(H100, found, read_words(words, found))
    return [f"{wheel.project} {wheel.version}" for wheel in selection.wheels]


def extension(variant: str = "cu128-sm90", **changes: Any) -> PublishedWheel:
    return published(variant, **{"project": "flash-attn", "version": "2.8.3", **changes})


def test_a_version_that_is_asked_for() -> None:
    found = catalogue(published("cu128-sm90"), published("cu128-sm90", version="2.10.0"))
    assert chosen(found, "torch") == ["torch 2.10.0+cu128.sm90"]
    assert chosen(found, "torch==2.9.1") == ["torch 2.9.1+cu128.sm90"]
    assert chosen(found, "torch<2.10") == ["torch 2.9.1+cu128.sm90"]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"torch": "2.9"}, "it was built for torch 2.9, not 2.10.0"),
        ({"requires": ("torch==2.9.1",)}, "it requires torch==2.9.1, not torch 2.10.0"),
        ({"cuda": "12.9"}, "it is for CUDA 12.9"),
        ({"cxx_abi": CxxAbi.OLD}, "its C++ ABI is pre-cxx11"),
    ],
)
def test_extensions_that_do_not_match(changes: dict[str, Any], reason: str) -> None:
    found = catalogue(published("cu128-sm90", version="2.10.0"), extension(**changes))
    with pytest.raises(NoVariantError, match="do not match") as raised:
        chosen(found, "torch", "flash-attn")
    assert any(reason in hint for hint in raised.value.hints)


def test_the_stable_abi_counts_more_than_a_label() -> None:
    torch = published("cu128-sm90", version="2.10.0")
    both = ["torch 2.10.0+cu128.sm90", "flash-attn 2.8.3+cu128.sm90"]
    found = catalogue(torch, extension(torch="2.9", stable_abi=True))
    assert chosen(found, "torch", "flash-attn") == both


def test_symbols_alone_do_not_override_a_label() -> None:
    """torchvision 0.23 finds its symbols in torch 2.9 and aborts: the layout of objects differs."""
    torch = published("cu128-sm90", version="2.10.0")
    found = catalogue(torch, extension(torch="2.9", loads_with=("2.9.1", "2.10.0")))
    with pytest.raises(NoVariantError, match="do not match"):
        chosen(found, "torch", "flash-attn")


def test_an_older_torch_that_the_extension_was_built_for() -> None:
    found = catalogue(
        published("cu128-sm90", version="2.10.0"),
        published("cu128-sm90", version="2.9.1"),
        extension(torch="2.9"),
    )
    both = ["torch 2.9.1+cu128.sm90", "flash-attn 2.8.3+cu128.sm90"]
    assert chosen(found, "flash-attn", "torch") == both


def test_what_a_wheel_requires_comes_from_the_catalogue_too() -> None:
    """So a package of that name on another index cannot take its place."""
    found = catalogue(published("cu128-sm90"), extension(requires=("torch", "einops")))
    assert chosen(found, "flash-attn") == ["flash-attn 2.8.3+cu128.sm90", "torch 2.9.1+cu128.sm90"]


def test_requirements_for_other_systems_and_extras_do_not_count() -> None:
    lines = ("torch; sys_platform == 'win32'", "torch; extra == 'dev'", "not a requirement ]")
    found = catalogue(published("cu128-sm80"), extension(requires=lines))
    assert chosen(found, "flash-attn") == ["flash-attn 2.8.3+cu128.sm90"]


def test_the_same_variant_is_preferred() -> None:
    found = catalogue(
        published("cu128-sm90-avx512"),
        extension("cu128-sm90", size_bytes=1),
        extension("cu128-sm90-avx512", size_bytes=2),
    )
    assert chosen(found, "torch", "flash-attn")[1] == "flash-attn 2.8.3+cu128.sm90.avx512"


def test_nothing_runs() -> None:
    found = catalogue(published("cu128-sm80"), published("cu128-sm75"))
    with pytest.raises(NoVariantError, match="no variant of torch runs here") as raised:
        chosen(found, "torch")
    assert "cu128-sm80: H100 (9.0) cannot run what it holds: sm_80" in raised.value.hints


def test_words_that_name_nothing() -> None:
    found = catalogue(published("cu128-sm90"), extension())
    with pytest.raises(UsageError, match="unknown project 'flash-atn'") as raised:
        read_words(["flash-atn"], found)
    assert "flash-attn" in raised.value.hints[0]
    with pytest.raises(UsageError, match="has no torch==9") as raised:
        chosen(found, "torch==9")
    assert "2.9.1" in raised.value.hints[0]
    with pytest.raises(UsageError, match="is not a requirement"):
        read_words(["torch =! 2"], found)
    with pytest.raises(UsageError, match="is a URL"):
        read_words(["torch @ https://example.org/torch.whl"], found)
    assert [one.name for one in read_words([], found)] == ["torch"]
    with pytest.raises(UsageError, match="which project"):
        read_words([], catalogue())
