"""What pages, servers, locks and addresses may not do to `stoker install`."""

import base64
import hashlib
import json
import os
import shutil
import sys
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import jsonschema  # type: ignore[import-untyped]
import pytest

from catalogue_wheels import empty_environment, make_wheel
from conftest import Stoker, missing
from signed_catalogue import Signed
from stoker.cli.schemas import schema

TOKEN = "t0ken-of-the-user"
LOGIN = f"user:{TOKEN}"


class Server:
    """Serves a folder. ``moved`` are redirects, ``sizes`` what is said of files, ``closed`` paths
    need the login; ``logins`` are the paths to which credentials were sent.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.moved: dict[str, str] = {}
        self.sizes: dict[str, int] = {}
        self.closed: tuple[str, ...] = ()
        self.ranges = True
        self.logins: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                outer.answer(self)

            do_HEAD = do_GET  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, asked: BaseHTTPRequestHandler) -> None:
        login = asked.headers["Authorization"]
        if login:
            self.logins.append(asked.path)
        expected = f"Basic {base64.b64encode(LOGIN.encode()).decode()}"
        path = self.folder / unquote(asked.path.split("?")[0]).strip("/")
        path = path / "index.html" if path.is_dir() else path
        status, content, more = 200, b"", {}
        if asked.path in self.moved:
            status, more = 302, {"Location": self.moved[asked.path]}
        elif asked.path.startswith(self.closed) and self.closed and login != expected:
            status, more = 401, {"WWW-Authenticate": 'Basic realm="x"'}
        elif not path.is_file():
            status = 404
        else:
            content = path.read_bytes()
            wanted = asked.headers["Range"]
            if wanted and self.ranges:
                first, last = wanted.removeprefix("bytes=").split("-")
                content, status = content[int(first) : int(last) + 1], 206
        asked.send_response(status)
        length = self.sizes.get(asked.path, len(content)) if asked.command == "HEAD" else None
        asked.send_header("Content-Length", str(len(content) if length is None else length))
        asked.send_header("Content-Type", "text/html" if path.suffix == ".html" else "x/x")
        for name, text in more.items():
            asked.send_header(name, text)
        asked.end_headers()
        if asked.command == "GET":
            asked.wfile.write(content)

    def page(self, *links: str, root: str = "simple", project: str = "mill") -> str:
        """Write the page of a project; return the root of the index."""
        folder = self.folder / root / project
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "index.html").write_text("\n".join(links))
        return f"{self.url}/{root}"

    def wheel(self, version: str = "1.0", *, root: str = "simple", digest: bool = True) -> str:
        """Put a wheel of mill into an index; return its link."""
        path = make_wheel(self.folder / root / "mill", version=version)
        fragment = f"#sha256={sha256(path)}" if digest else ""
        return f'<a href="{path.name}{fragment}">x</a>'

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "server").mkdir()
    made = Server(tmp_path / "server")
    yield made
    made.close()


@pytest.fixture
def python(tmp_path: Path) -> str:
    return empty_environment(tmp_path / "environment")


def of_index(root: str, **more: str) -> dict[str, str]:
    return {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_FIND_LINKS": "",
        "PIP_INDEX_URL": root,
        "no_proxy": "127.0.0.1",
        **more,
    }


def version_in(python: str) -> str | None:
    site = Path(python).parent.parent
    found = [path.stem for path in site.glob("lib/*/site-packages/mill-*.dist-info")]
    return found[0].removeprefix("mill-") if found else None


@pytest.mark.parametrize("climb", ["%2F..%2F..%2F..%2F..%2F", "%5C..%5C", "%0A", "%1B[31m"])
def test_a_link_that_names_a_file_elsewhere(
    stoker: Stoker, server: Server, tmp_path: Path, python: str, climb: str
) -> None:
    server.ranges = False  # so that it would be downloaded whole
    server.wheel()
    name = f"mill-1.0-1{climb}TARGET-py3-none-any.whl"
    server.moved[f"/simple/mill/{name}"] = "/simple/mill/mill-1.0-py3-none-any.whl"
    root = server.page(f'<a href="{name}">x</a>')
    words = ["install", "mill", "--python", python, "--dry-run", "--no-build"]
    done = stoker(*words, **of_index(root))
    assert done.returncode != 0
    assert "no place has a wheel or a source of mill" in done.stderr
    assert not [path for path in tmp_path.rglob("*") if "TARGET" in path.name]


@pytest.fixture
def signed(stoker: Stoker, server: Server) -> Signed:
    ssh_keygen = shutil.which("ssh-keygen") or missing("ssh-keygen is not installed")
    made = Signed(stoker, server.folder, ssh_keygen)
    public = made.key.with_suffix(".pub").read_text().strip()
    made.settings.write_text(f'[install.keys]\n"{server.url}/catalogue" = ["{public}"]\n')
    assert not stoker("plan", "--trust", str(made.settings)).returncode
    return made


@pytest.mark.parametrize(
    "spelled",
    [
        "http://user:token@127.0.0.1:{port}/catalogue",
        "http://127.0.0.1:0{port}/catalogue",
        "http://127.0.0.1:{port}/./catalogue/",
        "http://127.1:{port}/catalogue",
        "HTTP://127.0.0.1:{port}/%63atalogue/index.html",
        "http://127.0.0.1:{port}//catalogue",
        "http://127.0.0.1:{port}/catalogue?x=1",
    ],
)
def test_another_spelling_of_a_place_that_has_a_key(
    stoker: Stoker, server: Server, signed: Signed, spelled: str
) -> None:
    signed.put(signed.newer.replace(b'"verified":', b'"verified" :'))
    place = spelled.format(port=server.port)
    done = stoker(
        "catalogue", "select", place, "mill", cwd=signed.settings.parent, no_proxy="127.0.0.1"
    )
    assert done.returncode != 0
    refusals = ("its signature was removed", "stoker.toml has no key for")
    assert any(map(done.stderr.__contains__, refusals)), done.stderr
    assert "token@" not in done.stderr


def test_a_folder_that_has_a_key_by_another_name(
    stoker: Stoker, signed: Signed, tmp_path: Path
) -> None:
    public = signed.key.with_suffix(".pub").read_text().strip()
    signed.settings.write_text(f'[install.keys]\n"{signed.place}" = ["{public}"]\n')
    assert not stoker("plan", "--trust", str(signed.settings)).returncode
    signed.put(signed.newer.replace(b'"verified":', b'"verified" :'))
    (tmp_path / "link").symlink_to(signed.place)
    for place in (f"file://{signed.place}", f"{signed.place}/.", str(tmp_path / "link")):
        done = stoker("catalogue", "select", place, "mill", cwd=signed.settings.parent)
        assert "its signature was removed" in done.stderr, place


@pytest.mark.parametrize("only", [["--json", "--dry-run"], ["--print"], ["--lines"], []])
@pytest.mark.parametrize("how", ["INDEX", "--catalogue"])
def test_credentials_are_used_and_never_shown(
    stoker: Stoker, server: Server, tmp_path: Path, python: str, how: str, only: list[str]
) -> None:
    place = server.folder / "closed"
    wheel = make_wheel(tmp_path / "made", variant="cpu")
    published = stoker("catalogue", "publish", str(wheel), "--to", str(place), "--force")
    assert published.returncode == 0, published.stderr
    server.closed = ("/closed",)
    address = f"http://{LOGIN}@127.0.0.1:{server.port}/closed"
    if how == "INDEX" and only == ["--lines"]:
        pytest.skip("--lines is not for one index")
    named = [address, "mill"] if how == "INDEX" else ["mill", "--catalogue", address]
    environment = of_index("", PIP_NO_INDEX="1")
    done = stoker("install", *named, "--python", python, *only, **environment)
    assert done.returncode == 0, done.stderr
    assert TOKEN not in done.stdout + done.stderr
    assert server.logins
    assert (version_in(python) is None) == bool(only)


def test_credentials_of_an_index_reach_its_files_and_no_other_server(
    stoker: Stoker, server: Server, tmp_path: Path, python: str
) -> None:
    (tmp_path / "other").mkdir()
    other = Server(tmp_path / "other")
    try:
        link = server.wheel(root="closed")
        shutil.copytree(server.folder / "closed", other.folder / "closed")
        server.page(link, root="closed")
        server.closed = ("/closed",)
        name = "/closed/mill/mill-1.0-py3-none-any.whl"
        root = f"http://{LOGIN}@127.0.0.1:{server.port}/closed"
        words = ["install", "mill", "--python", python, "--dry-run", "--json"]
        done = stoker(*words, **of_index(root))
        assert done.returncode == 0, done.stderr
        assert TOKEN not in done.stdout + done.stderr
        assert name in server.logins
        server.moved[name] = f"http://user:{TOKEN}@127.0.0.1:{other.port}{name}"
        done = stoker(*words, **of_index(root), STOKER_HOME=str(tmp_path / "home"))
        assert done.returncode == 0, done.stderr
        assert other.logins == []
    finally:
        other.close()


LOCK = """lock-version = "1.0"
created-by = "x"
{top}
[[packages]]
name = "mill"
version = "{version}"
[[packages.wheels]]
name = "{name}"
url = "{url}"
hashes = {{ sha256 = "{digest}" }}
"""


def write_lock(path: Path, file: Path, **changes: str) -> Path:
    words = {
        "top": "",
        "version": "1.0",
        "name": file.name,
        "url": file.as_uri(),
        "digest": sha256(file),
        **changes,
    }
    path.write_text(LOCK.format(**words))
    return path


def test_a_lock_runs_nothing_that_is_not_a_wheel(
    stoker: Stoker, tmp_path: Path, python: str
) -> None:
    source, mark = tmp_path / "mill-1.0.tar.gz", tmp_path / "was run"
    code = f"open({str(mark)!r}, 'w')\nfrom setuptools import setup\nsetup(name='mill')\n".encode()
    with tarfile.open(source, "w:gz") as tar:
        info = tarfile.TarInfo("mill-1.0/setup.py")
        info.size = len(code)
        tar.addfile(info, BytesIO(code))
    lock = write_lock(tmp_path / "pylock.toml", source, name="mill-1.0-py3-none-any.whl")
    done = stoker("install", "--locked", str(lock), "--python", python)
    assert done.returncode != 0
    assert "leads to another file" in done.stderr
    assert not mark.exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"version": "2.0"}, "is not a wheel of mill 2.0"),
        ({"top": 'requires-python = "==2.7.*"'}, "it is for Python ==2.7.*"),
        ({"name": "../mill-1.0-py3-none-any.whl"}, "is not the name of a file"),
    ],
)
def test_a_lock_that_does_not_fit(
    stoker: Stoker, tmp_path: Path, python: str, changes: dict[str, str], said: str
) -> None:
    wheel = make_wheel(tmp_path / "made")
    lock = write_lock(tmp_path / "pylock.toml", wheel, **changes)
    done = stoker("install", "--locked", str(lock), "--python", python)
    assert done.returncode != 0
    assert said in done.stderr
    assert version_in(python) is None


def test_a_lock_with_credentials(
    stoker: Stoker, server: Server, tmp_path: Path, python: str
) -> None:
    wheel = make_wheel(server.folder / "closed")
    server.closed = ("/closed",)
    url = f"http://{LOGIN}@127.0.0.1:{server.port}/closed/{wheel.name}"
    lock = write_lock(tmp_path / "pylock.toml", wheel, url=url)
    words = ["install", "--locked", str(lock), "--python", python]
    printed = stoker(*words, "--print")
    assert wheel.name in printed.stdout
    done = stoker(*words, "--json", **of_index("", PIP_NO_INDEX="1"))
    assert done.returncode == 0, done.stderr
    jsonschema.validate(json.loads(done.stdout), schema("install --locked"))
    assert TOKEN not in printed.stdout + printed.stderr + done.stdout + done.stderr
    assert version_in(python) == "1.0"


def test_what_install_prints_has_a_schema(stoker: Stoker, tmp_path: Path, python: str) -> None:
    wheel, place = make_wheel(tmp_path / "made", variant="cpu"), tmp_path / "catalogue"
    assert not stoker("catalogue", "publish", str(wheel), "--to", str(place), "--force").returncode
    for words, name in (
        (["--dry-run"], "install INDEX --dry-run"),
        ([], "install INDEX"),
    ):
        done = stoker("install", str(place), "mill", "--python", python, "--json", *words)
        assert done.returncode == 0, done.stderr
        jsonschema.validate(json.loads(done.stdout), schema(name))
    nowhere = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1"}
    links = {"PIP_FIND_LINKS": str(tmp_path / "made")}
    words = ["install", "mill", "--slim", "--for", "sm90", "--python", sys.executable, "--json"]
    done = stoker(*words, "--dry-run", **nowhere, **links)
    assert done.returncode == 0, done.stderr
    jsonschema.validate(json.loads(done.stdout), schema("install --slim --dry-run"))


def found(done: Any) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    (one,) = json.loads(done.stdout)["found"]
    return dict(one)


def test_a_dead_index_behind_find_links_is_told(
    stoker: Stoker, tmp_path: Path, python: str
) -> None:
    make_wheel(tmp_path / "links")
    environment = of_index("http://127.0.0.1:9/simple", PIP_FIND_LINKS=str(tmp_path / "links"))
    done = stoker("install", "mill", "--python", python, "--dry-run", "--json", **environment)
    assert found(done)["best"]
    assert "not searched: the package index cannot be reached" in done.stderr


def test_a_file_that_is_said_to_be_huge(stoker: Stoker, server: Server, python: str) -> None:
    good, huge = server.wheel(), server.wheel("2.0")
    server.sizes["/simple/mill/mill-2.0-py3-none-any.whl"] = 10**17
    root = server.page(good, huge)
    done = stoker("install", "mill", "--python", python, "--dry-run", "--json", **of_index(root))
    assert "mill-1.0" in found(done)["best"]["url"]
    assert "the server says that it has 100000000000000000 bytes" in done.stderr


def test_a_page_with_too_many_links(stoker: Stoker, server: Server, python: str) -> None:
    links = (f'<a href="mill-1.{number}-py3-none-any.whl">x</a>' for number in range(300_000))
    root = server.page(*links)
    done = stoker("install", "mill", "--python", python, "--dry-run", **of_index(root))
    assert done.returncode != 0
    assert "lists more than 100,000 files" in done.stderr


def test_a_damaged_file_of_a_catalogue_is_repaired(
    stoker: Stoker, tmp_path: Path, python: str
) -> None:
    wheel, place = make_wheel(tmp_path / "made", variant="cpu"), tmp_path / "catalogue"
    words = ["catalogue", "publish", str(wheel), "--to", str(place), "--force"]
    assert not stoker(*words).returncode
    (file,) = place.rglob("*.whl")
    file.write_bytes(bytes(file.stat().st_size))
    install = ["install", str(place), "mill", "--python", python, "--installer", "pip"]
    broken = stoker(*install)
    assert broken.returncode != 0
    assert "--replace" in broken.stderr
    assert not stoker(*words, "--replace").returncode
    assert stoker(*install).returncode == 0


def test_yanked_releases_need_their_version(stoker: Stoker, server: Server, python: str) -> None:
    yanked = server.wheel("2.0").replace("<a ", '<a data-yanked="it lost data" ')
    root = server.page(server.wheel(), yanked)
    words = ["--python", python, "--dry-run", "--json"]
    for wanted, version in (("mill", "1.0"), ("mill>=1", "1.0"), ("mill==2.0", "2.0")):
        done = stoker("install", wanted, *words, **of_index(root))
        assert f"mill-{version}" in found(done)["best"]["url"]


@pytest.mark.parametrize("first", ["index", "catalogue"])
def test_a_newer_version_of_another_place_is_not_taken(
    stoker: Stoker, server: Server, tmp_path: Path, python: str, first: str
) -> None:
    own, extra = server.page(server.wheel()), server.page(server.wheel("99.0", root="x"), root="x")
    words = ["--python", python, "--installer", "pip"]
    if first == "index":
        environment = of_index(own, PIP_EXTRA_INDEX_URL=extra)
    else:
        wheel, place = make_wheel(tmp_path / "made"), tmp_path / "catalogue"
        publish = ["catalogue", "publish", str(wheel), "--to", str(place), "--force"]
        assert not stoker(*publish).returncode
        words += ["--catalogue", str(place)]
        environment = of_index(extra)
    done = stoker("install", "mill", *words, "--json", **environment)
    assert found(done)["left_out"]
    assert "mill==99.0 takes it" in done.stderr
    assert version_in(python) == "1.0"
    done = stoker("install", "mill==99.0", *words, **environment)
    assert done.returncode == 0, done.stderr
    assert version_in(python) == "99.0"


def test_a_wheel_that_changes_between_judging_and_downloading(
    stoker: Stoker, server: Server, tmp_path: Path, python: str
) -> None:
    """Without a hash on the page, what was judged in parts is not what others receive."""
    made = make_wheel(tmp_path / "made", variant="cpu", metadata="Requires-Python: ==2.7.*\n")
    link = f'<a href="{made.name.replace("+", "%2B")}">x</a>'
    (server.folder / "links").mkdir()
    good = make_wheel(server.folder / "links", variant="cpu")
    (server.folder / "links/index.html").write_text(link)
    environment = of_index("", PIP_NO_INDEX="1", PIP_FIND_LINKS=f"{server.url}/links/")
    words = ["install", "mill", "--python", python]
    dry = stoker(*words, "--dry-run", "--json", **environment)
    assert found(dry)["best"]["sha256"] is None
    answer = server.answer

    def whole_is_other(asked: BaseHTTPRequestHandler) -> None:
        if asked.command == "GET" and not asked.headers["Range"] and ".whl" in asked.path:
            shutil.copy(made, good)
        answer(asked)

    server.answer = whole_is_other  # type: ignore[method-assign]
    done = stoker(*words, **environment)
    assert done.returncode != 0
    assert "it differs from what was judged" in done.stderr
    assert version_in(python) is None
