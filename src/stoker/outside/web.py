"""Reads URLs. Independent of the purpose and of where the user's settings come from."""

import base64
import netrc
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.client import HTTPException
from typing import IO
from urllib.error import HTTPError
from urllib.parse import unquote, urlsplit, urlunsplit
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener
from urllib.response import addinfourl

from stoker import __version__
from stoker.model.errors import MissingError
from stoker.model.value import Value

_MOST_ANSWERED = 1 << 20  # bytes
_LENGTH = re.compile(r"[0-9]{1,18}")


class Web(Value, frozen=True, kw_only=True):
    """The user's proxy and trusted certificates; the defaults are those of the system."""

    certificates: str | None = None  # a file
    proxy: str | None = None
    timeout_s: float = 60  # seconds without any data


class Answer(Value, frozen=True, kw_only=True):
    """A response. ``url`` is the final address, without credentials."""

    url: str
    type: str
    size: int | None
    content: IO[bytes]

    def read(self, most: int) -> bytes:
        """Return up to ``most`` bytes; none at the end."""
        try:
            return self.content.read(most)
        except (OSError, HTTPException) as error:
            raise UnreachableError(f"cannot read {self.url}: {error}") from error


class Connection:
    """A TCP connection to a server that answers short questions; errors are OSError."""

    def __init__(self, host: str, port: int, timeout_s: float):
        self._socket = socket.create_connection((host, port), timeout=timeout_s)

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def ask(self, question: bytes, *, until: bytes = b"") -> bytes:
        """Send a question; return the first part of the answer, or all of it up to ``until``."""
        self._socket.sendall(question)
        answer = self._socket.recv(512)
        while until not in answer and len(answer) < _MOST_ANSWERED:
            if not (part := self._socket.recv(1 << 16)):
                break
            answer += part
        return answer


def listens(path: str) -> bool:
    """Tell whether a server accepts connections at a Unix socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(path)
        except OSError:
            return False
    return True


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


@contextmanager
def opened(url: str, web: Web, *, accept: str = "*/*") -> Iterator[Answer]:
    """Open an http, https or file URL, with the credentials in it or those of ~/.netrc."""
    with _response(url, web, accept) as response:
        length = response.headers["Content-Length"] or ""
        yield Answer(
            url=response.url,
            type=response.headers.get_content_type(),
            size=int(length) if _LENGTH.fullmatch(length) else None,
            content=response,
        )


def size_of(url: str, web: Web) -> int | None:
    """Return the size of a file without reading it; ``None`` if the server does not tell it."""
    with _response(url, web, "*/*", method="HEAD") as response:
        length = response.headers["Content-Length"] or ""
        return int(length) if _LENGTH.fullmatch(length) else None


def _response(url: str, web: Web, accept: str, *, method: str = "GET") -> addinfourl:
    """Return the response. A redirect may lead to any text, so all errors of the URL
    parser count.
    """
    bare = url.rpartition("@")[2]
    try:
        bare, authorization = _taken_apart(url)
        headers = {"Accept": accept, "User-Agent": f"stoker/{__version__}"}
        request = Request(bare, headers=headers, method=method)
        if authorization:  # not for another host that it redirects to
            request.add_unredirected_header("Authorization", authorization)
        proxies = {"http": web.proxy, "https": web.proxy} if web.proxy else None
        context = ssl.create_default_context(cafile=web.certificates)
        opener = build_opener(ProxyHandler(proxies), HTTPSHandler(context=context))
        response: addinfourl = opener.open(request, timeout=web.timeout_s)
    except HTTPError as error:
        error.close()
        kind = AbsentError if error.code in _GONE else UnreachableError
        raise kind(f"{bare} answers {error.code} {error.reason}") from error
    except (OSError, HTTPException, ValueError, OverflowError) as error:
        if isinstance(getattr(error, "reason", error), FileNotFoundError):
            raise AbsentError(f"there is no {bare}") from error
        raise UnreachableError(f"cannot reach {bare}: {error}") from error
    return response


_GONE = (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)


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
