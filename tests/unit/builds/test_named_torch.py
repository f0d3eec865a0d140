"""The PyTorch that a user names for a build: where it comes from, and which CUDA it has."""

from pathlib import Path

import pytest

from stoker.builds.named_torch import NamedTorch, check_toolkit, index_for
from stoker.model.errors import UsageError
from stoker.model.variant import Backend, Variant

CUDA = Variant(backend=Backend.CUDA, toolkit="12.8")
INDEX = "https://example.org/whl/{cuda}"


@pytest.mark.parametrize(
    ("variant", "address"),
    [
        (CUDA, "https://example.org/whl/cu128"),
        (Variant(), "https://example.org/whl/cpu"),
        (Variant(backend=Backend.ROCM, toolkit="6.4"), "https://example.org/whl/rocm6.4"),
    ],
)
def test_an_index_is_that_of_the_variant(variant: Variant, address: str) -> None:
    assert index_for(INDEX, variant) == address


@pytest.mark.parametrize(
    ("address", "variant", "message"),
    [
        (INDEX, Variant(backend=Backend.CUDA), "needs the CUDA release"),
        ("--find-links=x", CUDA, "not an address"),
        ("https://example.org/a b", CUDA, "not an address"),
    ],
)
def test_an_index_that_cannot_be_used_is_refused(
    address: str, variant: Variant, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        index_for(address, variant)


def test_the_words_of_pip_name_one_index() -> None:
    named = NamedTorch(name="2.9.1", index="https://example.org/whl/cu128")
    assert named.pip_words == ("--index-url", "https://example.org/whl/cu128", "torch==2.9.1")
    assert NamedTorch(name="torch>=2").pip_words == ("torch>=2",)


@pytest.mark.parametrize(
    ("line", "variant", "message"),
    [
        ("cuda: Optional[str] = '12.8'", CUDA, None),
        ("cuda = '12.6'", CUDA, None),  # PyTorch compares major numbers
        ("cuda: Optional[str] = '13.0'", CUDA, "is for CUDA 13.0, and the variant is cu128"),
        ("cuda: Optional[str] = None", CUDA, "has no CUDA, and the variant is cu128"),
        ("cuda: Optional[str] = None", Variant(backend=Backend.CUDA), "has no CUDA"),
        ("cuda: Optional[str] = '13.0'", Variant(), None),
    ],
)
def test_a_pytorch_of_another_cuda_is_refused(
    tmp_path: Path, line: str, variant: Variant, message: str | None
) -> None:
    package = tmp_path / "lib/python3.12/site-packages/torch"
    package.mkdir(parents=True)
    (package / "version.py").write_text(f"__version__ = '2.9.1'\n{line}\n")
    if message is None:
        check_toolkit(tmp_path, variant)
        return
    with pytest.raises(UsageError, match=message):
        check_toolkit(tmp_path, variant)
