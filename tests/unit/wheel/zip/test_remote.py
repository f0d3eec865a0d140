"""Reads wheels on a server in parts."""

import zipfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ranged_server import Sent, served
from stoker.outside.web import NoRangesError, Web, opened
from stoker.wheel.inspect.facts import open_member
from stoker.wheel.zip.directory import ZipLimits, member_of, read_listed
from stoker.wheel.zip.remote import RemoteReader, open_remote

Open = Callable[[str], RemoteReader]


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Sent]]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with served(tmp_path) as found:
        yield found


@pytest.fixture
def url(server: tuple[str, Sent]) -> str:
    return server[0]


@pytest.fixture
def remote(tmp_path: Path, url: str) -> Iterator[Open]:
    """Opens a file on the server; what is received of it lies beside the server's folder."""
    (aside := tmp_path.with_name(f"{tmp_path.name}-parts")).mkdir()
    with ExitStack() as stack:
        yield lambda name: stack.enter_context(open_remote(f"{url}/{name}", Web(), aside))
    assert not list(aside.iterdir())


def test_a_small_member_of_a_large_wheel(tmp_path: Path, remote: Open) -> None:
    path = tmp_path / "mill.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("mill/lib.so", bytes(3 << 20))
        archive.writestr("mill-1.0.dist-info/METADATA", "Name: mill\n" * 10)
        archive.writestr("mill/more.so", bytes(3 << 20))
    wheel = remote("mill.whl")
    entries = read_listed(wheel, ZipLimits())
    member = member_of(wheel, entries["mill-1.0.dist-info/METADATA"])
    reader = open_member(wheel, member)
    assert reader.read(0, reader.size) == b"Name: mill\n" * 10
    assert wheel.downloaded < 200_000
    assert wheel.size == path.stat().st_size


def test_reading_in_sequence_takes_few_requests(
    tmp_path: Path, server: tuple[str, Sent], remote: Open
) -> None:
    content = bytes(range(256)) * (16 << 10)
    (tmp_path / "a.whl").write_bytes(content)
    wheel = remote("a.whl")
    assert b"".join(wheel.read(at, 8192) for at in range(0, len(content), 8192)) == content
    assert wheel.downloaded == len(content)
    assert len(server[1].asked) < 12


@given(
    places=st.lists(
        st.tuples(st.integers(0, 500_000), st.integers(1, 300_000)), min_size=1, max_size=12
    )
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
def test_no_byte_is_received_twice(
    tmp_path: Path, server: tuple[str, Sent], remote: Open, places: list[tuple[int, int]]
) -> None:
    content = b"".join(number.to_bytes(4, "big") for number in range(150_000))
    (tmp_path / "a.whl").write_bytes(content)
    wheel, sent = remote("a.whl"), server[1]
    sent.total = 0
    for start, length in places:
        length = min(length, len(content) - start)
        assert wheel.read(start, length) == content[start : start + length]
    assert wheel.downloaded == sent.total <= len(content)


def test_a_server_without_ranges(tmp_path: Path, url: str, remote: Open) -> None:
    (tmp_path / "a.whl").write_bytes(bytes(100_000))
    with pytest.raises(NoRangesError):
        remote("whole/a.whl").read(0, 10)
    with pytest.raises(NoRangesError), opened(f"{url}/whole/a.whl", Web(), part=(5, 9)):
        pass
