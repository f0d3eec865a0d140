"""Any input is refused with a message, or read in the same way by Python's own zip library."""

import tempfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.model.errors import StokerError
from stoker.wheel.zip import Content, Edit, Wheel, ZipLimits, open_wheel, rewrite
from stoker.wheel.zip.record import parse_record, render_record
from stoker.wheel.zip.rewriting import identify
from wheel_files import DIST_INFO, NAME, entry_at, header_at, members, record, zipped

FULL = {**members(), f"{DIST_INFO}/RECORD": record(members())}
SEEDS = [
    zipped(FULL),
    zipped(FULL, method=zipfile.ZIP_STORED),
    zipped(FULL, describe=True),
    zipped(FULL, zip64=True),
]
LIMITS = ZipLimits(free=1 << 20)


def headers(data: bytes) -> list[int]:
    """Where bytes matter most: the headers of every member and the end."""
    places = [at(data, name) for name in FULL for at in (entry_at, header_at)]
    return [*places, len(data) - 22]


@st.composite
def broken(draw: st.DrawFn) -> bytes:
    """A wheel with a few bytes changed, most of them in headers, and sometimes a part cut out."""
    data = seed = draw(st.sampled_from(SEEDS))
    places = st.one_of(
        st.builds(int.__add__, st.sampled_from(headers(seed)), st.integers(0, 70)),
        st.integers(0, len(seed)),
    )
    for _ in range(draw(st.integers(1, 4))):
        start = draw(places)
        part = data[start : start + draw(st.sampled_from([1, 1, 2, 4, 4, 8, 30]))]
        same = len(part)
        new = st.one_of(
            st.binary(min_size=same, max_size=same),
            st.sampled_from([bytes(same), b"\xff" * same, part[::-1]]),
        )
        data = data[:start] + draw(new) + data[start + same :]
    if draw(st.integers(0, 7)) == 7:
        start, end = draw(places), draw(places)
        data = data[:start] + data[end:]
    return data


def everything(wheel: Wheel) -> dict[str, bytes]:
    return {name: wheel.read(name) for name in wheel.members}


def python_reads(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {
            info.filename: archive.read(info) for info in archive.infolist() if not info.is_dir()
        }


@given(broken())
def test_a_broken_wheel_is_an_error_or_read_as_python_reads_it(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / NAME
        path.write_bytes(data)
        try:
            with open_wheel(path, LIMITS) as wheel:
                found = everything(wheel)
        except StokerError:
            return
        assert found == python_reads(path)


@given(broken())
def test_a_broken_wheel_is_never_rewritten_to_a_broken_one(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / NAME
        path.write_bytes(data)
        out = Path(folder) / "out"
        edit = Edit(contents={"mill/new.py": Content.of_bytes(b"new")})
        try:
            with open_wheel(path, LIMITS) as wheel:
                target = rewrite(wheel, edit, out, workers=1)
        except StokerError:
            assert not out.exists() or not list(out.iterdir())
            assert sorted(child.name for child in Path(folder).iterdir() if child != out) == [NAME]
            return
        assert list(out.iterdir()) == [target]
        with open_wheel(target) as wheel:
            assert not list(wheel.mismatches())


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_an_error(data: bytes, at_the_end: bool) -> None:
    end = SEEDS[0][-22:]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / NAME
        path.write_bytes(data + end if at_the_end else data)
        with pytest.raises(StokerError), open_wheel(path):
            pass


@given(st.binary(max_size=300))
def test_any_record_is_read_or_a_value_error(content: bytes) -> None:
    try:
        rows = parse_record(content, most=100)
    except ValueError:
        return
    assert parse_record(render_record(rows), most=100) == rows


_header = st.sampled_from(["Name: mill", "Version: 1", "Tag: py3-none-any", "Build: 1", "Build: x"])
_lines = st.lists(st.one_of(_header, st.text(max_size=20)), max_size=5)


@given(_lines, _lines)
def test_any_metadata_gives_a_file_name_or_a_value_error(about: list[str], kind: list[str]) -> None:
    metadata, wheel = ("\n".join(lines).encode(errors="replace") for lines in (about, kind))
    try:
        identity = identify(metadata, wheel)
    except ValueError:
        return
    assert "/" not in identity.file_name
    assert identity.file_name.startswith("mill-1-")
