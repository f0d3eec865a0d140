"""Remote caches and workers: whether they answer, and whether they make the same objects."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path
from tempfile import gettempdir
from urllib.parse import SplitResult, unquote, urlsplit

from stoker.outside import process
from stoker.outside.files import folder_of_process, folder_problem
from stoker.outside.web import Connection

_TIMEOUT_S = 2.0
_PORTS = {"redis": 6379, "http": 80, "https": 443, "memcached": 11211}
_WORKER_TIMEOUT_S = 10.0
_MOST = 32  # workers that are asked at once
_PROBE = "probe.cpp"
# Instructions, a name that is mangled and a constant: enough to tell compilers apart, which also
# write their version into each object.
_TEXT = "double probe(double x, long n) { return n > 3 ? x * n : 0.1; }\n"


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


class WorkerProblem(StrEnum):
    SILENT = "it does not compile"
    DIFFERENT = "its compiler makes another object than the one here"


def worker_problems(
    program: str, workers: Sequence[str], compiler: str, environment: Mapping[str, str]
) -> dict[str, WorkerProblem]:
    """Have each worker compile a small file; return what is wrong with those that differ from
    ``compiler`` here. Nothing is known if that does not compile either.
    """
    parent = Path(gettempdir())
    with folder_of_process(parent, "stoker-workers-") as folder, ThreadPoolExecutor(_MOST) as pool:
        (folder / _PROBE).write_text(_TEXT)
        own = {**environment, "DISTCC_DIR": str(folder), "DISTCC_FALLBACK": "0"}
        expected = _object([compiler], folder, "here", environment)

        def problem(number: int) -> WorkerProblem | None:
            hosts = own | {"DISTCC_HOSTS": workers[number]}
            made = _object([program, compiler], folder, str(number), hosts)
            if made is None:
                return WorkerProblem.SILENT
            return None if made == expected else WorkerProblem.DIFFERENT

        found = pool.map(problem, range(len(workers) if expected else 0))
        return {worker: each for worker, each in zip(workers, found, strict=False) if each}


def _object(
    words: Sequence[str], folder: Path, name: str, environment: Mapping[str, str]
) -> bytes | None:
    """Return the object that a command makes of the probe, or None if it fails."""
    made = folder / f"{name}.o"
    command = [*words, "-c", _PROBE, "-o", made.name]
    done = process.run(command, timeout=_WORKER_TIMEOUT_S, env=environment, cwd=folder)
    return made.read_bytes() if done.ok and made.exists() else None
