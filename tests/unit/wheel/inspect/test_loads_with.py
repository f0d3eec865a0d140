"""Which releases of PyTorch a library loads with: symbols read from real files, and resolved."""

import re
import sys
from ctypes.util import find_library
from pathlib import Path

import pytest

from built_libraries import build
from conftest import Need
from stoker.knowledge.torch_symbols import TorchBuild
from stoker.model.artifact import LoadsWith, Symbols, TorchFit
from stoker.outside import process
from stoker.outside.demangle import demangled
from stoker.wheel.elf.elf import Elf
from stoker.wheel.elf.tables import dynamic_symbols
from stoker.wheel.inspect.loads_with import (
    ReadTorch,
    TorchNeeds,
    loads_with,
    torch_needs,
)
from stoker.wheel.inspect.loads_with_words import releases_in_words
from stoker.wheel.reader import open_file

OLD_CHECK = "_ZN3c104cuda29c10_cuda_check_implementationEiPKcS2_ib"  # until 2.9
SOURCE = """
#include <cstdio>
namespace c10 { void present(int); extern int variable; }
namespace at { __attribute__((weak)) void optional(); }
static int hidden() { return c10::variable; }
void exported() { c10::present(hidden()); if (at::optional) std::puts("x"); }
__attribute__((visibility("hidden"))) void internal() {}
"""


def _symbols(path: Path) -> Symbols:
    with open_file(path) as reader:
        return dynamic_symbols(Elf(reader))


def test_reading_agrees_with_nm(need: Need, tmp_path: Path) -> None:
    found = _symbols(build(need, tmp_path, source=SOURCE))
    listed = process.check([need("nm"), "-D", tmp_path / "libmill.so"], timeout=60)
    rows = [re.fullmatch(r"([0-9a-f]+)? +(\w) (\S+)", line) for line in listed.splitlines()]
    kinds = {row[3]: row[2] for row in rows if row}
    assert found.exported == {name for name, kind in kinds.items() if kind not in "Uwv"}
    unversioned = {name for name, kind in kinds.items() if kind == "U" and "@" not in name}
    assert found.undefined == unversioned == {"_ZN3c107presentEi", "_ZN3c108variableE"}


def test_reading_a_library_of_python() -> None:
    import _ctypes

    if not (path := getattr(_ctypes, "__file__", None)):
        pytest.skip(f"{sys.executable} has no extension modules")
    assert "PyInit__ctypes" in _symbols(Path(path)).exported


def _library(
    file: str, needed: tuple[str, ...], undefined: str = "", exported: str = ""
) -> Symbols:
    return Symbols(
        file=file,
        machine="x86_64",
        needed=needed,
        exported=frozenset(exported.split()),
        undefined=frozenset(undefined.split()),
    )


def test_what_a_wheel_needs_from_pytorch() -> None:
    needs = torch_needs(
        [
            _library("_C.so", ("libc10.so", "libown.so"), "_ZN2at1aEv _ZN2at1bEv _ZN3own1cEv"),
            _library("libown.so", (), exported="_ZN2at1bEv"),
        ]
    )
    assert needs == TorchNeeds(machine="x86_64", libraries=("libc10.so",), symbols=("_ZN2at1aEv",))


def test_what_a_module_beside_exports_is_not_found() -> None:
    """Python loads each module for itself, so only needed libraries are searched."""
    needs = torch_needs(
        [
            _library("_C.so", ("libc10.so",), "_ZN2at1bEv"),
            _library("image.so", ("libc10.so",), exported="_ZN2at1bEv"),
        ]
    )
    assert needs is not None
    assert needs.symbols == ("_ZN2at1bEv",)


def test_libraries_without_pytorch_and_pytorch_itself() -> None:
    assert torch_needs([_library("_C.so", ("libc.so.6",), "_ZN2at1aEv")]) is None
    own = [_library("libtorch_cpu.so", ("libc10.so",)), _library("libc10.so", ())]
    assert torch_needs(own) is None


def test_an_official_release_that_lacks_a_symbol() -> None:
    needs = TorchNeeds(machine="x86_64", libraries=("libc10_cuda.so",), symbols=(OLD_CHECK,))
    found = loads_with(needs)
    by_release = {fit.release: fit for fit in found.builds}
    assert found.back_end == "CUDA"
    assert by_release["2.9.1"].loads
    assert by_release["2.13.0"].missing == (OLD_CHECK,)


def test_a_build_without_the_back_end() -> None:
    needs = TorchNeeds(machine="aarch64", libraries=("libc10.so", "libc10_cuda.so"), symbols=())
    fits = [fit for fit in loads_with(needs).builds if fit.cuda is None]
    assert fits
    assert all(fit.absent == ("libc10_cuda.so",) and not fit.loads for fit in fits)


def test_a_build_that_was_read() -> None:
    torch = TorchBuild(release="2.99.0+mine", machine="x86_64", libraries=("libc10.so",))
    read = ReadTorch(build=torch, place="/a/torch", exported=frozenset({"_ZN2at1aEv"}))
    needs = TorchNeeds(
        machine="x86_64", libraries=("libc10.so",), symbols=("_ZN2at1aEv", "_ZN2at1bEv")
    )
    fit = loads_with(needs, [read]).builds[-1]
    assert fit == TorchFit(release="2.99.0+mine", torch="/a/torch", missing=("_ZN2at1bEv",))


def _loads(good: str, bad: str = "", *, stable: bool = False) -> LoadsWith:
    fits = [TorchFit(release=one) for one in good.split()]
    fits += [TorchFit(release=one, missing=("x",)) for one in bad.split()]
    fits.sort(key=lambda fit: [int(part) for part in fit.release.split(".")])
    return LoadsWith(symbols=1, stable_abi=stable, builds=tuple(fits))


@pytest.mark.parametrize(
    ("loads", "words"),
    [
        (_loads("2.10.0 2.11.0 2.12.0 2.12.1", "2.9.1"), "torch 2.10 to 2.12"),
        (_loads("2.9.0 2.9.1", "2.8.0 2.10.0"), "torch 2.9"),
        (_loads("2.9.1", "2.9.0"), "torch 2.9.1"),
        (_loads("2.4.0 2.6.0", "2.5.0"), "torch 2.4, 2.6"),
        (_loads("", "2.4.0 2.5.0 2.6.0"), "none of torch 2.4 to 2.6"),
        (_loads("2.10.0 2.11.0", "2.9.1", stable=True), "torch 2.10 and newer"),
        (_loads("2.4.0", "2.5.0", stable=True), "torch 2.4"),
    ],
)
def test_releases_in_words(loads: LoadsWith, words: str) -> None:
    assert releases_in_words(loads) == words


def test_builds_without_the_back_end_are_not_counted() -> None:
    cpu = TorchFit(release="2.13.0", absent=("libc10_cuda.so",))
    cuda = TorchFit(release="2.12.0", cuda="13")
    loads = LoadsWith(symbols=1, stable_abi=False, back_end="CUDA", builds=(cuda, cpu))
    assert releases_in_words(loads) == "torch 2.12"


def test_demangling() -> None:
    name = "c10::cuda::c10_cuda_check_implementation(int, char const*, char const*, int, bool)"
    assert demangled(OLD_CHECK) == (name if find_library("stdc++") else OLD_CHECK)
    assert demangled("aoti_torch_get_data_ptr") == "aoti_torch_get_data_ptr"
    assert demangled("_Znonsense") == "_Znonsense"
