"""The words that launcher and governor exchange: one line each, fields separated by tabs.

The same bytes are spoken by launcher/protocol.c; tests hold both to the same examples. What
a word causes is decided elsewhere.
"""

import re

from stoker.model.value import Value

VERSION = 7
SAMPLING = 0.1  # seconds between two samples of a launcher, which it reports
PAGE_VERSION = 2  # of the page of leases
PAGE_ROOM = 1024  # its places, of which one is never used, and its families
MOST_REPORTED = 1 << 20  # bytes in a pipe of reports: the most that Linux allows by default

_ESCAPES = {b"\\": b"\\\\", b"\t": b"\\t", b"\n": b"\\n", b"\r": b"\\r", b"\0": b"\\0"}
_SPECIAL = re.compile(rb"[\\\t\n\r\0]")
_UNESCAPES = {escaped[1]: raw for raw, escaped in _ESCAPES.items()}


class ProtocolError(Exception):
    """A line that no launcher of this version would write. The connection is then closed."""


def encode(word: str, *fields: str | bytes | int) -> bytes:
    """Return one message, ready to send."""
    return b"\t".join([word.encode(), *(_escaped(field) for field in fields)]) + b"\n"


def _escaped(field: str | bytes | int) -> bytes:
    raw = field if isinstance(field, bytes) else str(field).encode(errors="surrogateescape")
    return _SPECIAL.sub(lambda found: _ESCAPES[found[0]], raw)


def decode(line: bytes) -> tuple[str, tuple[bytes, ...]]:
    """Return the word and the fields of a line without its newline."""
    word, *fields = line.split(b"\t")
    return word.decode(errors="replace"), tuple(
        map(_unescaped, fields) if b"\\" in line else fields
    )


def _unescaped(field: bytes) -> bytes:
    out, position = bytearray(), 0
    while (found := field.find(b"\\", position)) >= 0:
        raw = _UNESCAPES.get(field[found + 1]) if found + 1 < len(field) else None
        if raw is None:
            raise ProtocolError(f"a backslash that escapes nothing in {field[:80]!r}")
        out += field[position:found] + raw
        position = found + 2
    return bytes(out + field[position:])


class Ask(Value, frozen=True, kw_only=True):
    """A launcher's request to run a command. ``cpus`` is the number of threads it will use, 0 for
    all; of a remote command, the number of jobs that all workers together take, and of a custom one
    the number of jobs that the user gave the build tool, 0 if unknown.
    """

    version: int
    run: int
    directory: str
    cpus: int
    command: tuple[str, ...]
    within: int = 0  # the custom or remote step that has started this command
    custom: bool = False  # not a compiler: it may start some
    once: str = ""  # why a compiler is not known to do the same if it is started twice
    remote: bool = False  # a distributor, whose compiler runs on another machine
    lease: "Lease | None" = None

    @property
    def repeatable(self) -> bool:
        """Whether an attempt may be killed and the command started again."""
        return not (self.custom or self.once)


class Lease(Value, frozen=True, kw_only=True):
    """What a launcher says about leases. ``asked`` and ``started`` are seconds of the monotonic
    clock; a command that has not been ``started`` runs by none.
    """

    family: int
    asked: float
    started: float


class Usage(Value, frozen=True, kw_only=True):
    """The time and memory that an attempt used."""

    wall_us: int
    cpu_us: int
    peak: int
    byte_seconds: int


class Done(Value, frozen=True, kw_only=True):
    """The end of a command. ``tail`` is the end of a failed command's output."""

    status: int
    signal: int
    usage: Usage
    tail: bytes


def read_ask(fields: tuple[bytes, ...]) -> Ask:
    version, run = read_numbers(fields, 2)
    if version != VERSION:
        return Ask(version=version, run=run, directory="", cpus=1, command=())
    if len(fields) < 8:
        raise ProtocolError(f"ask with {len(fields)} fields")
    directory, reason, *command = (
        field.decode(errors="surrogateescape") for field in (fields[2], *fields[6:])
    )
    cpus, within = read_numbers(fields[3:], 2)
    return Ask(
        version=version,
        run=run,
        directory=directory,
        cpus=cpus,
        command=tuple(command),
        within=within,
        custom=fields[5] == b"custom",
        once=(reason or "unknown") if fields[5] == b"once" else "",
        remote=fields[5] == b"remote",
    )


def read_lease(fields: tuple[bytes, ...]) -> Lease:
    family, asked, started = read_numbers(fields, 3)
    return Lease(family=family, asked=asked / 1e6, started=started / 1e6)


def read_done(fields: tuple[bytes, ...]) -> Done:
    status, signal = read_numbers(fields, 2)
    tail = fields[6] if len(fields) > 6 else b""
    return Done(status=status, signal=signal, usage=read_usage(fields[2:]), tail=tail)


def read_usage(fields: tuple[bytes, ...]) -> Usage:
    wall, cpu, peak, byte_seconds = read_numbers(fields, 4)
    return Usage(wall_us=wall, cpu_us=cpu, peak=peak, byte_seconds=byte_seconds)


def read_numbers(fields: tuple[bytes, ...], count: int) -> tuple[int, ...]:
    """Return the first fields as numbers: digits only, at most 63 bits."""
    found = fields[:count]
    if len(found) < count or not all(field.isdigit() and len(field) <= 20 for field in found):
        raise ProtocolError(f"{count} numbers expected, not {found!r:.200}")
    numbers = tuple(map(int, found))
    if max(numbers) >= 1 << 63:
        raise ProtocolError(f"a number is too large in {found!r}")
    return numbers
