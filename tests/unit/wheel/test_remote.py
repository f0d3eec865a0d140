"""Reads wheels on a server in parts."""

import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from stoker.outside.web import NoRangesError, Web, opened
from stoker.wheel.engine.directory import Limits, member_of, read_listed
from stoker.wheel.facts import open_member
from stoker.wheel.remote import RemoteReader


class Server(BaseHTTPRequestHandler):
    """Serves the files of a folder, with ranges unless the path begins with /whole/."""

    def __init__(self, folder: Path, asked: list[str], *rest: object):
        self.folder, self.asked = folder, asked
        super().__init__(*rest)  # type: ignore[arg-type]

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        content = (self.folder / self.path.rpartition("/")[2]).read_bytes()
        wanted = self.headers["Range"]
        self.asked.append(wanted or self.command)
        if wanted and not self.path.startswith("/whole/"):
            first, last = map(int, wanted.removeprefix("bytes=").split("-"))
            content = content[first : last + 1]
            self.send_response(206)
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if body:
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def asked() -> list[str]:
    return []


@pytest.fixture
def url(tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Server, tmp_path, asked))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_small_member_of_a_large_wheel(tmp_path: Path, url: str) -> None:
    path = tmp_path / "mill.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("mill/lib.so", bytes(3 << 20))
        archive.writestr("mill-1.0.dist-info/METADATA", "Name: mill\n" * 10)
        archive.writestr("mill/more.so", bytes(3 << 20))
    remote = RemoteReader(f"{url}/mill.whl", Web())
    entries = read_listed(remote, Limits())
    member = member_of(remote, entries["mill-1.0.dist-info/METADATA"])
    reader = open_member(remote, member)
    assert reader.read(0, reader.size) == b"Name: mill\n" * 10
    assert remote.downloaded < 200_000
    assert remote.size == path.stat().st_size


def test_reading_in_sequence_takes_few_requests(tmp_path: Path, url: str, asked: list[str]) -> None:
    content = bytes(range(256)) * (16 << 10)
    (tmp_path / "a.whl").write_bytes(content)
    remote = RemoteReader(f"{url}/a.whl", Web())
    assert b"".join(remote.read(at, 8192) for at in range(0, len(content), 8192)) == content
    assert remote.downloaded == len(content)
    assert len(asked) < 12


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
