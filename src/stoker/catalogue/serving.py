"""A catalogue served over HTTP from a folder: read-only, for trying it out.

It adds two things to Python's web server: JSON pages for installers that ask for them, and parts of
files, by which a wheel is judged before it is downloaded.
"""

import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import unquote, urlsplit

from stoker.catalogue.pages import HTML_TYPE, JSON_TYPE
from stoker.model.errors import StorageError

_NOWHERE = "/nonexistent"
_PART = re.compile(r"bytes=(\d{1,18})-(\d{1,18})")
_QUALITY = re.compile(r";\s*q=([01](?:\.\d{1,3})?)")


def make_server(
    root: Path, *, host: str, port: int, log: Callable[[str], None]
) -> ThreadingHTTPServer:
    """Listen, but answer only once `serve_forever` is called; port 0 takes a free one."""
    try:
        return ThreadingHTTPServer((host, port), partial(_Handler, root.resolve(), log))
    except OSError as error:
        hints = ["--port 0 takes a free port"]
        raise StorageError(
            f"cannot listen on {host}:{port}: {error.strerror or error}", hints=hints
        ) from error


class _Handler(SimpleHTTPRequestHandler):
    """GET and HEAD only; every other method is answered with 501."""

    server_version = "stoker"
    sys_version = ""
    protocol_version = "HTTP/1.1"

    def __init__(self, root: Path, log: Callable[[str], None], *arguments: Any):
        self._root = root
        self._log = log
        super().__init__(*arguments, directory=str(root))

    def handle(self) -> None:
        with suppress(ConnectionError):  # an installer that has what it wants may hang up
            super().handle()

    def translate_path(self, path: str) -> str:
        """Return a file of the catalogue. Hidden names and links that lead outside count as
        missing.
        """
        words = [word for word in unquote(urlsplit(path).path).split("/") if word]
        if any(word.startswith(".") or "\0" in word or "\\" in word for word in words):
            return _NOWHERE
        target = self._root.joinpath(*words).resolve()
        if not target.is_relative_to(self._root):
            return _NOWHERE
        if not target.is_dir():
            return str(target)
        page = target / "index.json"
        wants_json = words and page.is_file() and prefers_json(self.headers.get("Accept", ""))
        # A path that ends with a slash is a folder to the base class, which adds index.html.
        return str(page) if wants_json and path.endswith("/") else f"{target}/"

    def send_head(self) -> Any:
        """Send the headers, and return what follows them."""
        part = _PART.fullmatch(self.headers.get("Range", ""))
        path = Path(self.translate_path(self.path))
        if part is None or not path.is_file():
            return super().send_head()
        size, first = path.stat().st_size, int(part[1])
        end = min(int(part[2]) + 1, size)
        if first >= end:
            self.send_error(HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE)
            return None
        file = path.open("rb")
        file.seek(first)
        self.send_response(HTTPStatus.PARTIAL_CONTENT)
        self.send_header("Content-Type", self.guess_type(path))
        self.send_header("Content-Length", str(end - first))
        self.send_header("Content-Range", f"bytes {first}-{end - 1}/{size}")
        self.end_headers()
        return _Part(file, end - first)

    def list_directory(self, path: Any) -> None:
        """Refuse to list folders: only the pages of the catalogue list files."""
        del path
        self.send_error(HTTPStatus.NOT_FOUND)

    def guess_type(self, path: Any) -> str:
        name = str(path)
        if name.endswith("/index.json"):
            return JSON_TYPE
        if name.endswith(".json"):
            return "application/json"
        return "text/html; charset=utf-8" if name.endswith(".html") else "application/octet-stream"

    def end_headers(self) -> None:
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Vary", "Accept")
        super().end_headers()

    def log_message(self, format: str, *values: Any) -> None:  # noqa: A002
        self._log(format % values)


class _Part:
    """The next bytes of a file, and no more."""

    def __init__(self, file: BinaryIO, length: int):
        self._file = file
        self._left = length

    def read(self, most: int) -> bytes:
        data = self._file.read(min(most, self._left))
        self._left -= len(data)
        return data

    def close(self) -> None:
        self._file.close()


def prefers_json(accept: str) -> bool:
    """Return whether an installer ranks the JSON form of PEP 691 above HTML."""
    qualities = {}
    for part in accept.split(",")[:50]:
        kind = part.partition(";")[0].strip().lower()
        found = _QUALITY.search(part)
        qualities[kind] = float(found[1]) if found else 1.0
    html = max(qualities.get(kind, 0.0) for kind in ("text/html", HTML_TYPE))
    return qualities.get(JSON_TYPE, 0.0) > 0 and qualities[JSON_TYPE] >= html
