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

from stoker.build.acquire import store
from stoker.build.acquire.index import File, parse_page
from stoker.build.acquire.store import acquired
from stoker.model.errors import ArtifactError, MissingError, StokerError, UsageError
from stoker.model.source import Acquired, SourceKind
from stoker.outside.web import Web, opened

JSON = "application/vnd.pypi.simple.v1+json"


class Handler(SimpleHTTPRequestHandler):
    """Pages as JSON for whoever takes it; the folder ``closed`` wants a password."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
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
    handler = type("Own", (Handler,), {"asked": asked})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(tmp_path)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    url = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("PIP_INDEX_URL", f"{url}/html")
    yield Index(tmp_path, url, asked)
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
    assert [path.suffix for path in store.root().iterdir()] == [".lock"]


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


@pytest.mark.parametrize("given", ["a>=1", "a~=1.0", "a==one", "a===1", "a==1,<2"])
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
