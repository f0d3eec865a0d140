"""CPU levels and archspec's microarchitectures: flags, needs, dispatch."""

import pytest

from stoker.knowledge.cpus import (
    cpu_dispatch,
    cpu_family,
    cpu_flags,
    cpu_levels,
    cpu_names,
    microarchitectures,
)


def test_names_hold_levels_and_chips_but_no_bare_family() -> None:
    assert {"avx2", "avx512", "x86_64_v3", "zen4", "neoverse_v2", "m1"} <= set(cpu_names())
    assert not {"x86_64", "aarch64", "ppc64le", "riscv64", "i686"} & set(cpu_names())
    assert len(cpu_names()) == len(set(cpu_names()))


def test_every_name_has_a_family_and_flags_of_some_compiler() -> None:
    for name in cpu_names():
        assert cpu_family(name) in ("x86_64", "aarch64", "ppc64le", "riscv64"), name
        assert cpu_flags(name, "gcc", "99") or cpu_flags(name, "clang", "99"), name


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_an_ancient_compiler_is_refused_or_has_flags(compiler: str) -> None:
    answers = [cpu_flags(name, compiler, "3.0") for name in cpu_names()]
    assert None in answers
    for flags in filter(None, answers):
        assert all(flag.startswith("-m") for flag in flags)


@pytest.mark.parametrize(
    ("name", "compiler", "version", "flags"),
    [
        ("avx2", "gcc", "12.2.0", ("-mavx2", "-mfma", "-mf16c")),
        ("x86_64_v3", "gcc", "11.4.0", ("-march=x86-64-v3",)),
        ("x86_64_v3", "gcc", "10.2.1", None),
        ("x86_64_v3", "clang", "11.0", None),
        ("x86_64_v3", "clang", "12", ("-march=x86-64-v3",)),
        ("armv9", "gcc", "11.4", None),
        ("armv9", "gcc", "12", ("-march=armv9-a",)),
    ],
)
def test_flags_by_compiler(
    name: str, compiler: str, version: str, flags: tuple[str, ...] | None
) -> None:
    assert cpu_flags(name, compiler, version) == flags


def test_flags_of_a_chip_are_archspecs() -> None:
    flags = cpu_flags("zen4", "gcc", "13.1.0")
    assert flags is not None
    assert "-march=znver4" in flags
    assert cpu_flags("zen4", "gcc", "4.8.5") is None


@pytest.mark.parametrize(("name", "version"), [("zen4", "12.2"), ("a64fx", "10.2")])
def test_a_patch_release_is_not_newer_than_its_release(name: str, version: str) -> None:
    """archspec's ranges end in 12.2, compilers say 12.2.0, and that must not fall between."""
    flags = cpu_flags(name, "gcc", version)
    assert flags
    assert cpu_flags(name, "gcc", f"{version}.0") == flags


@pytest.mark.parametrize(
    ("name", "dispatch"),
    [
        ("avx", None),
        ("avx2", "AVX2"),
        ("avx512", "AVX512"),
        ("amx", "AVX512"),
        ("haswell", "AVX2"),
        ("skylake_avx512", "AVX512"),
        ("zen2", "AVX2"),
        ("zen4", "AVX512"),
        ("sandybridge", None),
        ("neoverse_n1", None),
    ],
)
def test_kernels_that_pytorch_has_for_a_level(name: str, dispatch: str | None) -> None:
    assert cpu_dispatch(name) == dispatch


def test_levels_need_at_least_what_their_dispatch_means() -> None:
    for level in cpu_levels().values():
        if level.dispatch == "AVX512":
            assert "avx512f" in level.needs
        if level.dispatch == "AVX2":
            assert {"avx2", "fma"} <= set(level.needs)


def test_every_feature_that_a_level_needs_is_one_of_archspec() -> None:
    known = {feature for chip in microarchitectures().values() for feature in chip.features}
    for level in cpu_levels().values():
        assert set(level.needs) <= known, level.name
