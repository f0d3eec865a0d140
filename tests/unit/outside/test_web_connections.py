"""Connections are reused where that is safe, and only there."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ranged_server import Sent, served
from stoker.outside.web import AbsentError, Web, opened, size_of


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Sent]]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    (tmp_path / "a").write_bytes(bytes(range(256)) * 1000)
    with served(tmp_path) as found:
        yield found


def _part(url: str, first: int, last: int) -> bytes:
    with opened(f"{url}/a", Web(), part=(first, last)) as answer:
        return answer.whole(1 << 20)


def test_one_connection_for_all_parts(server: tuple[str, Sent]) -> None:
    url, sent = server
    assert size_of(f"{url}/a", Web()) == 256_000
    for first in range(0, 2560, 256):
        assert _part(url, first, first + 256) == bytes(range(256))
    assert sent.connections == 1


def test_the_rest_of_an_answer_is_not_taken_for_the_next(server: tuple[str, Sent]) -> None:
    url, sent = server
    with opened(f"{url}/a", Web()) as answer:
        assert answer.content.read(3) == b"\0\1\2"
    assert _part(url, 7, 9) == b"\7\x08"
    with pytest.raises(AbsentError), opened(f"{url}/b", Web()):
        pass
    assert _part(url, 7, 9) == b"\7\x08"
    assert sent.connections > 1


def test_a_server_that_closes_the_connection(server: tuple[str, Sent]) -> None:
    url, sent = server
    assert _part(url, 0, 2) == b"\0\1"
    sent.close_open()
    assert _part(url, 2, 4) == b"\2\3"
    assert sent.connections == 2
