"""The remote storage that each compiler cache can use, and the variables that set it."""

import re
from urllib.parse import parse_qsl, unquote, urlsplit

from stoker.knowledge import Row, table
from stoker.model.errors import UsageError, unknown
from stoker.model.value import version_numbers

_FIELD = re.compile(r"\{([\w-]+)\}")


class CacheDefect(Row, frozen=True, kw_only=True):
    """A compiler that an engine cannot start, from a release on, until one of the engine."""

    engine: str
    compiler: str
    since: str
    fixed: str
    why: str

    def has(self, engine: str, compiler: str) -> bool:
        """Return whether a version of the engine breaks a version of the compiler."""
        old = version_numbers(engine) < version_numbers(self.fixed)
        return old and version_numbers(compiler) >= version_numbers(self.since)


class RemoteSchemes(Row, frozen=True, kw_only=True):
    """Templates of variables, by engine and scheme of an address."""

    ccache: dict[str, dict[str, str]]
    sccache: dict[str, dict[str, str]]
    defect: tuple[CacheDefect, ...]


remote_schemes = table("caches", RemoteSchemes)


def remote_variables(engine: str, url: str) -> dict[str, str]:
    """Return the variables with which an engine uses a remote; raise UsageError if it cannot."""
    schemes: dict[str, dict[str, str]] = getattr(remote_schemes(), engine)
    scheme, separator, _ = url.partition("://")
    if not separator:
        hints = [f"for example {next(iter(schemes))}://HOST:PORT"]
        raise UsageError("--cache-remote is not an address with a scheme", hints=hints)
    if scheme not in schemes:
        raise unknown(f"scheme of --cache-remote for {engine}", scheme, schemes)
    fields = _fields(url)
    filled = {
        name: _FIELD.sub(lambda field: fields.get(field[1], ""), template).rstrip("/")
        for name, template in schemes[scheme].items()
    }
    return {name: value for name, value in filled.items() if value}


def _fields(url: str) -> dict[str, str]:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"--cache-remote is not an address: {error}") from error
    host = parts.hostname or ""
    if not host and parts.scheme not in ("file", "redis+unix"):
        raise UsageError(f"--cache-remote has no host: {parts.scheme}://")
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    login = ":".join(filter(None, (parts.username, parts.password)))
    return {
        **dict(parse_qsl(parts.query)),
        "url": url,
        "host": host,
        "address": f"{host}:{port}" if port else host,
        "user": user if password else "",
        "password": password or user,
        "login": f"{login}@" if login else "",
        "path": parts.path.lstrip("/"),
    }
