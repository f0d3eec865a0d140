"""Reading METADATA and WHEEL with any bytes."""

import msgspec

from stoker.wheel.inspect.facts import wheel_facts

METADATA = b"""Metadata-Version: 2.1
Name: mill
Version: 1.2+cu130
Requires-Python: >=3.11
Requires-Dist: numpy
Requires-Dist: cuda-toolkit[cublas]==13.0.2; platform_system == "Linux"
Author: M\xc3\xbcller

Requires-Dist: not-a-requirement
"""
WHEEL = b"""Wheel-Version: 1.0
Generator: setuptools
Tag: cp312-cp312-manylinux_2_28_x86_64
Tag: cp312-cp312-manylinux_2_27_x86_64
"""


def test_fields() -> None:
    facts = wheel_facts(METADATA, WHEEL, members=3, unpacked=9)
    assert (facts.name, facts.version, facts.requires_python) == ("mill", "1.2+cu130", ">=3.11")
    assert facts.requires == ("numpy", 'cuda-toolkit[cublas]==13.0.2; platform_system == "Linux"')
    assert facts.tags == ("cp312-cp312-manylinux_2_28_x86_64", "cp312-cp312-manylinux_2_27_x86_64")
    assert (facts.generator, facts.build) == ("setuptools", None)


def test_bytes_that_are_no_text() -> None:
    facts = wheel_facts(b"Name: m\xff\x1b[31m\nVersion: \xc3\n", b"", members=0, unpacked=0)
    assert "\x1b" not in facts.name
    assert msgspec.json.decode(msgspec.json.encode(facts), type=type(facts)) == facts


def test_nothing() -> None:
    facts = wheel_facts(b"", b"", members=0, unpacked=0)
    assert (facts.name, facts.version, facts.tags, facts.requires) == ("", "", (), ())
