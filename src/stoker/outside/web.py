"""Reads URLs. Independent of the purpose and of where the user's settings come from.

A server may be hostile: every read has a limit of bytes and of time.
"""

import base64
import netrc
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache, partial
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from threading import Timer
from typing import IO, Any
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import (
    FTPHandler,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    ProxyHandler,
    Request,
    build_opener,
)
from urllib.response import addinfourl

from stoker import __version__
from stoker.model.errors import ArtifactError, MissingError
from stoker.model.value import Value, size
from stoker.outside.web_connections import WebConnections

_LENGTH = re.compile(r"[0-9]{1,18}")
_LAST_PORT = 65535
_CHUNK = 1 << 20
_SLOWEST = 1 << 10  # bytes a second, over a whole timeout
_ANSWERS = 3  # timeouts until all lines before the content must be there, redirects included
_AGAIN = "try again; PIP_TIMEOUT=SECONDS gives a slow server of packages more time"
_GONE = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)


class Web(Value, frozen=True, kw_only=True):
    """The user's proxy and trusted certificates; the defaults are those of the system."""

    certificates: str | None = None  # a file
    proxy: str | None = None
    timeout_s: float = 60  # seconds without any data


class WebAnswer(Value, frozen=True, kw_only=True):
    """A response. ``url`` is the final address, without credentials."""

    url: str
    type: str
    size: int | None
    content: IO[bytes]
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
        try:
            # Not read(): that waits until all of it has arrived, however slowly.
            part: bytes = self.content.read1(_CHUNK)  # type: ignore[attr-defined]
            return part
        except (OSError, HTTPException) as error:
            raise UnreachableError(f"cannot read {self.url}: {error}", hints=[_AGAIN]) from error


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
    url: str,
    web: Web,
    *,
    accept: str = "*/*",
    part: tuple[int, int] | None = None,
    connections: WebConnections | None = None,
) -> Iterator[WebAnswer]:
    """Open an http, https or file URL, with the credentials in it or those of ~/.netrc.

    ``part`` asks for the bytes from the first offset up to the second one. A server that sends the
    whole file instead is a `NoRangesError`. ``connections`` are used and kept open.
    """
    wanted = {} if part is None else {"Range": f"bytes={part[0]}-{part[1] - 1}"}
    headers = {"Accept": accept, **wanted}
    with _response(url, web, headers, connections=connections) as response:
        length = response.headers["Content-Length"] or ""
        if part is not None and (
            response.status != HTTPStatus.PARTIAL_CONTENT or length != str(part[1] - part[0])
        ):
            raise NoRangesError(f"{response.url} does not send parts of a file")
        yield WebAnswer(
            url=response.url,
            type=response.headers.get_content_type(),
            size=int(length) if _LENGTH.fullmatch(length) else None,
            content=response,
            timeout_s=web.timeout_s,
        )


def size_of(url: str, web: Web, connections: WebConnections | None = None) -> int | None:
    """Return the size of a file without reading it; ``None`` if the server does not tell it."""
    headers = {"Accept": "*/*"}
    with _response(url, web, headers, method="HEAD", connections=connections) as response:
        length = response.headers["Content-Length"] or ""
        return int(length) if _LENGTH.fullmatch(length) else None


def _response(
    url: str,
    web: Web,
    wanted: Mapping[str, str],
    *,
    method: str = "GET",
    connections: WebConnections | None = None,
) -> addinfourl:
    """Return the response. A redirect may lead to any text, so all errors of the URL
    parser count.
    """
    bare, watch = url.rpartition("@")[2], _Watch(_ANSWERS * web.timeout_s)
    try:
        bare, authorization = _taken_apart(url)
        headers = {**wanted, "User-Agent": f"stoker/{__version__}"}
        request = Request(bare, headers=headers, method=method)
        if authorization:  # not for another host that it redirects to
            request.add_unredirected_header("Authorization", authorization)
        with watch:
            proxies = {"http": web.proxy, "https": web.proxy} if web.proxy else None
            context = _context(web.certificates)
            handlers = (_Http(watch, connections), _Https(watch, connections, context=context))
            opener = build_opener(ProxyHandler(proxies), *handlers, _Redirects(), _NoFtp())
            response: addinfourl = opener.open(request, timeout=web.timeout_s)
        if watch.late:  # an interrupted answer looks like a short one
            response.close()
            raise TimeoutError
    except HTTPError as error:
        error.close()
        kind = AbsentError if error.code in _GONE else UnreachableError
        raise kind(f"{bare} answers {error.code} {error.reason}") from error
    except (OSError, HTTPException, ValueError, OverflowError) as error:
        reason: object = watch.late or getattr(error, "reason", error)
        if isinstance(reason, FileNotFoundError):
            raise AbsentError(f"there is no {bare}") from error
        hint = _AGAIN if isinstance(reason, TimeoutError) else "check the address and the network"
        raise UnreachableError(f"cannot reach {bare}: {reason}", hints=[hint]) from error
    return response


@cache
def _context(certificates: str | None) -> ssl.SSLContext:
    """Return the trusted certificates, which take longer to read than a request."""
    return ssl.create_default_context(cafile=certificates)


class _Watch:
    """Ends connections whose server sends the lines before the content too slowly: a timeout of a
    socket begins again with each byte.
    """

    def __init__(self, seconds: float):
        self.late: TimeoutError | None = None
        self._seconds = seconds
        self._connections: list[HTTPConnection] = []
        self._responses: list[HTTPResponse] = []
        self._timer = Timer(seconds, self._end)
        self._timer.daemon = True

    def made(self, kind: Callable[..., HTTPConnection]) -> Callable[..., HTTPConnection]:
        def make(*words: Any, **options: Any) -> HTTPConnection:
            connection = kind(*words, **options)
            if connection.port > _LAST_PORT:  # the socket module would leave a socket open
                raise ValueError(f"there is no port {connection.port}")
            self.watches(connection)
            return connection

        return make

    def watches(self, connection: HTTPConnection) -> None:
        self._connections.append(connection)

    def kept(self, response: HTTPResponse) -> HTTPResponse:
        """Return the response; it is closed if the block fails."""
        self._responses.append(response)
        return response

    def _end(self) -> None:
        self.late = TimeoutError(f"it has not answered after {self._seconds:g} s")
        for connection in self._connections:
            with suppress(OSError, AttributeError):  # it may be closed, or not yet connected
                connection.sock.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._timer.cancel()
        for response in self._responses if kind else ():  # such as one with a bad redirect
            response.close()


class _Http(HTTPHandler):
    def __init__(self, watch: _Watch, connections: WebConnections | None):
        super().__init__()
        self._watch, self._connections = watch, connections

    def http_open(self, req: Request) -> Any:
        kind = self._watch.made(HTTPConnection)
        if self._connections:
            return self._watch.kept(self._connections.answer(req, kind, self._watch.watches))
        return self._watch.kept(self.do_open(kind, req))


class _Https(HTTPSHandler):
    def __init__(
        self, watch: _Watch, connections: WebConnections | None, *, context: ssl.SSLContext
    ):
        super().__init__(context=context)
        self._watch, self._connections, self._own_context = watch, connections, context

    def https_open(self, req: Request) -> Any:
        kind = partial(self._watch.made(HTTPSConnection), context=self._own_context)
        if self._connections:
            return self._watch.kept(self._connections.answer(req, kind, self._watch.watches))
        return self._watch.kept(self.do_open(kind, req))


class _Redirects(HTTPRedirectHandler):
    """Follows redirects without reading their content, which urllib would do to its end."""

    def redirect_request(self, req: Request, fp: IO[bytes], *words: Any) -> Request | None:
        found = super().redirect_request(req, fp, *words)
        fp.close()
        return found


class _NoFtp(FTPHandler):
    """Refuses addresses to which urllib would otherwise follow a redirect."""

    def ftp_open(self, req: Request) -> Any:
        raise ValueError(f"it leads to {req.full_url}, which is neither http nor https")


def _taken_apart(url: str) -> tuple[str, str | None]:
    """Return a URL without credentials, and the header that contains them."""
    parts = urlsplit(url)
    login, _, host = parts.netloc.rpartition("@")
    user, _, password = login.partition(":")
    if not login and parts.hostname:
        with suppress(OSError, ValueError, netrc.NetrcParseError):
            user, _, password = netrc.netrc().authenticators(parts.hostname) or ("", "", "")
    if not user:
        return urlunsplit(parts._replace(netloc=host)), None
    pair = f"{unquote(user)}:{unquote(password)}"
    header = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return urlunsplit(parts._replace(netloc=host)), header
