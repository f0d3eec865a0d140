"""A server of the files in a folder that answers range requests, and counts what it sends."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Sent:
    """What was asked for, the bytes of content that were sent, and over how many connections."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.total = 0
        self.connections = 0
        self.open: list[socket.socket] = []

    def close_open(self) -> None:
        """Close all connections, as a server does after a while without requests."""
        for one in self.open:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class _Files(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # connections stay open

    def setup(self) -> None:
        super().setup()
        self._sent.connections += 1
        self._sent.open.append(self.connection)

    def __init__(self, folder: Path, sent: Sent, *rest: object):
        self._folder, self._sent = folder, sent
        super().__init__(*rest)  # type: ignore[arg-type]

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        """Send a file, or a part of it unless the path begins with /whole/."""
        path = self._folder / self.path.removeprefix("/whole").lstrip("/")
        path = path / "index.html" if path.is_dir() else path
        wanted = self.headers["Range"]
        self._sent.asked.append(wanted or self.command)
        if not path.is_file():
            self.send_error(404)
            return
        content, status = path.read_bytes(), 200
        if wanted and not self.path.startswith("/whole/"):
            first, last = map(int, wanted.removeprefix("bytes=").split("-"))
            content, status = content[first : last + 1], 206
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Type", "text/html" if path.suffix == ".html" else "x/x")
        self.end_headers()
        if body:
            self._sent.total += len(content)
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(folder: Path) -> Iterator[tuple[str, Sent]]:
    """Serve a folder; yield its URL, and what is sent."""
    sent = Sent()
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Files, folder, sent))
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", sent
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
