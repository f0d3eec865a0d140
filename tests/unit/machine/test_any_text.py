"""Files of the system and answers of its programs are read, whatever they contain."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.machine.cgroups import parse_membership
from stoker.machine.counters import parse_written
from stoker.machine.cpu import parse_model, parse_quota
from stoker.machine.cuda import parse_archs
from stoker.machine.file_tree import parse_mounts
from stoker.machine.macos import parse_macos_mounts, parse_memory
from stoker.machine.memory import parse_meminfo
from stoker.machine.memory_group import parse_counters, parse_pressure
from stoker.machine.system import parse_os_release

READERS = (
    *(parse_archs, parse_counters, parse_macos_mounts, parse_meminfo, parse_model, parse_mounts),
    *(parse_os_release, parse_pressure, parse_quota),
)


@pytest.mark.parametrize("read", READERS)
@given(st.text())
def test_any_text_is_read(read: Callable[[str], object], text: str) -> None:
    read(text)


@given(st.text(), st.text(), st.text())
def test_any_answers_of_macos_are_read(size: str, statistics: str, swap: str) -> None:
    parse_memory(size, statistics, swap)


@given(st.text())
def test_no_counter_is_negative_and_every_group_is_a_path(text: str) -> None:
    assert (parse_written(text) or 0) >= 0
    groups = parse_membership(f"{text}\n0::/{text.replace(chr(10), '')}\n")
    assert all(path.startswith("/") for path in groups.values())
