"""Wheel variants of the draft standards: properties, labels and the JSON that installers read."""

import msgspec
import pytest

from catalogue_wheels import published
from stoker.catalogue.pages import label_of, properties_of, variant_json, variants_files
from stoker.catalogue.publishing import read_providers
from stoker.catalogue.values import WHEEL_VARIANTS, CodeRegions
from stoker.model.errors import UsageError

SM90 = ("nvidia :: sm_arch :: 90_real", "nvidia :: cuda_version_lower_bound :: 12.0")


@pytest.mark.parametrize(
    ("variant", "changes", "properties"),
    [
        ("cu128-sm90", {}, SM90),
        ("cu128-sm90", {"cuda": None}, SM90[:1]),
        (
            "cu128-sm80+sm120+ptx",
            {"cuda": None},
            (
                "nvidia :: sm_arch :: 120_real",
                "nvidia :: sm_arch :: 120_virtual",
                "nvidia :: sm_arch :: 80_real",
            ),
        ),
        ("cpu", {}, ()),
        (
            "cpu-avx2",
            {},
            ("x86_64 :: avx2 :: on", "x86_64 :: f16c :: on", "x86_64 :: fma :: on"),
        ),
        ("cu128-sm90-v3", {}, (*SM90, "x86_64 :: level :: v3")),
        ("rocm6.4-gfx942", {}, None),
        ("cu128-sm90", {"regions": ()}, None),
    ],
)
def test_properties(
    variant: str, changes: dict[str, object], properties: tuple[str, ...] | None
) -> None:
    assert properties_of(published(variant, **changes)) == properties


def test_amd_gpus_need_a_provider_that_the_publisher_names() -> None:
    wheel = published("rocm6.4-gfx942+gfx90a", regions=())
    providers = {"amd": "amd-variant-provider @ https://example.org/p.whl"}
    properties = properties_of(wheel, providers)
    assert properties == ("amd :: gfx_arch :: gfx90a", "amd :: gfx_arch :: gfx942")
    described = msgspec.json.decode(variant_json([("rocm", properties)], providers))
    assert described["variants"]["rocm"] == {"amd": {"gfx_arch": ["gfx90a", "gfx942"]}}
    assert described["providers"]["amd"] == {"requires": [providers["amd"]]}
    assert described["default-priorities"]["namespace"] == ["nvidia", "amd"]


@pytest.mark.parametrize("word", ["amd", "amd=a b", "intel=x", "=x"])
def test_providers_that_are_none(word: str) -> None:
    with pytest.raises(UsageError):
        read_providers([word])


def test_a_provider_of_cpu_levels_is_optional() -> None:
    """An installer that has not enabled it takes a wheel without such a property."""
    described = msgspec.json.decode(variant_json([("v3", ("x86_64 :: level :: v3",))]))
    assert described["providers"]["x86_64"]["optional"] is True
    assert "optional" not in described["providers"]["nvidia"]


def test_values_are_sorted() -> None:
    lines = ("nvidia :: sm_arch :: 90_real", "nvidia :: sm_arch :: 120_real")
    described = msgspec.json.decode(variant_json([("x", lines)]))
    assert described["variants"]["x"]["nvidia"]["sm_arch"] == ["120_real", "90_real"]


def test_kernels_for_one_chip_are_no_property() -> None:
    regions = (CodeRegions(archs=("sm_90",), count=9), CodeRegions(archs=("sm_100a",), count=1))
    assert properties_of(published("cu128-sm90", regions=regions)) == SM90


def test_the_file_beside_the_page() -> None:
    """One for each version, with all labels of it."""
    rows = [("2.8.3", "cu128-sm90", SM90), ("2.8.3", "cpu", ()), ("2.8.2", "cpu", ())]
    wheels = [
        msgspec.structs.replace(
            published("cpu", project="flash-attn"),
            version=version,
            variant=WHEEL_VARIANTS,
            file=f"flash_attn-{version}-py3-none-any-{label_of(variant, properties)}.whl",
            properties=properties,
        )
        for version, variant, properties in rows
    ]
    files = variants_files(wheels)
    assert list(files) == ["flash_attn-2.8.2-variants.json", "flash_attn-2.8.3-variants.json"]
    described = msgspec.json.decode(files["flash_attn-2.8.3-variants.json"])
    assert described["variants"] == {
        "cu128_sm90": {"nvidia": {"sm_arch": ["90_real"], "cuda_version_lower_bound": ["12.0"]}},
        "null": {},
    }
    assert described["providers"]["nvidia"]["plugin-api"].startswith("nvidia_variant_provider")
