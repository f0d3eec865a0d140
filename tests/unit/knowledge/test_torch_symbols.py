"""The table of the symbols that PyTorch exports: its format, its content, and what is PyTorch's."""

from pathlib import Path

import pytest

from stoker.knowledge import torch_symbols
from stoker.knowledge.torch_symbols import (
    OLDEST,
    TorchBuild,
    back_end_of,
    exporters,
    is_of_shim,
    is_torch_library,
    is_torchs,
    known_builds,
    pack_symbols,
    unpack_symbols,
)
from stoker.model.distribution import read_version

OLD_CHECK = "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_ib"  # until 2.9


def _build(release: str) -> TorchBuild:
    return TorchBuild(release=release, machine="x86_64", libraries=("libc10.so",))


def test_packing_keeps_which_build_exports_a_name() -> None:
    made = unpack_symbols(pack_symbols([(_build("1.0"), {"a", "b"}), (_build("1.1"), {"b", "c"})]))
    assert [build.release for build in made.builds] == ["1.0", "1.1"]
    assert made.masks == {"a": 0b01, "b": 0b11, "c": 0b10}


def test_packing_many_different_masks() -> None:
    names = [f"name{number}" for number in range(700)]
    found = [
        (_build(str(bit)), {name for n, name in enumerate(names) if n >> bit & 1})
        for bit in range(10)
    ]
    made = unpack_symbols(pack_symbols(found))
    assert made.masks == {name: number for number, name in enumerate(names) if number}


def test_the_shipped_table_is_small_and_covers_both_machines() -> None:
    path = Path(torch_symbols.__file__).with_name("torch_symbols.xz")
    assert path.stat().st_size <= 1_500_000
    releases = [read_version(build.release) for build in known_builds()]
    assert releases == sorted(releases)
    assert releases[0] >= read_version(OLDEST)
    assert {build.machine for build in known_builds()} == {"x86_64", "aarch64"}
    assert {build.cuda for build in known_builds()} >= {None, "12", "13"}
    assert all("libtorch_cpu.so" in build.libraries for build in known_builds())
    assert all(
        ("libc10_cuda.so" in one.libraries) == (one.cuda is not None) for one in known_builds()
    )


def test_a_signature_that_changed_after_2_9() -> None:
    mask = exporters(OLD_CHECK)
    having = {build.release for place, build in enumerate(known_builds()) if mask >> place & 1}
    assert "2.9.1" in having
    assert "2.13.0" not in having


@pytest.mark.parametrize(
    "name",
    [
        OLD_CHECK,
        "_ZNK2at6Tensor4sizeEl",
        "_ZTVN5torch8autograd4NodeE",
        "_ZGVZN3c104ImplE1x",
        "_ZNR5torch7Library4_defEv",
        "_ZNSt6vectorIN2at6TensorESaIS1_EE9push_backERKS1_",
        "aoti_torch_get_data_ptr",
        "torch_library_impl",
        "THPVariableClass",
    ],
)
def test_names_of_pytorch(name: str) -> None:
    assert is_torchs(name)


@pytest.mark.parametrize(
    "name",
    [
        "_ZN6vision3nmsERKN2at6TensorES3_d",  # an own function, with a tensor
        "_ZNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEE7reserveEm",
        "_ZN9attention3runEv",
        "PyModule_Create2",
        "ncclAllReduce",
        "cublasSgemm_v2",
    ],
)
def test_names_of_others(name: str) -> None:
    assert not is_torchs(name)


def test_libraries_and_back_ends() -> None:
    assert is_torch_library("libtorch_python.so")
    assert not is_torch_library("libtorchaudio.so")
    assert not is_torch_library("libtorchcodec_core4.so")
    assert back_end_of("libc10_cuda.so") == "CUDA"
    assert back_end_of("libc10.so") is None
    assert is_of_shim("aoti_torch_get_data_ptr")
    assert not is_of_shim("THPVariableClass")
