"""Wheel variants of the draft standards: properties, labels and the JSON that installers read."""

import msgspec
import pytest

from catalogue_wheels import published
from stoker.catalogue.pages import label_of, properties_of, variants_files
from stoker.catalogue.values import WHEEL_VARIANTS, CodeRegions

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
                "nvidia :: sm_arch :: 120_virtual",
                "nvidia :: sm_arch :: 120_real",
                "nvidia :: sm_arch :: 80_real",
            ),
        ),
        ("cpu", {}, ()),
        ("cpu-avx2", {}, None),
        ("cu128-sm90-avx512", {}, None),
        ("rocm6.4-gfx942", {}, None),
        ("cu128-sm90", {"regions": ()}, None),
    ],
)
def test_properties(
    variant: str, changes: dict[str, object], properties: tuple[str, ...] | None
) -> None:
    assert properties_of(published(variant, **changes)) == properties


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
