"""Addresses of catalogues and indexes: parsed once, so that one place has one text, and so that
credentials are kept apart from what is shown, compared and stored.
"""

import os
import posixpath
import socket
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, unquote, urlsplit, urlunsplit

from stoker.model.errors import UsageError

_PORTS = {"http": 80, "https": 443}
_SAFE = "/~!$&'()*+,;=:@-._{}"  # the braces of a template


class Address(NamedTuple):
    """A place. ``text`` is the same for every spelling of it and has no credentials; ``host`` is
    empty for a folder of this machine; ``origin`` is what the ``login`` is for.
    """

    text: str
    host: str = ""
    origin: str = ""
    login: str = ""  # user:password, percent-encoded as in the address

    def __str__(self) -> str:
        return self.text


def read_address(place: str) -> Address:
    """Return the address that a user or a settings file names."""
    try:
        return parse_address(place)
    except ValueError as error:
        raise UsageError(f"this is not the address of a place: {error}") from None


def parse_address(place: str) -> Address:
    """Return the address in a text; raise ValueError for one that is none."""
    scheme, separator, _ = place.partition("://")
    scheme = scheme.lower()
    if not separator or scheme == "file":
        path = unquote(urlsplit(place).path) if separator else place
        return Address(os.path.realpath(Path(path.removesuffix("index.html")).expanduser()))
    parts = urlsplit(place)
    host, port = _host(parts.hostname or ""), parts.port
    named = f"[{host}]" if ":" in host else host
    if port not in (None, _PORTS.get(scheme)):
        named += f":{port}"
    path = posixpath.normpath(quote(unquote(parts.path), safe=_SAFE).removesuffix("index.html"))
    path = path.lstrip("/") if path != "." else ""
    query = f"?{parts.query}" if parts.query else ""
    return Address(
        text=f"{scheme}://{named}{'/' if path else ''}{path}{query}",
        host=host,
        origin=f"{scheme}://{named}",
        login=parts.netloc.rpartition("@")[0],
    )


def without_credentials(url: str) -> str:
    """Return an address of a file as it is, but for the credentials in it."""
    if "@" not in url:
        return url
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _host(name: str) -> str:
    """Return a host in the form that all its spellings share."""
    name = name.rstrip(".")
    with suppress(OSError):  # 127.1 and 0x7f000001 are addresses of hosts as well
        return socket.inet_ntoa(socket.inet_aton(name))
    return name if name.isascii() else name.encode("idna").decode()
