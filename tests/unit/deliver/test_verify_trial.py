"""Which interpreter a wheel is tried with, and what of it is imported."""

import sys

import pytest
from packaging import tags

from stoker.deliver.verify.case import Case
from stoker.deliver.verify.trial import fitting_python, top_modules
from stoker.model.artifact import ArtifactFacts, TargetKind, WheelFacts
from stoker.model.errors import MissingError, UsageError

HERE = next(iter(tags.platform_tags()))


def _case(*told: str) -> Case:
    wheel = WheelFacts(name="mill", version="1.2", tags=told, members=0, unpacked=0)
    facts = ArtifactFacts(
        path="mill.whl",
        kind=TargetKind.WHEEL,
        size=0,
        wheel=wheel,
        libraries=(),
        dependencies=(),
        unresolved=(),
        runs_on=(),
    )
    return Case(file_name="mill.whl", facts=facts, wheel=wheel, members=())


@pytest.mark.parametrize("tag", ["py3-none-any", f"py3-none-{HERE}", f"cp39-abi3-{HERE}"])
def test_our_own_python_will_do(tag: str) -> None:
    assert fitting_python(_case(tag)) == sys.executable


@pytest.mark.parametrize("tag", ["py3-none-win_amd64", "cp312-cp312-manylinux_2_28_riscv128"])
def test_a_wheel_for_another_platform_cannot_be_tried(tag: str) -> None:
    with pytest.raises(UsageError, match="cannot be tried here: it is for") as raised:
        fitting_python(_case(tag))
    assert "without --run" in raised.value.hints[0]


def test_a_python_that_is_not_here() -> None:
    with pytest.raises(MissingError, match="no Python for cp399"):
        fitting_python(_case(f"cp399-cp399-{HERE}"))


def test_what_users_import() -> None:
    members = [
        "mill/__init__.py",
        "mill/grind.py",
        "mill/sub/__init__.py",
        "sift.py",
        "native.cpython-312-x86_64-linux-gnu.so",
        "stable.abi3.so",
        "_private.so",
        "tests/__init__.py",
        "data/table.csv",
        "mill-1.2.data/platlib/press/__init__.py",
        "mill-1.2.dist-info/METADATA",
    ]
    assert top_modules(members) == ["mill", "native", "press", "sift", "stable"]
