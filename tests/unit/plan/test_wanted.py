"""The variant's name and the options given separately: precedence and origins."""

from collections.abc import Mapping

import pytest

from stoker.model.errors import UsageError
from stoker.model.setting import Origin, OriginKind
from stoker.model.variant import Feature, Platform, Variant
from stoker.plan.subject import wanted_variant
from subjects import COMMAND_LINE, linux

FILE = Origin(kind=OriginKind.FILE, where="stoker.toml:3")
ENVIRONMENT = Origin(kind=OriginKind.ENVIRONMENT, where="STOKER_BLAS")
DEFAULT = Origin(kind=OriginKind.DEFAULT)


def wanted(
    words: str,
    parts: Mapping[str, tuple[str, Origin]] | None = None,
    features: tuple[tuple[str, Origin], ...] = (),
    said: Origin = COMMAND_LINE,
) -> tuple[Variant, dict[str, Origin]]:
    return wanted_variant((words, said), parts=parts or {}, features=features, machine=linux())


def test_what_is_left_open_is_filled_from_anywhere() -> None:
    variant, origins = wanted("cpu", {"blas": ("openblas", FILE), "python": ("3.12", ENVIRONMENT)})
    assert (variant.blas, variant.python) == ("openblas", "3.12")
    assert (origins["blas"], origins["python"]) == (FILE, ENVIRONMENT)


@pytest.mark.parametrize("weaker", [FILE, ENVIRONMENT])
def test_the_name_wins_over_file_and_environment(weaker: Origin) -> None:
    variant, origins = wanted("cpu-mkl-debug", {"blas": ("openblas", weaker)})
    assert variant.blas == "mkl"
    assert origins["blas"].kind is OriginKind.VARIANT


def test_the_command_line_wins_over_the_name() -> None:
    said = {"blas": ("OpenBLAS", COMMAND_LINE), "platform": ("linux-aarch64", COMMAND_LINE)}
    variant, origins = wanted("cpu-mkl", said)
    assert variant.blas == "openblas"
    assert variant.platform == Platform(os="linux", cpu="aarch64")
    assert origins["blas"] == origins["platform"] == COMMAND_LINE


def test_the_origin_says_the_variant_and_where_it_was_said() -> None:
    assert str(wanted("cpu-avx2")[1]["cpu"]) == "variant cpu-avx2"
    assert str(wanted("cpu-avx2", said=FILE)[1]["cpu"]) == "variant cpu-avx2 (stoker.toml:3)"
    assert str(wanted("native", said=DEFAULT)[1]["backend"]) == "default native"


def test_only_parts_that_were_asked_for_have_an_origin() -> None:
    assert set(wanted("cpu")[1]) == {"backend"}
    assert set(wanted("cu130-sm90-py312")[1]) == {"backend", "toolkit", "gpus", "python"}


def test_features_add_up() -> None:
    variant, _ = wanted("cpu-nokineto", features=(("lto", FILE), ("nogloo", COMMAND_LINE)))
    assert variant.features == (
        Feature(name="gloo", on=False),
        Feature(name="kineto", on=False),
        Feature(name="lto"),
    )


def test_a_feature_of_the_name_is_overridden_by_the_command_line_alone() -> None:
    assert wanted("cpu-nogloo", features=(("gloo", FILE),))[0].features[0].on is False
    assert wanted("cpu-nogloo", features=(("gloo", COMMAND_LINE),))[0].features[0].on is True


def test_the_stronger_of_two_features_wins() -> None:
    """They come weakest first: a named variant's entry after the file's defaults."""
    later = Origin(kind=OriginKind.FILE, where="stoker.toml:9")
    variant, _ = wanted("cpu", features=(("gloo", FILE), ("nogloo", later)))
    assert variant.features == (Feature(name="gloo", on=False),)


@pytest.mark.parametrize(
    ("part", "text", "says"),
    [
        ("blas", "opneblas", "unknown blas 'opneblas'"),
        ("build_type", "Debgu", "unknown build type 'Debgu'"),
        ("platform", "beos-x86_64", "unknown platform"),
    ],
)
def test_a_wrong_part_says_where_it_stands(part: str, text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says) as refused:
        wanted("cpu", {part: (text, FILE)})
    assert refused.value.where == "stoker.toml:3"


def test_a_wrong_feature_says_where_it_stands() -> None:
    with pytest.raises(UsageError) as refused:
        wanted("cpu", features=(("nccll", FILE),))
    assert refused.value.where == "stoker.toml:3"
    assert "nccl" in refused.value.hints[0]


def test_a_part_that_loses_is_not_even_read() -> None:
    """The file names an unknown BLAS; it is ignored, because the variant names another."""
    assert wanted("cpu-mkl", {"blas": ("whatever", FILE)})[0].blas == "mkl"
