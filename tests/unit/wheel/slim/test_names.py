"""What a slimmed wheel is called, what it says of itself, and whose libraries are left alone."""

import pytest

from stoker.model.errors import ArtifactError
from stoker.model.slimming import SlimRecord
from stoker.model.variant import GpuTarget
from stoker.wheel.inspect.origins import is_nvidias_library
from stoker.wheel.slim.files import (
    decode_record,
    encode_record,
    is_nvidia_distribution,
    make_record,
)
from stoker.wheel.slim.selection import SlimRequest
from stoker.wheel.slim.wheel import new_label
from stoker.wheel.zip.revision import new_version


@pytest.mark.parametrize(
    ("version", "previous", "expected"),
    [
        ("2.9.1", None, "2.9.1+sm90"),
        ("2.9.1+cu128", None, "2.9.1+cu128.sm90"),
        ("2.9.1+cu128.sm86.sm90", "sm86.sm90", "2.9.1+cu128.sm90"),
        ("2.9.1+sm86.sm90", "sm86.sm90", "2.9.1+sm90"),
        ("2.9.1+cu128", "sm86", "2.9.1+cu128.sm90"),
        ("2.9.1+mysm86", "sm86", "2.9.1+mysm86.sm90"),
        ("1.0a1.post2.dev3", None, "1.0a1.post2.dev3+sm90"),
    ],
)
def test_the_label_goes_to_the_end(version: str, previous: str | None, expected: str) -> None:
    assert new_version(version, new_label([version], "sm90", previous)) == expected


@pytest.mark.parametrize("said", [[], [""], ["two"]])
def test_no_version(said: list[str]) -> None:
    with pytest.raises(ArtifactError, match="no version"):
        new_label(said, "sm90", None)


def test_the_note_is_read_again() -> None:
    record = SlimRecord(targets=("8.6+ptx", "9.0"), label="sm86.ptx.sm90")
    assert record.gpus == (GpuTarget(arch="8.6", ptx=True), GpuTarget(arch="9.0"))
    assert decode_record(encode_record(record)) == record
    assert decode_record(b"{}") is None
    assert decode_record(b"\xff") is None
    assert decode_record(b'{"targets": ["ninety"], "label": "x"}') is None


def test_what_is_private_stays_private() -> None:
    request = SlimRequest(gpus=(GpuTarget(arch="9.0"),))
    before = SlimRecord(targets=("8.6",), label="sm86", private=True)
    assert make_record(request, [], before).private
    assert not make_record(request, [], None).private


def test_whose_library_it_is() -> None:
    assert is_nvidias_library("nvidia/cublas/lib/libcublasLt.so.12", None)
    assert is_nvidias_library("torch/lib/x.so", "libcudnn_graph.so.9")
    assert is_nvidias_library("mill.libs/libcudart-7bdba2b5.so.13", "libcudart-7bdba2b5.so.13")
    assert is_nvidias_library("mill.libs/libnvjpeg.8dd2b5e6.so.12", None)
    assert not is_nvidias_library("torch/lib/libtorch_cuda.so", "libtorch_cuda.so")
    assert is_nvidia_distribution("nvidia_cublas_cu12")
    assert not is_nvidia_distribution("torch")
