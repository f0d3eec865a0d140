"""The default builder images."""

import pytest

from stoker.knowledge.projects import builder_image


@pytest.mark.parametrize(
    ("project", "machine", "backend", "version", "end"),
    [
        ("pytorch", "x86_64", "cuda", "13.0", "manylinux2_28-builder:cuda13.0"),
        ("cmake", "aarch64", "cpu", None, "manylinux_2_28_aarch64"),
    ],
)
def test_known(project: str, machine: str, backend: str, version: str | None, end: str) -> None:
    assert (builder_image(project, machine, backend, version) or "").endswith(end)


def test_none_without_a_version_or_for_another_machine() -> None:
    assert builder_image("pytorch", "x86_64", "cuda", None) is None
    assert builder_image("cmake", "riscv64", "cpu", None) is None
    assert builder_image("extension", "x86_64", "cuda", "13.0") is None
