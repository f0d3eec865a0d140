"""Reads wheels on a server in parts."""

import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from ranged_server import Sent, served
from stoker.outside.web import NoRangesError, Web, opened
from stoker.wheel.engine.directory import ZipLimits, member_of, read_listed
from stoker.wheel.facts import open_member
from stoker.wheel.remote import RemoteReader


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Sent]]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with served(tmp_path) as found:
        yield found


@pytest.fixture
def url(server: tuple[str, Sent]) -> str:
    return server[0]


def test_a_small_member_of_a_large_wheel(tmp_path: Path, url: str) -> None:
    path = tmp_path / "mill.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("mill/lib.so", bytes(3 << 20))
        archive.writestr("mill-1.0.dist-info/METADATA", "Name: mill\n" * 10)
        archive.writestr("mill/more.so", bytes(3 << 20))
    remote = RemoteReader(f"{url}/mill.whl", Web())
    entries = read_listed(remote, ZipLimits())
    member = member_of(remote, entries["mill-1.0.dist-info/METADATA"])
    reader = open_member(remote, member)
    assert reader.read(0, reader.size) == b"Name: mill\n" * 10
    assert remote.downloaded < 200_000
    assert remote.size == path.stat().st_size


def test_reading_in_sequence_takes_few_requests(tmp_path: Path, server: tuple[str, Sent]) -> None:
    content = bytes(range(256)) * (16 << 10)
    (tmp_path / "a.whl").write_bytes(content)
    url, sent = server
    remote = RemoteReader(f"{url}/a.whl", Web())
    assert b"".join(remote.read(at, 8192) for at in range(0, len(content), 8192)) == content
    assert remote.downloaded == len(content)
    assert len(sent.asked) < 12


def test_reads_at_any_place(tmp_path: Path, url: str) -> None:
    content = bytes(range(251)) * 2000
    (tmp_path / "a.whl").write_bytes(content)
    remote = RemoteReader(f"{url}/a.whl", Web())
    for start, length in [
        (0, 10),
        (400_000, 100_000),
        (399_990, 30),
        (len(content) - 5, 5),
        (3, 9),
    ]:
        assert remote.read(start, length) == content[start : start + length]


def test_a_server_without_ranges(tmp_path: Path, url: str) -> None:
    (tmp_path / "a.whl").write_bytes(bytes(100_000))
    with pytest.raises(NoRangesError):
        RemoteReader(f"{url}/whole/a.whl", Web()).read(0, 10)
    with pytest.raises(NoRangesError), opened(f"{url}/whole/a.whl", Web(), part=(5, 9)):
        pass
