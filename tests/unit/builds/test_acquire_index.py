"""Source distributions from a package index: a real one on this machine, and the user's own."""

import hashlib
import json
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.builds.acquire import kept_sources
from stoker.builds.acquire.kept_sources import Acquired, acquired
from stoker.model.errors import (
    ArtifactError,
    ExitStatus,
    MissingError,
    StokerError,
    StorageError,
    UsageError,
)
from stoker.model.source import SourceKind
from stoker.outside.package_index import File, PackageIndex, download, parse_page
from stoker.outside.web import Web, opened

JSON = "application/vnd.pypi.simple.v1+json"


class Handler(SimpleHTTPRequestHandler):
    """Serves pages as JSON if the client accepts it. The folder ``closed`` needs a password. Files
    in ``raw`` are complete responses, after which the connection stays open.
    """

    asked: list[str]
    over: threading.Event

    def do_GET(self) -> None:
        self.asked.append(self.path)
        if self.path.startswith("/raw"):
            self.wfile.write((Path(self.directory) / self.path.strip("/")).read_bytes())
            self.wfile.flush()
            self.over.wait()  # says no more, and stays connected
            return
        if self.path.startswith("/closed") and self.headers["Authorization"] != "Basic bWU6cEA=":
            self.send_error(401)
            return
        super().do_GET()

    def guess_type(self, path: str) -> str:  # type: ignore[override]
        return JSON if str(path).endswith("index.html") and "/json/" in path else "text/html"

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


class Index:
    def __init__(self, root: Path, url: str, asked: list[str]):
        self.root = root
        self.url = url
        self.asked = asked

    def answer(self, name: str, *head: str, body: bytes = b"") -> None:
        """The server will say this, byte for byte, about ``/raw/NAME``, and then nothing."""
        path = self.root / "raw" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = "\r\n".join(("HTTP/1.0 200 OK", *head, "", ""))
        path.write_bytes(lines.encode("latin-1") + body)

    def add(self, name: str, *, style: str = "html", sha256: str | None = "") -> bytes:
        """A source distribution of my-package and the page that names it; gives its content."""
        packed = BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as tar:
            info = tarfile.TarInfo(f"{name.removesuffix('.tar.gz')}/setup.py")
            info.size = len(code := f"raise SystemExit('{name} was run')".encode())
            tar.addfile(info, BytesIO(code))
        content = packed.getvalue()
        (self.root / name).write_bytes(content)
        digest = hashlib.sha256(content).hexdigest() if sha256 == "" else sha256
        page = self.root / style / "my-package/index.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        if style == "json":
            file = {"filename": name, "url": f"../../{name}", "hashes": {"sha256": digest}}
            page.write_text(json.dumps({"meta": {}, "name": "my-package", "files": [file]}))
        else:
            known = page.read_text() if page.exists() else ""
            fragment = f"#sha256={digest}" if digest else ""
            page.write_text(f'{known}<a href="../../{name}{fragment}">{name}</a>\n')
        return content


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """The only one that pip knows of; serves until the test is over."""
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL", "PIP_NO_INDEX", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    asked: list[str] = []
    over = threading.Event()
    handler = type("Own", (Handler,), {"asked": asked, "over": over})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("PIP_INDEX_URL", f"{url}/html")
    yield Index(tmp_path, url, asked)
    over.set()
    server.shutdown()
    thread.join()
    server.server_close()


def acquire(given: str) -> Acquired:
    with acquired(given, say=lambda _: None) as source:
        return source


@pytest.mark.parametrize("style", ["html", "json"])
def test_a_version_unpacked_and_not_run(
    index: Index, style: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", f"{index.url}/{style}/")
    content = index.add("my_package-1.2.tar.gz", style=style)
    source = acquire("My.Package == 1.2.0")
    assert source.kind is SourceKind.INDEX
    assert source.given == "my-package==1.2.0"
    assert source.identity == f"sha256 {hashlib.sha256(content).hexdigest()}"
    assert source.notes == ()
    assert "was run" in (Path(source.path) / "setup.py").read_text()
    assert Path(source.path).name == "my_package-1.2"


def test_the_newest_version_of_a_name(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    for version in ("1.2", "1.10", "2.0rc1"):
        index.add(f"my_package-{version}.tar.gz")
    (index.root / "empty").mkdir()
    monkeypatch.chdir(index.root / "empty")
    assert acquire("My_Package").given == "my-package==1.10"
    with pytest.raises(UsageError, match="the package index has no source of it"):
        acquire("absent")


def test_fetched_once(index: Index) -> None:
    index.add("my_package-1.2.tar.gz")
    first = acquire("my-package==1.2")
    index.asked.clear()
    assert acquire("my-package==1.2") == first
    assert index.asked == []


def test_changed_on_its_way(index: Index) -> None:
    index.add("my_package-1.2.tar.gz", sha256="0" * 64)
    with pytest.raises(ArtifactError, match="SHA-256"):
        acquire("my-package==1.2")
    assert [path.suffix for path in kept_sources.root().iterdir()] == [".lock"]


def test_no_checksum_is_noted(index: Index) -> None:
    index.add("my_package-1.2.tar.gz", sha256=None)
    assert "no checksum" in acquire("my-package==1.2").notes[0]


def test_versions_that_there_are(index: Index) -> None:
    for version in ("1.2", "1.10", "2.0"):
        index.add(f"my_package-{version}.tar.gz")
    with pytest.raises(UsageError, match=r"no source of my-package 1.3") as caught:
        acquire("my-package==1.3")
    assert "1.2" in caught.value.hints[0]
    assert "newest: 2.0" in caught.value.hints[0]


def test_only_wheels(index: Index) -> None:
    index.add("my_package-1.2.tar.gz")
    page = index.root / "html/my-package/index.html"
    page.write_text('<a href="my_package-1.3-py3-none-any.whl">')
    with pytest.raises(UsageError, match="only as wheels"):
        acquire("my-package==1.3")


@pytest.mark.usefixtures("index")
def test_no_such_package() -> None:
    with pytest.raises(UsageError, match="no source of a package 'absent'"):
        acquire("absent==1")


def test_index_that_does_not_answer(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    with pytest.raises(MissingError, match="package index cannot be reached") as caught:
        acquire("my-package==1.2")
    assert "PIP_INDEX_URL" in caught.value.hints[0]
    index.add("my_package-1.2.tar.gz")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", f"{index.url}/html")
    assert acquire("my-package==1.2")


def test_password_stays_with_its_host(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    index.add("my_package-1.2.tar.gz", style="closed")
    monkeypatch.setenv("PIP_INDEX_URL", f"{index.url}/closed")
    with pytest.raises(MissingError, match="answers 401"):
        acquire("my-package==1.2")
    monkeypatch.setenv("PIP_INDEX_URL", f"{index.url.replace('//', '//me:p%40@')}/closed")
    assert acquire("my-package==1.2")


@pytest.mark.parametrize("form", ["{root}", "file://{root}"])
def test_folder_of_files(index: Index, form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    index.add("my_package-1.2.tar.gz")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", form.format(root=index.root))
    assert acquire("my-package==1.2")
    assert index.asked == []


def test_broken_off(tmp_path: Path, index: Index) -> None:
    index.add("my_package-1.2.tar.gz")
    with opened(f"{index.url}/my_package-1.2.tar.gz", Web()) as answer:
        assert answer.size == (tmp_path / "my_package-1.2.tar.gz").stat().st_size
    with pytest.raises(MissingError, match="answers 404"), opened(f"{index.url}/x", Web()):
        pass


def test_server_that_stops_sending(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    index.add("my_package-1.2.tar.gz")
    page = index.root / "html/my-package/index.html"
    page.write_text('<a href="../../raw/my_package-1.2.tar.gz">')
    index.answer("my_package-1.2.tar.gz", "Content-Length: 1000", body=b"half")
    monkeypatch.setenv("PIP_TIMEOUT", "1")
    with pytest.raises(MissingError, match=r"raw/my_package-1.2.tar.gz: timed out") as caught:
        acquire("my-package==1.2")
    assert caught.value.status is ExitStatus.MISSING
    assert "PIP_TIMEOUT" in caught.value.hints[0]


def test_download_that_cannot_be_written(index: Index, tmp_path: Path) -> None:
    index.add("my_package-1.2.tar.gz")
    file = File(url=f"{index.url}/my_package-1.2.tar.gz")
    places = PackageIndex(roots=(), links=(), web=Web())
    with pytest.raises(StorageError, match=r"cannot write .*my_package"):
        download(file, tmp_path / "my_package-1.2.tar.gz", places, say=lambda _: None)


@pytest.mark.parametrize("length", ["\xb2", "9" * 5000, "-1", "1_0", "\x85", "one"])
def test_odd_content_length(index: Index, length: str) -> None:
    index.answer("x", f"Content-Length: {length}")
    with opened(f"{index.url}/raw/x", Web(timeout_s=5)) as answer:
        assert answer.size is None


@pytest.mark.parametrize(
    "url",
    [
        "http://[x",
        "http://host:port/",
        "http://host:99999999/",
        "http://h\udcff/",
        "http://\u2100/",
    ],
)
def test_odd_url(index: Index, url: str) -> None:
    with pytest.raises(MissingError), opened(url, Web()):
        pass
    try:
        index.answer("sends-on", f"Location: {url}")
    except UnicodeEncodeError:
        return
    path = index.root / "raw/sends-on"
    path.write_bytes(path.read_bytes().replace(b"200 OK", b"302 Found"))
    with pytest.raises(MissingError), opened(f"{index.url}/raw/sends-on", Web(timeout_s=5)):
        pass


@pytest.mark.parametrize("style", ["html", "json"])
def test_links_that_are_not_urls_are_skipped(style: str) -> None:
    links = ["http://[x", "http://\u2100/", "a-1.tar.gz", f"a-{'1' * 5000}.tar.gz"]
    page = "".join(f'<a href="{link}">' for link in links)
    if style == "json":
        page = json.dumps({"files": [{"url": link} for link in links]})
    kind = JSON if style == "json" else "text/html"
    (file,) = parse_page(page.encode(), kind, "http://host/simple/a/")
    assert file.url == "http://host/simple/a/a-1.tar.gz"
    assert str(file.version_of("a")) == "1"


def test_base_that_is_no_url() -> None:
    page = b'<base href="http://[x"><a href="a-1.tar.gz">'
    assert parse_page(page, "text/html", "http://h/s/") == [File(url="http://h/s/a-1.tar.gz")]


@pytest.mark.parametrize("given", ["a>=1", "a~=1.0", "a==one", "a===1", f"a=={'1' * 5000}"])
def test_one_version_is_wanted(given: str) -> None:
    with pytest.raises(UsageError) as caught:
        acquire(given)
    assert "==" in caught.value.hints[0]


@given(st.binary() | st.text().map(str.encode), st.sampled_from([JSON, "text/html", ""]))
def test_any_page(content: bytes, kind: str) -> None:
    try:
        files = parse_page(content, kind, "http://host/simple/x/")
    except StokerError:
        return
    assert all(isinstance(file, File) for file in files)


def test_links_of_a_page() -> None:
    page = b'<base href="/other/"><a href="a-1.tar.gz#sha256=ab">a</a><a>b</a><A HREF="c%2B1.zip">'
    files = parse_page(page, "text/html", "http://host/simple/a/")
    assert files == [
        File(url="http://host/other/a-1.tar.gz", sha256="ab"),
        File(url="http://host/other/c%2B1.zip"),
    ]
    assert files[1].name == "c+1.zip"


@pytest.mark.network
def test_the_index_of_this_machine() -> None:
    """An extension whose build begins with `import torch`."""
    source = acquire("torch-scatter==2.1.2")
    assert (Path(source.path) / "setup.py").is_file()
    assert source.notes == ()
