"""Servers that never end, send a byte at a time, break off, lie, or lead elsewhere."""

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from stoker.catalogue import access
from stoker.model.errors import ArtifactError, MissingError, StokerError
from stoker.outside import package_index as index
from stoker.outside.package_index import File, PackageIndex, download, find_sdist, parse_page
from stoker.outside.web import Web, opened

SHORT = Web(timeout_s=0.5)
SLOW = Web(timeout_s=2.0)  # the next byte comes in time on a busy machine too
WEB = Web(timeout_s=20.0)  # where the answer ends, or is ended for its size
pytestmark = pytest.mark.timeout(120)  # then a test waits for a server that never stops by itself
OK = b"HTTP/1.1 200 OK\r\n"

Part = Callable[[socket.socket], None]


class Server:
    """Sends each client the parts of the answer for its path, until the test is over."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.over = threading.Event()
        self.answers: dict[str, tuple[bytes | Part, ...]] = {}
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                asking, _ = self._listener.accept()
                threading.Thread(target=self._answer, args=(asking,), daemon=True).start()

    def _answer(self, asking: socket.socket) -> None:
        with asking, suppress(OSError):
            path = asking.recv(1 << 16).split()[1].decode()
            for part in self.answers[path]:
                part(asking) if callable(part) else asking.sendall(part)

    def drip(self, asking: socket.socket) -> None:
        """Send a byte at a time, forever."""
        while not self.over.wait(0.05):
            asking.sendall(b"x")

    def flood(self, asking: socket.socket) -> None:
        """Send as much as is taken, forever."""
        while not self.over.is_set():
            asking.sendall(b" " * (1 << 16))

    def close(self) -> None:
        self.over.set()
        self._listener.close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    made = Server()
    yield made
    made.close()


def whole(url: str, web: Web = WEB) -> bytes:
    with opened(url, web) as answer:
        return answer.whole(1 << 16)


def test_an_answer_that_never_begins(server: Server) -> None:
    server.answers["/x"] = (OK, b"X-Filler: ", server.drip)
    with pytest.raises(MissingError, match="has not answered after") as caught:
        whole(f"{server.url}/x", SLOW)
    assert caught.value.hints


def test_a_byte_at_a_time(server: Server) -> None:
    server.answers["/x"] = (OK, b"Content-Length: 50000\r\n\r\n", server.drip)
    # On a busy machine a byte may also come later than the timeout.
    with pytest.raises(MissingError, match=r"sends only .* a second|timed out") as caught:
        whole(f"{server.url}/x", SHORT)
    assert caught.value.hints


def test_an_answer_that_never_ends(server: Server) -> None:
    server.answers["/x"] = (OK, b"\r\n", server.flood)
    with pytest.raises(ArtifactError, match=r"sends more than 64.0 KiB"):
        whole(f"{server.url}/x")


@pytest.mark.parametrize(
    "head", [b"Content-Length: 9\r\n\r\nhalf", b"Transfer-Encoding: chunked\r\n\r\n9\r\nhalf"]
)
def test_an_answer_that_breaks_off(server: Server, head: bytes) -> None:
    server.answers["/x"] = (OK, head)
    with pytest.raises(MissingError, match=r"broke off|IncompleteRead"):
        whole(f"{server.url}/x")


@pytest.mark.parametrize("place", ["file:///etc/hostname", "ftp://127.0.0.1/x", "/x", "data:,x"])
def test_an_answer_that_leads_elsewhere(server: Server, place: str) -> None:
    server.answers["/x"] = (b"HTTP/1.1 302 Found\r\nLocation: %s\r\n\r\n" % place.encode(),)
    with pytest.raises(MissingError, match=server.url):
        whole(f"{server.url}/x")


def test_a_redirect_that_never_ends(server: Server) -> None:
    """It is followed at once: nothing of its content is kept."""
    server.answers["/x"] = (b"HTTP/1.1 302 Found\r\nLocation: /y\r\n\r\n", server.flood)
    server.answers["/y"] = (OK, b"Content-Length: 4\r\n\r\ngood")
    assert whole(f"{server.url}/x") == b"good"


def page(server: Server, *links: str) -> PackageIndex:
    """Return an index whose page for one package has these links."""
    text = "".join(f'<a href="{link}">x</a>\n' for link in links).encode()
    server.answers["/package/"] = (OK, b"Content-Type: text/html\r\n\r\n", text)
    return PackageIndex(roots=(server.url,), links=(), web=WEB)


@pytest.mark.parametrize("kind", ["text/html", "application/vnd.pypi.simple.v1+json"])
def test_an_index_names_no_files_of_this_machine(kind: str) -> None:
    url = "file:///etc/package-1.0.tar.gz"
    content = f'<a href="{url}">' if kind == "text/html" else json.dumps({"files": [{"url": url}]})
    assert parse_page(content.encode(), kind, "http://127.0.0.1/package/") == []
    assert parse_page(content.encode(), kind, "file:///srv/package/index.html")


def test_a_page_that_never_ends(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "_MOST_PAGE", 1 << 20)
    places = page(server)
    server.answers["/package/"] = (OK, b"Content-Type: text/html\r\n\r\n", server.flood)
    with pytest.raises(StokerError, match="sends more than"):
        find_sdist("package", "1.0", places)


def test_a_source_that_never_ends(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index, "_MOST_SOURCE", 1 << 20)
    server.answers["/package-1.0.tar.gz"] = (OK, b"\r\n", server.flood)
    places = page(server, "../package-1.0.tar.gz")
    file = find_sdist("package", "1.0", places)
    with pytest.raises(ArtifactError, match="sends more than"):
        download(file, tmp_path, places, say=lambda _: None)
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_a_source_that_says_it_is_huge(server: Server, tmp_path: Path) -> None:
    server.answers["/x.tar.gz"] = (OK, b"Content-Length: 999999999999999\r\n\r\n", server.flood)
    with pytest.raises(ArtifactError, match="sends more than"):
        download(File(url=f"{server.url}/x.tar.gz"), tmp_path, page(server), say=lambda _: None)
    assert not any(path.is_file() for path in tmp_path.rglob("*"))


def test_a_catalogue_that_never_ends(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access, "_LARGEST", 1 << 20)
    server.answers["/catalogue.json"] = (OK, b"\r\n", server.flood)
    with pytest.raises(ArtifactError, match="sends more than"):
        access.locate(server.url, WEB)


def test_a_catalogue_that_breaks_off(server: Server) -> None:
    server.answers["/catalogue.json"] = (OK, b"Content-Length: 100\r\n\r\n{}")
    with pytest.raises(MissingError, match="broke off"):
        access.locate(server.url, WEB)


def test_a_catalogue_a_byte_at_a_time(server: Server) -> None:
    server.answers["/catalogue.json"] = (OK, b"\r\n", server.drip)
    with pytest.raises(MissingError, match=r"sends only|timed out"):
        access.locate(server.url, SLOW)
