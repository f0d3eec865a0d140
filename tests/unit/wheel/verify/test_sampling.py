"""Machine code, read by objdump: from printed lines, and from libraries made here."""

import platform
import shutil
from pathlib import Path

import pytest

from built_libraries import build
from conftest import Need, missing
from stoker.knowledge.cpus import beyond
from stoker.wheel.inspect.facts import read_library_file
from stoker.wheel.verify import cpu_level
from stoker.wheel.verify.cpu_level import LocalFunctions, look_through, read_code
from stoker.wheel.verify.tested import CodeSample
from stoker.wheel.zip import open_wheel
from wheel_files import make_wheel, members, wheel_bytes

PRINTED = """

libmill.so:     file format elf64-x86-64


Disassembly of section .text:

0000000000001000 <grind+0x10>:
    1000:\tvaddps %zmm0,%zmm0,%zmm0
0000000000001040 <grind>:
    1040:\tvmovups (%rdi),%zmm0
    1046:\tvaddps %zmm0,%zmm0,%zmm0
    104c:\tret
0000000000001050 <sift>:
    1050:\tvaddps %ymm0,%ymm0,%ymm0
    1054:\tcall   1040 <grind>
"""
MACHINE = platform.machine()
# An instruction that not every CPU of the family has, and a CPU that does not have it.
SPECIAL = {
    "x86_64": ("vaddps %zmm0,%zmm0,%zmm0", "avx2"),
    "aarch64": (".arch_extension sve\\n add z0.s, z0.s, z0.s", "armv8"),
}


def test_functions_count_from_their_start() -> None:
    functions, uses = look_through(PRINTED, beyond("avx2"), LocalFunctions({}))
    assert functions == 2
    assert [(use.function, use.line) for use in uses] == [("grind", "vmovups (%rdi),%zmm0")]


def test_what_the_cpu_has_is_no_use() -> None:
    assert look_through(PRINTED, beyond("avx512"), LocalFunctions({})) == (2, [])
    _, uses = look_through(PRINTED, beyond("x86_64_v2"), LocalFunctions({}))
    assert {(use.function, use.instruction_set) for use in uses} == {
        ("grind", "AVX-512"),
        ("sift", "AVX"),
    }


def _sampled(need: Need, folder: Path, source: str, *flags: str) -> CodeSample:
    need("objdump")
    made = build(need, folder, *flags, source=source)
    contents = {**members(), "mill/lib/libmill.so": made.read_bytes()}
    facts = read_library_file(made, "mill/lib/libmill.so")
    assert facts is not None
    with open_wheel(make_wheel(folder, wheel_bytes(contents))) as wheel:
        (sample,) = read_code(wheel, [facts], beyond(SPECIAL[MACHINE][1]))
    return sample


@pytest.fixture
def special() -> str:
    if MACHINE not in SPECIAL:
        missing(f"this test knows no special instruction of {MACHINE}")
    return f'asm volatile("{SPECIAL[MACHINE][0]}");'


def test_a_library_is_read_to_the_end(need: Need, tmp_path: Path, special: str) -> None:
    source = f'extern "C" void grind() {{ {special} }} extern "C" void sift() {{}}'
    sample = _sampled(need, tmp_path, source)
    assert sample.named
    assert sample.read == sample.size > 0
    assert sample.functions >= 2
    assert [use.function for use in sample.uses] == ["grind"]


def test_the_source_of_a_local_function_is_known(need: Need, tmp_path: Path, special: str) -> None:
    code = f"static __attribute__((noinline, used)) void grind() {{ {special} }}"
    sample = _sampled(need, tmp_path, code)
    assert [(use.file, use.copies) for use in sample.uses] == [("libmill.so.cpp", False)]


def test_a_source_compiled_twice_is_a_choice(need: Need, tmp_path: Path, special: str) -> None:
    code = f"static __attribute__((noinline, used)) void grind() {{ {special} }}"
    (tmp_path / "again").mkdir()
    again = build(need, tmp_path / "again", "-c", source=code, name="libmill.so")
    sample = _sampled(need, tmp_path, code, str(again))
    assert [use.copies for use in sample.uses] == [True, True]


def test_without_symbols_functions_have_no_names(need: Need, tmp_path: Path, special: str) -> None:
    sample = _sampled(need, tmp_path, f'extern "C" void grind() {{ {special} }}', "-s")
    assert not sample.named
    assert sample.uses


def test_a_large_library_is_read_in_stretches(
    need: Need, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_level, "_STRETCH", 64)
    monkeypatch.setattr(cpu_level, "_MOST_STRETCHES", 3)
    functions = "".join(f'extern "C" int f{i}(int x) {{ return x * {i}; }}' for i in range(200))
    sample = _sampled(need, tmp_path, functions)
    assert 0 < sample.read <= 3 * 64 < sample.size


def test_without_time_nothing_is_read(
    need: Need, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu_level, "_TIMEOUT_S", -1.0)
    made = read_library_file(build(need, tmp_path), "mill/lib/libmill.so")
    assert made is not None
    with open_wheel(make_wheel(tmp_path)) as wheel:
        assert read_code(wheel, [made], ()) == ()


def test_without_objdump_it_is_said(
    need: Need, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = read_library_file(build(need, tmp_path), "mill/lib/libmill.so")
    assert made is not None
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with open_wheel(make_wheel(tmp_path)) as wheel:
        (sample,) = read_code(wheel, [made], ())
    assert sample.problem == f"no objdump for {made.machine} was found"
