"""The requirements of official wheels, and the libraries that open others at run time."""

import pytest
from packaging.requirements import Requirement

from stoker.knowledge.nvidia_packages import folders, keeps_name, known_cuda, opened_by, releases
from stoker.knowledge.sonames import cuda_of
from stoker.knowledge.torch_releases import torch_releases
from stoker.model.value import minor_release, version_numbers


def test_every_line_is_a_requirement_with_its_markers() -> None:
    for release in releases():
        for line in release.lines("x86_64"):
            requirement = Requirement(line)
            assert "Linux" in str(requirement.marker)
            assert "{" not in line
            assert requirement.specifier


def test_every_release_is_there_once_and_has_a_layout() -> None:
    keys = [(release.torch, release.cuda) for release in releases()]
    assert len(set(keys)) == len(keys)
    for release in releases():
        assert folders(int(release.cuda.partition(".")[0]))
    assert known_cuda() == (12, 13)


def test_both_tables_say_the_same_of_the_cuda_of_a_release() -> None:
    for release in torch_releases().values():
        listed = {row.cuda for row in releases() if minor_release(row.torch) == release.version}
        assert release.cuda_usual in listed, release.version
        newest = max(map(version_numbers, listed))
        assert newest <= version_numbers(release.cuda_newest), release.version


def test_markers_are_joined() -> None:
    release = next(row for row in releases() if row.torch == "2.15.0")
    assert release.lines("aarch64")[-1] == (
        'triton~=3.9.0; platform_system == "Linux" and python_version < "3.16"'
    )
    older = next(row for row in releases() if (row.torch, row.cuda) == ("2.9.1", "12.8"))
    assert older.lines("x86_64")[-1] == (
        'triton==3.5.1; platform_system == "Linux" and platform_machine == "x86_64"'
    )


@pytest.mark.parametrize(
    ("library", "cuda"),
    [
        ("libcudart.so.12", 12),
        ("libnvrtc.so.13", 13),
        ("libcusolver.so.12", 13),
        ("libcusolver.so.11", None),
        ("libcudart.so.11.0", 11),
        ("libcudart.so.10.2", None),
        ("libc.so.6", None),
    ],
)
def test_which_cuda_a_name_tells(library: str, cuda: int | None) -> None:
    """cuSOLVER 12 is of CUDA 13."""
    assert cuda_of(library) == cuda


def test_what_is_opened_keeps_its_name() -> None:
    """Otherwise it is never found."""
    openers = ["libcudnn.so.9", "libcublasLt.so.13", "libcufft.so.12", "libcufile.so.0"]
    openers += ["libcupti.so.13", "libcusparseLt.so.0", "libnvrtc.so.13", "libnvshmem_host.so.3"]
    for opener in openers:
        patterns = opened_by(opener, 13)
        assert patterns
        assert all(keeps_name(pattern) for pattern in patterns)


def test_patterns_follow_the_opener() -> None:
    assert opened_by("libcudnn.so.9", 12)[0] == "libcudnn_*.so.9"
    assert opened_by("libcufft.so.11", None) == ("libnvJitLink.so.*", "libnvrtc.so.*")
    assert opened_by("libnvrtc.so.12", 12) == ("libnvrtc-builtins.so.12.*",)
    assert opened_by("libm.so.6", 12) == ()
