"""Wheel variants of the draft standards: properties, labels and the JSON that installers read; and
the wheels of indexes that others have made.
"""

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from packaging.requirements import Requirement

from catalogue_wheels import host, make_wheel, published
from stoker.catalogue.access import LocatedCatalogue, locate
from stoker.catalogue.foreign_wheels import without_label
from stoker.catalogue.publishing import read_providers
from stoker.catalogue.ranking import rank
from stoker.catalogue.values import WHEEL_VARIANTS, CodeRegions, Fit
from stoker.catalogue.wheel_variants import label_of, properties_of, variant_json, variants_files
from stoker.model.errors import ArtifactError, UsageError

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
        ("cpu-avx2", {}, ("x86_64 :: avx2 :: on", "x86_64 :: f16c :: on", "x86_64 :: fma :: on")),
        ("cu128-sm90-v3", {}, (*SM90, "x86_64 :: level :: v3")),
        ("rocm6.4-gfx942", {}, None),
        ("xpu-pvc", {}, None),
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


def test_intel_gpus_need_a_provider_that_the_publisher_names() -> None:
    """Several names of GPUs have one number of Intel's, which is named once."""
    wheel = msgspec.structs.replace(published("xpu-pvc"), variant="xpu-dg2-ats-m150-pvc")
    providers = {"intel": "intel-variant-provider @ https://example.org/p.whl"}
    properties = properties_of(wheel, providers)
    assert properties == ("intel :: device_ip :: 12.55.8", "intel :: device_ip :: 12.60.7")
    described = msgspec.json.decode(variant_json([("xpu", properties)], providers))
    assert described["default-priorities"]["namespace"] == ["nvidia", "intel"]


@pytest.mark.parametrize("word", ["amd", "amd=a b", "apple=x", "=x"])
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


# As `variantlib generate-index-json` 0.2.2 writes it; the last three are not of its making.
DESCRIBED: dict[str, Any] = {
    "cu12_sm80": {
        "nvidia": {"cuda_version_lower_bound": ["12.0"], "sm_arch": ["80_real", "80_virtual"]}
    },
    "cu13_sm90": {"nvidia": {"cuda_version_lower_bound": ["13.0"], "sm_arch": ["90_real"]}},
    "old": {"nvidia": {"cuda_version_upper_bound": ["13.0"], "sm_arch": ["90_real"]}},
    "v3": {"x86_64": {"level": ["v3"]}},
    "amx": {"x86_64": {"amx_tile": ["on"]}},
    "null": {},
    "rocm": {"amd": {"gfx_arch": ["gfx90a", "gfx942"]}},
    "xpu": {"intel": {"device_ip": ["12.60.7"]}},
    "odd": {"fortune": {"mood": ["good"]}},
}


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A package index as a folder: a wheel for each label, one without, and one not described."""
    page = tmp_path / "mill"
    made = make_wheel(tmp_path, name="mill")
    page.mkdir()
    for label in (*DESCRIBED, "secret"):
        (page / f"{made.stem}-{label}.whl").write_bytes(made.read_bytes())
    (page / made.name).write_bytes(made.read_bytes())
    (page / "mill-1.0-variants.json").write_bytes(msgspec.json.encode({"variants": DESCRIBED}))
    return tmp_path


def located(place: Path, word: str = "mill") -> LocatedCatalogue:
    return locate(str(place), wanted=[Requirement(word)])


@pytest.mark.parametrize(
    ("gpu", "changes", "first"),
    [
        (("H100", "9.0"), {"driver": "580.65"}, "cu13_sm90"),
        (("H100", "9.0"), {"driver": "570.124"}, "old"),  # too old for CUDA 13
        (("A100", "8.0"), {}, "cu12_sm80"),
        (("L40S", "8.9"), {}, "cu12_sm80"),
        (("V100", "7.0"), {}, "v3"),
        ((), {}, "v3"),
        ((), {"cpu_features": ()}, "null"),
        (("MI300X", "gfx942"), {"driver": None}, "rocm"),
        (("Max 1550", "pvc"), {"driver": None}, "xpu"),
    ],
)
def test_choice_from_an_index_of_others(
    foreign: Path, gpu: tuple[str, str] | tuple[()], changes: dict[str, Any], first: str
) -> None:
    choices = rank(host(*gpu, **changes), located(foreign).catalogue.wheels)
    assert choices[0].wheel.variant == first
    reasons = {choice.wheel.variant: choice.reason for choice in choices if not choice.runs}
    assert "fortune :: mood :: good, which cannot be checked" in reasons["odd"]
    assert "secret" not in {choice.wheel.variant for choice in choices}


def test_a_wheel_without_label_comes_after_the_null_variant(foreign: Path) -> None:
    choices = rank(host(cpu_features=()), located(foreign).catalogue.wheels)
    running = [choice.wheel.variant for choice in choices if choice.runs]
    assert running == ["null", "without label"]


def test_the_address_of_a_wheel_of_others(foreign: Path) -> None:
    """With the hash that a page tells; a folder without a page tells none."""
    found = located(foreign)
    (wheel,) = [wheel for wheel in found.catalogue.wheels if wheel.variant == "without label"]
    address = (foreign / "mill" / wheel.file).as_uri()
    assert found.reference(wheel) == f"mill @ {address}"
    digest = hashlib.sha256((foreign / "mill" / wheel.file).read_bytes()).hexdigest()
    page = f'<a href="{wheel.file}#sha256={digest}">x</a>'
    (foreign / "mill/index.html").write_text(page)
    found = located(foreign)
    assert found.reference(found.catalogue.wheels[0]) == f"mill @ {address}#sha256={digest}"


def test_only_wanted_versions_are_read(foreign: Path) -> None:
    with pytest.raises(UsageError, match="nor a package index with wheels of mill"):
        located(foreign, "mill>=2")


def test_a_broken_description(foreign: Path) -> None:
    (foreign / "mill/mill-1.0-variants.json").write_text('{"variants": []}')
    with pytest.raises(ArtifactError, match="does not describe wheel variants"):
        located(foreign)


@pytest.mark.parametrize(
    ("file", "parts"),
    [
        ("a-1-py3-none-any.whl", ("a-1-py3-none-any.whl", None)),
        ("a-1-2-py3-none-any.whl", ("a-1-2-py3-none-any.whl", None)),  # a build number
        ("a-1-py3-none-any-x.whl", ("a-1-py3-none-any.whl", "x")),
        ("a-1-2b-py3-none-any-x.whl", ("a-1-2b-py3-none-any.whl", "x")),
        ("a.tar.gz", ("a.tar.gz", None)),
    ],
)
def test_names_with_labels(file: str, parts: tuple[str, str | None]) -> None:
    assert without_label(file) == parts


def test_own_wheels_for_gpus_of_amd_and_intel() -> None:
    wheels = [published("rocm6.4-gfx942"), published("xpu-pvc"), published("cpu")]
    for machine, best in ((host("MI300X", "gfx942"), 0), (host("Max 1100", "pvc"), 1)):
        first, *others = rank(machine, wheels)
        assert (first.wheel, first.fit) == (wheels[best], Fit.NATIVE)
        assert "and there is no such GPU" in others[-1].reason
