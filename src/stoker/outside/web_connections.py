"""Keeps connections to web servers open between requests: judging a wheel takes many small ones.

http.client is enough, because requests follow one another and each server needs one connection; a
library with a pool would be one more package for every user.
"""

from collections.abc import Callable
from http.client import HTTPConnection, HTTPException, HTTPResponse
from typing import Any
from urllib.request import Request

Connect = Callable[..., HTTPConnection]


class WebConnections:
    """One open connection for each server; a context manager that closes them all."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, ...], tuple[HTTPConnection, HTTPResponse]] = {}

    def __enter__(self) -> "WebConnections":
        return self

    def __exit__(self, *_: object) -> None:
        for connection, response in self._open.values():
            response.close()
            connection.close()
        self._open.clear()

    def answer(
        self, request: Request, connect: Connect, reused: Callable[[HTTPConnection], None]
    ) -> HTTPResponse:
        """Send a request over the connection that is open, which is told to ``reused``, or over a
        new one that ``connect`` makes.
        """
        tunnel = getattr(request, "_tunnel_host", None)  # behind a proxy, of https
        key = (request.type, request.host, tunnel or "")
        kept = self._taken(key)
        if kept:
            reused(kept)
            try:
                return self._asked(request, kept, key)
            except (ConnectionError, HTTPException):  # the server has closed it in the meantime
                kept.close()
        connection = connect(request.host, timeout=request.timeout)
        if tunnel:
            # The tunnel needs the proxy's credentials, and the server must not see them.
            name = "Proxy-authorization"
            proxy = {name: request.headers[name]} if name in request.headers else {}
            connection.set_tunnel(tunnel, headers=proxy)
        try:
            return self._asked(request, connection, key)
        except BaseException:
            connection.close()
            raise

    def _taken(self, key: tuple[str, ...]) -> HTTPConnection | None:
        """Return a connection whose last response was read to its end; close any other."""
        connection, response = self._open.pop(key, (None, None))
        if connection is None or response is None:
            return None
        is_read = response.length == 0 and not response.will_close
        response.close()
        if is_read:
            return connection
        connection.close()
        return None

    def _asked(
        self, request: Request, connection: HTTPConnection, key: tuple[str, ...]
    ) -> HTTPResponse:
        headers = {name.title(): text for name, text in request.header_items()}
        if key[2]:
            headers.pop("Proxy-Authorization", None)
        connection.request(request.get_method(), request.selector, headers=headers)
        response = connection.getresponse()
        found: Any = response  # urllib's handlers read these two
        found.url, found.msg = request.full_url, response.reason
        self._open[key] = connection, response
        return response
