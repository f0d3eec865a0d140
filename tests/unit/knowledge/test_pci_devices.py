"""The PCI devices of the table are those that the machine's list of PCI devices names so."""

import re
from pathlib import Path

import pytest

from conftest import missing
from stoker.knowledge.gpus import gpus
from stoker.model.variant import Backend

LISTS = (Path("/usr/share/misc/pci.ids"), Path("/usr/share/hwdata/pci.ids"))
INTEL = "8086"
NAMES = {
    "pvc": "Ponte Vecchio|Data Center GPU Max",
    "dg2": "DG2",
    "ats-m150": "Flex",
    "ats-m75": "Flex 140",
    "bmg": "Battlemage",
    "lnl-m": "Lunar Lake",
}


@pytest.fixture
def listed() -> dict[str, str]:
    """The names of Intel's devices by number, from a package that many machines have."""
    path = next((path for path in LISTS if path.is_file()), None)
    if path is None:
        missing("pci.ids is not installed")
    assert path is not None
    text = path.read_text("utf-8", "replace")
    (devices,) = re.findall(rf"^{INTEL}  .*\n((?:[\t#].*\n|\n)*)", text, re.MULTILINE)
    return {f"0x{number}": name for number, name in re.findall(r"(?m)^\t(\w{4})  (.*)$", devices)}


def test_devices_have_the_right_names(listed: dict[str, str]) -> None:
    intel = [gpu for gpu in gpus().values() if gpu.backend is Backend.XPU]
    assert {gpu.arch for gpu in intel if gpu.pci} == NAMES.keys()
    known = {
        (gpu.arch, number): listed[number]
        for gpu in intel
        for number in gpu.pci
        if number in listed
    }
    assert known
    wrong = {key: name for key, name in known.items() if not re.search(NAMES[key[0]], name)}
    assert not wrong


def test_a_device_is_one_gpu() -> None:
    numbers = [number for gpu in gpus().values() for number in gpu.pci]
    assert len(numbers) == len(set(numbers))
    assert all(re.fullmatch("0x[0-9a-f]{4}", number) for number in numbers)
