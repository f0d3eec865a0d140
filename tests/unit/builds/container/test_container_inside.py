"""Choosing the Python of a container for stoker, and wheels that fit it."""

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.builds.containers.content import platform_tags, required_inside
from stoker.builds.containers.pythons import PROBE, InsidePython, choose_python, read_pythons
from stoker.model.errors import MissingError


def python(version: str, *, machine: str = "x86_64", glibc: str | None = "2.28") -> InsidePython:
    path = f"/usr/bin/python{version}"
    return InsidePython(version=version, path=path, machine=machine, glibc=glibc)


def choose(*versions: str, wanted: str | None = None) -> str:
    found = [python(version) for version in versions]
    return choose_python(found, wanted=wanted, machine="x86_64", image="builder").version


def test_the_probe_finds_this_python() -> None:
    told = subprocess.run([*PROBE], capture_output=True, text=True, check=True)
    found = read_pythons(told.stdout)
    assert found
    here = subprocess.run(
        ["python3", "-c", "import sys; print('%d.%d' % sys.version_info[:2])"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert found[0].version == here.stdout.strip()
    assert "" != found[0].path != sys.argv[0]


def test_the_wanted_python_else_the_usual_one_else_the_newest() -> None:
    assert choose("3.12", "3.11", "3.13", wanted="3.11") == "3.11"
    assert choose("3.12", "3.14", "3.11") == "3.12"
    assert choose("3.6", "3.9", "3.11", "3.13") == "3.13"


def test_none_that_is_new_enough_is_said_with_those_found() -> None:
    with pytest.raises(MissingError, match=r"builder has no Python 3\.11 or newer") as caught:
        choose("3.6", "3.9")
    assert "3.6, 3.9" in caught.value.hints[0]
    with pytest.raises(MissingError, match=r"no Python 3\.10"):
        choose("3.12", wanted="3.10")
    with pytest.raises(MissingError) as caught:
        choose()
    assert "none" in caught.value.hints[0]


def test_another_processor_is_refused() -> None:
    with pytest.raises(MissingError, match="builder is for aarch64"):
        choose_python(
            [python("3.12", machine="aarch64")], wanted=None, machine="x86_64", image="builder"
        )


@given(st.text())
def test_anything_may_be_printed(told: str) -> None:
    line = json.dumps({"version": "3.12", "path": "p", "machine": "m", "glibc": None})
    assert read_pythons(f"{told}\n{line}\n")[-1].version == "3.12"


def test_wheels_of_the_same_or_an_older_c_library_fit() -> None:
    tags = platform_tags(python("3.12"))
    assert tags[0] == "manylinux_2_28_x86_64"
    assert tags[-2:] == ("manylinux_2_17_x86_64", "manylinux2014_x86_64")
    assert len(tags) == 28 - 17 + 2
    assert all("musllinux" in tag for tag in platform_tags(python("3.12", glibc=None)))


def test_a_container_gets_the_tools_that_it_may_lack() -> None:
    said = ["click>=8.2", 'cmake>=3.18; extra == "tools"', 'lz4>=4.3; extra == "recompress"']
    assert required_inside(said) == ["click>=8.2", "cmake>=3.18"]
