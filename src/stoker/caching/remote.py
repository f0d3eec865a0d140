"""Asks a remote storage once whether it can be used: a cache would fail silently, or slowly."""

import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import SplitResult, unquote, urlsplit

from stoker.outside.files import folder_problem
from stoker.outside.web import Connection, listens

_TIMEOUT_S = 2.0
_ICECC_PORT = 10245
_SCHEDULER_PORT = 8765  # the next port answers questions in words
_JOBS = re.compile(rb"jobs=\d+/(\d+) ")
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


def icecc_problem(environment: Mapping[str, str]) -> str | None:
    """Return why icecc would compile everything here without a word, or None."""
    sockets = [
        environment.get("ICECC_TEST_SOCKET", ""),
        "/run/icecc/iceccd.socket",
        f"{environment.get('HOME', '')}/.iceccd.socket",
    ]
    if any(listens(path) for path in sockets if path):
        return None
    try:
        with Connection("127.0.0.1", _ICECC_PORT, _TIMEOUT_S):
            return None
    except OSError:
        return "its daemon, iceccd, does not run on this machine"


def scheduler_state(scheduler: str) -> tuple[str | None, int]:
    """Return why icecc's scheduler cannot be used, and how many jobs its machines take at once; 0
    if it does not tell. Its main port is left alone: a stranger there stops it for seconds.
    """
    host, _, port = scheduler.partition(":")
    number = int(port) if port.isdigit() else _SCHEDULER_PORT
    try:
        with Connection(host, number + 1, _TIMEOUT_S) as connection:
            listed = connection.ask(b"listcs\n", until=b"200 done")
    except TimeoutError:  # it is busy, or only its main port is open
        return None, 0
    except OSError as error:
        return f"its scheduler {host} does not answer ({error.strerror or error})", 0
    slots = sum(map(int, _JOBS.findall(listed)))
    return (None if slots else f"its scheduler {host} has no workers"), slots


def _shown(answer: str) -> str:
    return answer.lstrip("-").strip()[:80] or "no answer"


def _connected(parts: SplitResult) -> Connection:
    return Connection(parts.hostname or "", parts.port or _PORTS[parts.scheme], _TIMEOUT_S)


def _asked(connection: Connection, *words: str) -> str:
    """Send a command in redis' protocol and return the first line of the answer."""
    encoded = [word.encode() for word in words]
    parts = [b"*%d\r\n" % len(encoded), *(b"$%d\r\n%b\r\n" % (len(w), w) for w in encoded)]
    return connection.ask(b"".join(parts)).decode(errors="replace").partition("\r\n")[0]
