"""Connections to web servers, kept open between requests. Importing this imports urllib3, which
takes longer than anything else here: only `web.py` does, when the first address is read.
"""

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from threading import Timer
from typing import Any

import urllib3
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.response import BaseHTTPResponse, HTTPResponse
from urllib3.util import make_headers, parse_url

ANSWERS = 3  # timeouts until all lines before the content must be there
_RETRIES = urllib3.Retry(connect=2, read=1, redirect=False, status=0, other=0, backoff_factor=0.2)


@contextmanager
def _in_time(connection: HTTPConnection) -> Iterator[None]:
    """Close a connection if the block takes too long: a timeout of a socket begins again with each
    byte.
    """
    seconds = ANSWERS * float(connection.timeout or 0)
    late = False

    def end() -> None:
        nonlocal late
        late = True
        with suppress(OSError, AttributeError):
            connection.sock.shutdown(socket.SHUT_RDWR)

    timer = Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    except Exception as error:
        if late:
            raise TimeoutError(f"it has not answered after {seconds:g} s") from error
        raise
    finally:
        timer.cancel()
    if late:  # an interrupted answer looks like a short one
        raise TimeoutError(f"it has not answered after {seconds:g} s")


class _Http(HTTPConnection):
    def getresponse(self) -> HTTPResponse:  # type: ignore[override]
        with _in_time(self):
            return super().getresponse()


class _Https(HTTPSConnection):
    def connect(self) -> None:
        with _in_time(self):
            super().connect()

    def getresponse(self) -> HTTPResponse:  # type: ignore[override]
        with _in_time(self):
            return super().getresponse()


class _HttpPool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Http


class _HttpsPool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _Https


@cache
def pool(certificates: str | None, proxy: str | None) -> urllib3.PoolManager:
    """Return the connections that are kept open for one proxy and one file of certificates."""
    options: dict[str, Any] = {"maxsize": 8, "ssl_context": _context(certificates)}
    if proxy:
        proxy = proxy if "://" in proxy else f"http://{proxy}"
        login = parse_url(proxy).auth
        headers = make_headers(proxy_basic_auth=login) if login else None
        made: urllib3.PoolManager = urllib3.ProxyManager(proxy, proxy_headers=headers, **options)
    else:
        made = urllib3.PoolManager(**options)
    made.pool_classes_by_scheme = {"http": _HttpPool, "https": _HttpsPool}
    return made


@cache
def _context(certificates: str | None) -> ssl.SSLContext:
    """Return the trusted certificates, which take longer to read than a request."""
    return ssl.create_default_context(cafile=certificates)


def ask(
    made: urllib3.PoolManager, method: str, url: str, headers: dict[str, str], timeout_s: float
) -> BaseHTTPResponse:
    """Send one request; a redirect is an answer, of which nothing is read."""
    return made.urlopen(
        method,
        url,
        headers=headers,
        redirect=False,
        retries=_RETRIES,
        timeout=timeout_s,
        preload_content=False,
        decode_content=False,
    )
