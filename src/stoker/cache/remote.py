"""Remotes of caches: whether they answer."""

from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from stoker.outside.files import folder_problem
from stoker.outside.web import Connection

_TIMEOUT_S = 2.0
_PORTS = {"redis": 6379, "http": 80, "https": 443, "memcached": 11211}


def remote_problem(url: str) -> str | None:
    """Return why a remote cannot be used, or None if it answers or cannot be asked."""
    parts = urlsplit(url)
    try:
        if parts.scheme == "file":
            return folder_problem(Path(unquote(parts.path)))
        if parts.scheme == "redis":
            return _of_redis(parts)
        if parts.scheme in _PORTS:
            with _connected(parts):
                return None
    except (OSError, ValueError) as error:
        return f"{parts.hostname} does not answer ({getattr(error, 'strerror', None) or error})"
    return None


def _of_redis(parts: SplitResult) -> str | None:
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    with _connected(parts) as connection:
        if user or password:
            names = (user, password) if user and password else (password or user,)
            answer = _asked(connection, "AUTH", *names)
            if not answer.startswith("+"):
                return f"it refuses the login ({_shown(answer)})"
        answer = _asked(connection, "PING")
    return None if answer.startswith("+") else f"it refuses ({_shown(answer)})"


def _shown(answer: str) -> str:
    return answer.lstrip("-").strip()[:80] or "no answer"


def _connected(parts: SplitResult) -> Connection:
    return Connection(parts.hostname or "", parts.port or _PORTS[parts.scheme], _TIMEOUT_S)


def _asked(connection: Connection, *words: str) -> str:
    """Send a command in redis' protocol and return the first line of the answer."""
    encoded = [word.encode() for word in words]
    parts = [b"*%d\r\n" % len(encoded), *(b"$%d\r\n%b\r\n" % (len(w), w) for w in encoded)]
    return connection.ask(b"".join(parts)).decode(errors="replace").partition("\r\n")[0]
