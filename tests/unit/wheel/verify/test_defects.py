"""The twelve defects that verify must find, each planted by real means in a wheel without any."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from conftest import find_tool, missing
from defective_wheels import DEFECTS, MACHINE, Workshop, wrong_hash
from stoker.model.finding import Severity
from stoker.wheel.verify.tested import Verification
from stoker.wheel.verify.verifying import VerifyWishes, verify


@pytest.fixture(scope="module")
def clean(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    if MACHINE not in ("x86_64", "aarch64"):
        missing(f"there is no manylinux policy in this test for {MACHINE}")
    return Workshop(find_tool, tmp_path_factory.mktemp("workshop"))


@pytest.fixture
def workshop(clean: Workshop, tmp_path: Path) -> Iterator[Workshop]:
    """The clean one, put back afterwards."""
    kept = shutil.copytree(clean.folder, tmp_path / "kept")
    yield clean
    shutil.rmtree(clean.folder)
    shutil.move(kept, clean.folder)


def _bad(verification: Verification) -> set[str]:
    fine = (Severity.OK, Severity.NOTE)
    return {one.name for one in verification.findings if one.severity not in fine}


def test_a_clean_wheel_has_none(clean: Workshop, tmp_path: Path) -> None:
    verification = verify(clean.pack(tmp_path))
    assert _bad(verification) == set()
    assert verification.ok


@pytest.mark.slow
@pytest.mark.parametrize("name", DEFECTS)
def test_a_planted_defect_is_found_and_no_other(
    workshop: Workshop, tmp_path: Path, name: str
) -> None:
    DEFECTS[name](workshop)
    verification = verify(workshop.pack(tmp_path))
    assert _bad(verification) == {name}
    assert not verification.ok
    (finding,) = [one for one in verification.findings if one.name == name]
    assert finding.fix or finding.advice  # every error names what to do


def test_a_wrong_hash_is_found_and_nothing_else(clean: Workshop, tmp_path: Path) -> None:
    wheel = clean.pack(tmp_path)
    wrong_hash(wheel)
    (finding,) = [one for one in verify(wheel).findings if one.severity is Severity.ERROR]
    assert finding.name == "wrong-hash"
    assert "mill/__init__.py" in finding.evidence


def test_what_the_user_asks_for_goes_before_the_plan(clean: Workshop, tmp_path: Path) -> None:
    verification = verify(clean.pack(tmp_path), VerifyWishes(variant="8.0"))
    assert _bad(verification) == {"extra-architecture", "other-plan"}
    assert verification.variant == "cuda-sm80"
