"""METADATA and WHEEL as text: only what is asked for changes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.wheel.zip.metadata import Headers, edited_metadata, edited_wheel, required_name

METADATA = b"""Metadata-Version: 2.4
Name: torch
Version: 2.9.1
License: a text
        of several lines
License-File: LICENSE
Requires-Dist: filelock
Requires-Dist: numpy<2
Provides-Extra: optree
Requires-Dist: optree>=0.13.0; extra == "optree"

Requires-Dist: this is the description
"""


def test_nothing_asked_nothing_changed() -> None:
    assert edited_metadata(METADATA) == METADATA


def test_the_fields_keep_their_places() -> None:
    edited = edited_metadata(
        METADATA,
        version="2.9.1+cu128",
        drop=["numpy<2"],
        requires=["triton==3.5.1", "sympy"],
        licences=["nvidia/License.txt"],
    )
    assert edited.splitlines() == [
        b"Metadata-Version: 2.4",
        b"Name: torch",
        b"Version: 2.9.1+cu128",
        b"License: a text",
        b"        of several lines",
        b"License-File: LICENSE",
        b"License-File: nvidia/License.txt",
        b"Requires-Dist: filelock",
        b"Requires-Dist: triton==3.5.1",
        b"Requires-Dist: sympy",
        b"Provides-Extra: optree",
        b'Requires-Dist: optree>=0.13.0; extra == "optree"',
        b"",
        b"Requires-Dist: this is the description",
    ]


def test_the_first_requirements_come_before_extras_or_last() -> None:
    with_extra = b"Name: a\nProvides-Extra: x\nRequires-Dist: b; extra == 'x'\n\n"
    assert edited_metadata(with_extra, requires=["c"]).startswith(b"Name: a\nRequires-Dist: c\nPro")
    assert edited_metadata(b"Name: a\n", requires=["c"]) == b"Name: a\nRequires-Dist: c\n"


def test_old_metadata_does_not_list_licence_files() -> None:
    old = b"Metadata-Version: 2.1\nName: a\n\nText\n"
    assert edited_metadata(old, licences=["b"]) == old


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("nvidia-cublas-cu12==12.8.4.1; platform_system == 'Linux'", "nvidia-cublas-cu12"),
        ("cuda_toolkit[cublas]==13.2.2", "cuda-toolkit"),
        ("optree>=0.13.0; extra == 'optree'", None),
        ("!!", None),
    ],
)
def test_what_a_requirement_names(line: str, name: str | None) -> None:
    assert required_name(line) == name


def test_tags_are_replaced_together() -> None:
    wheel = b"Wheel-Version: 1.0\nTag: cp39-abi3-linux_x86_64\nTag: old\nBuild: 3\n"
    edited = edited_wheel(wheel, ["cp39-abi3-manylinux_2_28_x86_64"])
    assert edited == b"Wheel-Version: 1.0\nTag: cp39-abi3-manylinux_2_28_x86_64\nBuild: 3\n"
    assert b"Tag: new\n" in edited_wheel(b"Wheel-Version: 1.0\n", ["new"])


FIELD = st.from_regex(r"[A-Z][a-z-]{0,9}: [ -~]{0,20}", fullmatch=True).map(str.encode)


@given(
    fields=st.lists(FIELD, min_size=1),
    end=st.sampled_from([b"\n", b"\r\n"]),
    body=st.binary(max_size=50),
)
def test_any_headers_come_back_as_they_were(fields: list[bytes], end: bytes, body: bytes) -> None:
    content = end.join(fields) + end + end + body
    assert bytes(Headers(content)) == content


@given(content=st.binary(max_size=200))
def test_any_bytes_are_headers_of_some_kind(content: bytes) -> None:
    edited_metadata(content, version="1", drop=["a"], requires=["b"], licences=["c"])
