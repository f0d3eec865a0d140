"""Properties of the model's values."""

import tomllib

import msgspec
import pytest

from stoker.model.govern import Role, Step
from stoker.model.source import CMakeOption, OptionKind
from stoker.model.value import duration, size, toml_value, version_numbers
from stoker.model.variant import GpuTarget, Platform, Variant
from subjects import linux, mac, pytorch_tree, zen4

MIB = 1024**2


@pytest.mark.parametrize(
    ("affinity", "quota", "usable"),
    [(8, None, 8), (8, 2.9, 2), (8, 0.5, 1), (2, 64.0, 2), (1, None, 1)],
)
def test_usable_cpus_respect_affinity_and_quota(
    affinity: int, quota: float | None, usable: int
) -> None:
    assert zen4(affinity=affinity, quota=quota).usable == usable


def test_a_platform_says_arm64_on_macos_and_aarch64_elsewhere() -> None:
    assert str(mac().platform) == "macos-arm64"
    assert str(linux(cpu=zen4(family="aarch64")).platform) == "linux-aarch64"
    assert str(linux().platform) == "linux-x86_64"


@pytest.mark.parametrize(
    ("arch", "capability", "suffix"),
    [("9.0", (9, 0), ""), ("9.0a", (9, 0), "a"), ("10.3f", (10, 3), "f"), ("12.1", (12, 1), "")],
)
def test_a_cuda_target_in_parts(arch: str, capability: tuple[int, int], suffix: str) -> None:
    target = GpuTarget(arch=arch)
    assert (target.capability, target.suffix) == (capability, suffix)


def test_targets_sort_by_number() -> None:
    archs = ["12.0", "9.0a", "10.0", "8.6", "9.0"]
    ordered = sorted((GpuTarget(arch=arch) for arch in archs), key=lambda target: target.sort_key)
    assert [target.arch for target in ordered] == ["8.6", "9.0", "9.0a", "10.0", "12.0"]


def test_a_variant_survives_json() -> None:
    variant = Variant(
        gpus=(GpuTarget(arch="9.0a", ptx=True),), platform=Platform(os="linux", cpu="aarch64")
    )
    assert msgspec.json.decode(msgspec.json.encode(variant), type=Variant) == variant


def test_an_option_outside_any_if_is_preferred() -> None:
    def declared(line: int, within: str | None) -> CMakeOption:
        return CMakeOption(
            name="USE_X",
            kind=OptionKind.OPTION,
            type="BOOL",
            default="ON",
            help="",
            file="CMakeLists.txt",
            line=line,
            within=within,
        )

    tree = pytorch_tree(options=(declared(1, "WIN32"), declared(2, None), declared(3, None)))
    found = tree.option("USE_X")
    assert found is not None
    assert found.line == 2
    assert tree.option("USE_Y") is None


@pytest.mark.parametrize(
    ("amount", "words"),
    [
        (0, "0 B"),
        (12, "12 B"),
        (1024, "1.0 KiB"),
        (1.5 * 1024**3, "1.5 GiB"),
        (283 * MIB, "283 MiB"),
        (3 * 1024**4, "3.0 TiB"),
    ],
)
def test_sizes_in_words(amount: float, words: str) -> None:
    assert size(amount) == words


def test_a_size_that_fits_into_no_float_is_text_too() -> None:
    assert size(10**400).endswith(" TiB")


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "0 s"),
        (8.9, "8 s"),
        (129, "2 min 9 s"),
        (720, "12 min"),
        (3600, "1 h 0 min"),
        (5760, "1 h 36 min"),
    ],
)
def test_durations_in_words(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_a_step_is_called_by_its_path_below_its_build_folder() -> None:
    link = Step(key="", role=Role.LINK, source="/b/libx.so", output="libx.so", directory="/b")
    assert link.title == "libx.so"
    assert Step(key="", role=Role.CXX, source="src/a.cpp", directory="/b").title == "src/a.cpp"
    assert Step(key="", role=Role.OTHER, compiler="python3", directory="/b").title == "python3"


@pytest.mark.parametrize(
    "value",
    [
        "\U0001f642",
        "\x7f\0\n\t",
        'a "quote" and a \\',
        12,
        0.5,
        True,
        [],
        ["a", ["b"]],
        {"a b": {"c-d": 1}},
    ],
)
def test_a_value_is_read_back_from_toml(value: object) -> None:
    assert tomllib.loads(f"value = {toml_value(value)}")["value"] == value


def test_toml_has_no_none() -> None:
    assert toml_value({"here": "", "not": None}) == '{ here = "" }'


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("3.4.9", "3.4.30"),
        ("12.8", "12.8.1"),
        ("12", "12.1"),
        ("3.13t", "3.14"),
        ("1.12.1", "1.13.0.git.kitware.jobserver-pipe-1"),
        ("not a version", "0.1"),
        ("99", "1" + "0" * 10_000),
    ],
)
def test_versions_are_compared_by_their_numbers(older: str, newer: str) -> None:
    assert version_numbers(older) < version_numbers(newer)
    assert version_numbers(newer) == version_numbers(f"{newer}+local")


def test_zeros_at_the_end_of_a_version_do_not_count() -> None:
    assert version_numbers("12.0") == version_numbers("12") == (12,)
    assert version_numbers("0") == version_numbers("") == ()
