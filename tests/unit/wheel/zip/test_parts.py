"""The pure parts of the engine: records of a zip file, member names, wheel names, order."""

import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.wheel.zip import directory
from stoker.wheel.zip import headers as zip_
from stoker.wheel.zip.rewriting import identify
from stoker.wheel.zip.threads import map_in_order
from wheel_files import METADATA, WHEEL

_number = st.one_of(
    st.integers(0, 2**62), st.sampled_from([0, 2**16 - 1, 2**16, 2**32 - 2, 2**32 - 1, 2**32])
)
_headers = st.builds(
    zip_.MemberHeader,
    st.text(min_size=1, max_size=20).map(lambda text: text.encode(errors="replace")),
    st.sampled_from([zip_.STORED, zip_.DEFLATED]),
    st.integers(0, 2**32 - 1),
    st.builds(zip_.Sizes, st.integers(0, 2**32 - 1), _number, _number),
    st.just(True),
)


@given(_headers, st.integers(0, 0o777), _number)
def test_entries_come_back_at_any_size(header: zip_.MemberHeader, mode: int, offset: int) -> None:
    packed = zip_.pack_entry(header, mode=mode, offset=offset)
    ((position, entry),) = zip_.unpack_entries(packed, 1)
    assert position == 0
    assert (entry.sizes, entry.offset, entry.name) == (header.sizes, offset, header.name)
    assert (entry.method, entry.attributes >> 16, entry.system) == (header.method, mode, zip_.UNIX)


@given(_headers)
def test_local_headers_come_back_at_any_size(header: zip_.MemberHeader) -> None:
    packed = zip_.pack_local(header)
    local = zip_.unpack_local(packed)
    extra = packed[-local.extra_length :]
    assert zip_.local_sizes(local, extra) == header.sizes
    assert packed[zip_.LOCAL_SIZE : zip_.LOCAL_SIZE + local.name_length] == header.name


@given(_number, _number, _number)
def test_the_end_comes_back_at_any_size(entries: int, size: int, offset: int) -> None:
    end = zip_.End(entries, size, offset)
    packed = zip_.pack_end(end)
    narrow, before = packed[-zip_.END_SIZE :], packed[: -zip_.END_SIZE]
    wide = zip_.unpack_end64(before, offset + size) if before else None
    assert (wide or zip_.unpack_end(narrow)) == end
    assert wide is None or zip_.unpack_end(narrow).agrees(wide)


def test_a_small_file_has_no_zip64_records() -> None:
    assert len(zip_.pack_end(zip_.End(65534, 10, 20))) == zip_.END_SIZE
    assert len(zip_.pack_end(zip_.End(65535, 10, 20))) == zip_.END_SIZE + zip_.END64_SIZE


@pytest.mark.parametrize("extra", [b"\1", b"\1\0\2\0a", b"\7\0\0\0\7\0\0\0", b"\1\0\0\0\7"])
def test_extra_fields_must_be_whole_and_there_once(extra: bytes) -> None:
    with pytest.raises(zip_.MalformedError):
        zip_.unpack_extra(extra)


@pytest.mark.parametrize("name", ["a", "a/b.py", "ä/ö", "..a/b..", "a b", ".hidden", "man/A::B.3"])
def test_good_names(name: str) -> None:
    assert directory.name_problem(name) is None


@pytest.mark.parametrize(
    "name", ["", "/", "/a", "//a", "a//b", "..", "a/..", "./a", "a/.", "a\\b", "c:/a", "a\0b", "\n"]
)
def test_bad_names(name: str) -> None:
    assert directory.name_problem(name)


def test_a_file_cannot_be_a_folder() -> None:
    assert directory.name_clash(["a/b/c", "a/b", "d"]) == "a/b"
    assert directory.name_clash(["a/b/c", "a/bc", "d"]) is None


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        (["py3-none-any"], "py3-none-any"),
        (["py3-none-any", "py2-none-any"], "py2.py3-none-any"),
        (["py2.py3-none-any"], "py2.py3-none-any"),
        (
            ["cp311-abi3-manylinux_2_17_x86_64", "cp311-abi3-manylinux2014_x86_64"],
            "cp311-abi3-manylinux2014_x86_64.manylinux_2_17_x86_64",
        ),
    ],
)
def test_tags_become_one_expression(tags: list[str], expected: str) -> None:
    wheel = "".join(f"Tag: {tag}\n" for tag in tags).encode()
    assert identify(METADATA, wheel).tags == expected


@pytest.mark.parametrize(
    "wheel",
    [
        b"",
        b"Tag: py3-none\n",
        b"Tag: py3-none-any-more\n",
        b"Tag: py3-none-any/../x\n",
        b"Tag: py3-none-any\nTag: py2-abi-any\n",
        b"Tag: " + b".".join(b"%d" % number for number in range(900)) + b"-none-any\n",
        b"Tag: py3-none-any\nBuild: late\n",
        b"Tag: py3-none-any\nBuild: 1/2\n",
    ],
)
def test_wrong_tags_and_build_numbers(wheel: bytes) -> None:
    with pytest.raises(ValueError, match="WHEEL"):
        identify(METADATA, wheel)


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        ("", "my_mill-1.2.post1"),
        ("My_Mill-1.2-1", "My_Mill-1.2-1"),
        ("my.mill-1.2.post1", "my.mill-1.2.post1"),
        ("my_mill-1.2", "my_mill-1.2.post1"),
        ("mill-1.2.post1", "my_mill-1.2.post1"),
        ("nonsense", "my_mill-1.2.post1"),
        ("my_mill- v1.2.post1\u2003", "my_mill-1.2.post1"),
    ],
)
def test_a_stem_is_kept_only_where_it_says_the_same(present: str, expected: str) -> None:
    metadata = b"Name: My.Mill\nVersion: 1.2.post1\n"
    identity = identify(metadata, WHEEL + b"Build: 7a\n", present)
    assert identity.file_name == f"{expected}-7a-py3-none-any.whl"


@pytest.mark.parametrize(
    "metadata", [b"", b"Name: mill\n", b"Version: 1\n", b"Name: -\nVersion: 1\n", b"Name: \xff\n"]
)
def test_metadata_without_a_name_and_version(metadata: bytes) -> None:
    with pytest.raises(ValueError, match="METADATA"):
        identify(metadata, WHEEL)


def test_results_come_in_order_and_tasks_only_as_results_are_taken() -> None:
    taken = []

    def tasks() -> Iterator[int]:
        for number in range(100):
            taken.append(number)
            yield number

    results = map_in_order(lambda number: number * number, tasks(), workers=3)
    for number in range(50):
        assert next(results) == number * number
        assert len(taken) <= number + 5
    results.close()
    assert not [t for t in threading.enumerate() if t.name.startswith("stoker-engine")]


def test_an_error_in_a_task_reaches_the_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        list(map_in_order(lambda number: 1 // number, [1, 0, 1], workers=2))
