"""Real git repositories for tests, with the configuration that git requires."""

import base64
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

SETTINGS = {
    "user.name": "A Tester",
    "user.email": "tester@example.org",
    "init.defaultBranch": "main",
    "protocol.file.allow": "always",  # for submodules on this machine
}


def git_environment() -> dict[str, str]:
    """Return an environment in which git reads only this configuration."""
    environment = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    environment["GIT_CONFIG_COUNT"] = str(len(SETTINGS))
    for number, (name, value) in enumerate(SETTINGS.items()):
        environment |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return environment


@pytest.fixture
def git_alone(monkeypatch: pytest.MonkeyPatch, need: Callable[[str], str]) -> None:
    """Let git read only this configuration in everything that the test starts."""
    need("git")
    for name, value in git_environment().items():
        monkeypatch.setenv(name, value)


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *words],
        env={**os.environ, **git_environment()},
        stdout=subprocess.PIPE,
        check=True,
    )
    return done.stdout.decode().strip()


def repository(folder: Path, files: dict[str, str], *, tag: str | None = None) -> Path:
    """Commit these files to a repository, which is created if necessary."""
    folder.mkdir(parents=True, exist_ok=True)
    git(folder, "init", "--quiet")
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", "More")
    if tag:
        git(folder, "tag", "--annotate", "--message", tag, tag)
    return folder


def with_submodule(folder: Path, submodule: Path, path: str, *, tag: str | None = None) -> Path:
    """Commit a submodule."""
    git(folder, "submodule", "--quiet", "add", "--force", submodule.as_uri(), path)
    return repository(folder, {}, tag=tag)


def bare_copy(folder: Path, original: Path) -> Path:
    """Return a copy for git's dumb HTTP protocol, which needs only a file server."""
    git(folder.parent, "clone", "--quiet", "--bare", str(original), str(folder))
    git(folder, "update-server-info")
    return folder


@contextmanager
def served(folder: Path, *, login: str = "") -> Iterator[str]:
    """Serve the files of a folder; if ``user:password`` is given, require it."""
    expected = f"Basic {base64.b64encode(login.encode()).decode()}" if login else None

    class Handler(SimpleHTTPRequestHandler):
        def do_GET(self) -> None:
            if expected in (None, self.headers["Authorization"]):
                super().do_GET()
                return
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="here"')
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    handler = partial(Handler, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
