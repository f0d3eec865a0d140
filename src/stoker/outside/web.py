"""Reads URLs. Independent of the purpose and of where the user's settings come from.

A server may be hostile: every read has a limit of bytes and of time. Connections, proxies and
certificates are urllib3's (`web_pools.py`).
"""

import base64
import os
import re
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from stoker import __version__
from stoker.model.errors import ArtifactError, MissingError
from stoker.model.value import Value, size
from stoker.outside.address import parse_address, read_address, without_credentials

_LENGTH = re.compile(r"[0-9]{1,18}")
_CHUNK = 1 << 20
_SLOWEST = 1 << 10  # bytes a second, over a whole timeout
_MOST_REDIRECTS = 10
_AGAIN = "try again; PIP_TIMEOUT=SECONDS gives a slow server of packages more time"
_GONE = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)


class Web(Value, frozen=True, kw_only=True):
    """The user's proxy, trusted certificates and credentials; the defaults are the system's."""

    certificates: str | None = None  # a file
    proxy: str | None = None
    timeout_s: float = 60  # seconds without any data
    logins: Mapping[str, str] = {}  # user:password by the origin that they are for

    def with_logins(self, places: Iterable[str]) -> "Web":
        """Return the same with the credentials in the addresses that a user has named."""
        named = [read_address(place) for place in places if "@" in place]
        logins = {one.origin: one.login for one in named if one.login and one.origin}
        return Web(
            certificates=self.certificates,
            proxy=self.proxy,
            timeout_s=self.timeout_s,
            logins={**self.logins, **logins},
        )


class WebAnswer(Value, frozen=True, kw_only=True):
    """A response. ``url`` is the final address, without credentials."""

    url: str
    type: str
    size: int | None
    content: Any  # a file, or a response of urllib3
    timeout_s: float

    def whole(self, most: int) -> bytes:
        """Return the content, of at most so many bytes."""
        return b"".join(self.parts(most))

    def parts(self, most: int) -> Iterator[bytes]:
        """Yield the content part by part. Raise an error if the server sends more than ``most``
        bytes, hardly any, or fewer than it has said.
        """
        arrived, window_s, window = 0, 0.0, 0
        self._check(self.size or 0, most)
        while True:
            began = time.monotonic()
            part = self._part()
            window_s, window = window_s + time.monotonic() - began, window + len(part)
            if not part:
                break
            arrived += len(part)
            self._check(arrived, most)
            if window_s >= self.timeout_s:
                if window < _SLOWEST * window_s:
                    pace = f"{size(round(window / window_s))} a second"
                    raise UnreachableError(f"{self.url} sends only {pace}", hints=[_AGAIN])
                window_s, window = 0.0, 0
            yield part
        if self.size not in (None, arrived):
            what = f"{size(arrived)} of {size(self.size or 0)}"
            raise UnreachableError(f"{self.url} broke off after {what}", hints=[_AGAIN])

    def _check(self, arrived: int, most: int) -> None:
        if arrived > most:
            raise ArtifactError(
                f"{self.url} sends more than {size(most)}, so it is not what it should be",
                hints=["check the address, and whom it belongs to"],
            )

    def _part(self) -> bytes:
        """Return what has arrived; nothing at the end."""
        with _explained(self.url, "read"):
            # Not read(): that waits until all of it has arrived, however slowly.
            part: bytes = self.content.read1(_CHUNK)
            return part


def credentials_file(web: Web) -> bytes:
    """Return the user's ~/.netrc with the credentials of addresses, which no command line shows."""
    path = Path(os.environ.get("NETRC") or Path.home() / ".netrc")
    lines = [path.read_bytes()] if path.is_file() else []
    for origin, login in web.logins.items():
        user, _, password = map(unquote, login.partition(":"))
        words = ("machine", parse_address(origin).host, "login", user, "password", password)
        lines.append(" ".join(words).encode())
    return b"\n".join(lines) + b"\n"


class Connection:
    """A TCP connection to a server that answers short questions; errors are OSError."""

    def __init__(self, host: str, port: int, timeout_s: float):
        self._socket = socket.create_connection((host, port), timeout=timeout_s)

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, question: bytes) -> bytes:
        """Send a question and return the first part of the answer."""
        self._socket.sendall(question)
        return self._socket.recv(512)


def addresses(host: str) -> tuple[str, ...]:
    """Return the addresses of a host; none if its name is unknown."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


class UnreachableError(MissingError):
    """The server did not answer, or is not available now."""


class AbsentError(MissingError):
    """The server has no such file."""


class NoRangesError(MissingError):
    """The server sends files only as a whole."""


@contextmanager
def opened(
    url: str, web: Web, *, accept: str = "*/*", part: tuple[int, int] | None = None
) -> Iterator[WebAnswer]:
    """Open an http, https or file URL, with the credentials in it, those of its origin in ``web``
    or those of ~/.netrc.

    ``part`` asks for the bytes from the first offset up to the second one. A server that sends the
    whole file instead is a `NoRangesError`.
    """
    if url.startswith("file:"):
        with _opened_file(url, web) as answer:
            yield answer
        return
    wanted = {} if part is None else {"Range": f"bytes={part[0]}-{part[1] - 1}"}
    final, response = _response("GET", url, web, {"Accept": accept, **wanted})
    length = response.headers.get("Content-Length", "")
    try:
        if part is not None and (
            response.status != HTTPStatus.PARTIAL_CONTENT or length != str(part[1] - part[0])
        ):
            raise NoRangesError(f"{final} does not send parts of a file")
        yield WebAnswer(
            url=final,
            type=response.headers.get("Content-Type", "").partition(";")[0].strip().lower(),
            size=_size(length),
            content=response,
            timeout_s=web.timeout_s,
        )
    finally:
        _left(response)


def size_of(url: str, web: Web) -> int | None:
    """Return the size of a file without reading it; ``None`` if the server does not tell it."""
    if url.startswith("file:"):
        with _opened_file(url, web) as answer:
            return answer.size
    _, response = _response("HEAD", url, web, {"Accept": "*/*"})
    found = _size(response.headers.get("Content-Length", ""))
    _left(response)
    return found


def _size(length: str) -> int | None:
    return int(length) if _LENGTH.fullmatch(length) else None


def _left(response: Any) -> None:
    """Keep the connection of an answer that was read to its end, and close any other."""
    response.release_conn() if response.length_remaining == 0 else response.close()


@contextmanager
def _opened_file(url: str, web: Web) -> Iterator[WebAnswer]:
    parts = urlsplit(url)
    path = Path(unquote(parts.path))
    with _explained(url, "reach"):
        if parts.netloc not in ("", "localhost"):
            raise ValueError("it names a file of another machine")
        stream = path.open("rb")
    with stream:
        length = path.stat().st_size
        yield WebAnswer(url=url, type="", size=length, content=stream, timeout_s=web.timeout_s)


def _response(method: str, url: str, web: Web, wanted: dict[str, str]) -> tuple[str, Any]:
    """Return the address after all redirects, without credentials, and its answer. Credentials are
    only for the origin that they were given for.
    """
    from stoker.outside.web_pools import ANSWERS, ask, pool

    bare, ends = url.rpartition("@")[2], time.monotonic() + ANSWERS * web.timeout_s
    with _explained(bare, "reach"):
        bare, authorization = _taken_apart(url, web)
        target, redirects = bare, 0
        while True:
            headers = {**wanted, "User-Agent": f"stoker/{__version__}", **authorization}
            made = pool(web.certificates, _proxy(target, web))
            response = ask(made, method, target, headers, web.timeout_s)
            location = response.get_redirect_location()
            if not location:
                break
            response.close()  # its content may never end
            redirects += 1
            if redirects > _MOST_REDIRECTS or time.monotonic() > ends:
                raise ValueError("it leads from one address to the next")
            led, _ = _taken_apart(urljoin(target, location), Web())
            if not led.startswith(("http://", "https://")):
                raise ValueError(f"it leads to {led}, which is neither http nor https")
            if _origin(led) != _origin(target):
                authorization = {}
            target = led
    if response.status >= HTTPStatus.BAD_REQUEST:
        response.close()
        kind = AbsentError if response.status in _GONE else UnreachableError
        raise kind(f"{target} answers {response.status} {response.reason}")
    return target, response


@contextmanager
def _explained(url: str, doing: str) -> Iterator[None]:
    """Turn what urllib3 and the system say into errors for the user."""
    from urllib3.exceptions import HTTPError

    try:
        yield
    except (OSError, HTTPError, ValueError, OverflowError) as error:
        cause: BaseException = getattr(error, "reason", None) or error
        cause = cause if isinstance(cause, TimeoutError) else cause.__cause__ or cause
        if isinstance(cause, FileNotFoundError):
            raise AbsentError(f"there is no {url}") from error
        if type(cause).__name__ == "IncompleteRead":
            raise UnreachableError(f"{url} broke off: {cause}", hints=[_AGAIN]) from error
        late = isinstance(cause, TimeoutError) or doing == "read"
        hint = _AGAIN if late else "check the address and the network"
        raise UnreachableError(f"cannot {doing} {url}: {cause}", hints=[hint]) from error


def _origin(url: str) -> str:
    return parse_address(url).origin


def _proxy(url: str, web: Web) -> str | None:
    """Return the proxy for an address: the user's of pip, else that of the environment."""
    from urllib.request import getproxies, proxy_bypass  # takes as long as reading a small page

    parts = urlsplit(url)
    if not parts.hostname or proxy_bypass(parts.hostname):
        return None
    return web.proxy or getproxies().get(parts.scheme)


def _taken_apart(url: str, web: Web) -> tuple[str, dict[str, str]]:
    """Return a URL without credentials, and the header that contains them."""
    parts = urlsplit(url)
    login, bare = parts.netloc.rpartition("@")[0], without_credentials(url)
    if not login and web.logins:
        login = web.logins.get(_origin(bare), "")
    user, _, password = login.partition(":")
    user, password = unquote(user), unquote(password)
    if not user and parts.hostname:
        import netrc

        with suppress(OSError, ValueError, netrc.NetrcParseError):
            user, _, password = netrc.netrc().authenticators(parts.hostname) or ("", "", "")
    if not user:
        return bare, {}
    pair = base64.b64encode(f"{user}:{password}".encode()).decode()
    return bare, {"Authorization": f"Basic {pair}"}
