"""The base of all values, and how sizes, durations and numbers are read and written."""

import re
from _thread import allocate_lock  # without threading, which a start can do without
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

# What a figure of a file may be. It is checked when a value is converted or decoded, which is how
# history, traces and catalogues come in.
Count = Annotated[int, Meta(ge=0, le=1 << 20)]
Bytes = Annotated[int, Meta(ge=0, le=1 << 60)]
Seconds = Annotated[float, Meta(ge=0.0, le=1e10)]
ByteSeconds = Annotated[float, Meta(ge=0.0, le=1e28)]
Ratio = Annotated[float, Meta(ge=0.0, le=1e20)]
Factor = Annotated[float, Meta(ge=1e-6, le=1e6)]
Percent = Annotated[int, Meta(ge=0, le=100)]

Kind = TypeVar("Kind")
_prepared: set[Any] = set()
_preparing = allocate_lock()

# What decoding untrusted JSON or TOML may raise, also for bytes that are not text and deep nesting.
UNDECODABLE = (msgspec.MsgspecError, ValueError, RecursionError)
_MOST_TOML = 1 << 20  # characters
_MOST_DOTS = 2000  # of one line
_AMOUNT = re.compile(r"(\d{1,18}(?:\.\d{1,18})?)([KMGT]?)(?:I?B)?", re.ASCII)
_TIME = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)(min|[smhdw])", re.ASCII)
_NUMBERS = re.compile(r"\d+(?:\.\d+)*", re.ASCII)
_MOST_DIGITS = 100  # of a number in a version
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400, "w": 604_800}
_LARGEST = 1 << 100  # bytes
_STEPS = (("TiB", 1024**4), ("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024))


def checked_toml(text: str) -> str:
    """Return the text, or raise ValueError where Python's reader would take much too long: for
    keys of many parts its time grows with the square of their number.
    """
    if len(text) > _MOST_TOML:
        raise ValueError(f"{len(text):,} characters are too many")
    for number, line in enumerate(text.splitlines(), start=1):
        if line.count(".") > _MOST_DOTS:
            raise ValueError(f"more than {_MOST_DOTS} dots (at line {number})")
    return text


def toml_value(value: Any) -> str:
    """Return a value as TOML, on one line; a ``None`` in a table is left out."""
    match value:
        case dict():
            rows = (f"{_toml_key(k)} = {toml_value(v)}" for k, v in value.items() if v is not None)
            return "{ " + ", ".join(rows) + " }"
        case list() | tuple():
            return "[" + ", ".join(map(toml_value, value)) + "]"
        case _:
            # JSON writes texts and numbers as TOML does, but for a character that TOML escapes.
            return json_bytes(value).decode().replace("\x7f", "\\u007f")


def _toml_key(name: str) -> str:
    bare = name.replace("_", "").replace("-", "")
    return name if bare.isascii() and bare.isalnum() else toml_value(name)


class Value(msgspec.Struct, frozen=True, kw_only=True):
    """The base class of values: immutable, compared by content, stored as JSON as declared."""


def prepared(kind: Kind) -> Kind:
    """Return a type after msgspec has built its tables of all structs in it. Each type that is
    decoded or converted to is prepared first.

    msgspec builds the table of a struct when it is first decoded, and a thread that meanwhile
    decodes another value uses the half of it: the process crashes (seen with msgspec 0.22).
    """
    if kind not in _prepared:
        with _preparing:
            msgspec.json.Decoder(kind)
            _prepared.add(kind)
    return kind


def whole_number(text: str, most: int = 20) -> int | None:
    """Return the number that up to ``most`` plain digits stand for.

    ``int`` alone takes underscores, signs and other scripts' digits, and raises an error for
    thousands of digits. No counter of the kernel has more than 20.
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) <= most else None


def count_of(text: str) -> int | None:
    """Return the number of jobs, CPUs or the like that a user has written."""
    return whole_number(text, 6)


def size(amount: float) -> str:
    """Return a size as text: ``1.5 GiB``, ``283 MiB``, ``12 B``."""
    amount = min(amount, _LARGEST)  # a longer number of a file would not fit into a float
    for unit, step in _STEPS:
        if amount >= step:
            number = amount / step
            return f"{number:.1f} {unit}" if number < 100 else f"{number:.0f} {unit}"
    return f"{amount:.0f} B"


def json_bytes(value: Any, order: Literal["deterministic"] | None = None) -> bytes:
    """Return a value as JSON. What is not UTF-8 in a file name is written as an escape: ``\\udcff``
    for the byte ff.
    """
    try:
        return msgspec.json.encode(value, order=order)
    except UnicodeEncodeError:
        return msgspec.json.encode(_escaped(msgspec.to_builtins(value)), order=order)


def indented_json(value: Any) -> bytes:
    """Return a value as JSON for files that people read."""
    return msgspec.json.format(json_bytes(value))


def _escaped(value: Any) -> Any:
    match value:
        case str():
            return value.encode(errors="backslashreplace").decode()
        case dict():
            return {_escaped(key): _escaped(each) for key, each in value.items()}
        case list() | tuple():
            return [_escaped(each) for each in value]
        case _:
            return value


def duration(seconds: float) -> str:
    """Return a duration as text: ``1 h 36 min``, ``2 min 9 s``, ``8 s``.

    It is rounded down, so that the parts of a sum never exceed it.
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes_left} min"
    parts = [f"{minutes} min"] if minutes else []
    return " ".join([*parts, f"{rest} s"] if rest or not minutes else parts)


def counted(number: int, what: str) -> str:
    """Return ``1 step`` or ``2 steps``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def first_of(words: Sequence[str], most: int, separator: str = ", ") -> str:
    """Return the first words, and how many there are besides: ``a, b and 3 more``."""
    more = f" and {len(words) - most} more" if len(words) > most else ""
    return separator.join(words[:most]) + more


def cut_off(text: str, most: int) -> str:
    """Return the beginning of a text that is longer than ``most`` characters."""
    return text if len(text) <= most else f"{text[:most]}..."


def minor_release(version: str) -> str:
    """Return ``3.11`` for ``3.11.2``."""
    return ".".join(version.split(".")[:2])


def version_numbers(version: str) -> tuple[int, ...]:
    """Return what compares versions of tools, toolkits and drivers: the numbers that a version
    begins with, without zeros at the end, because 12.8 and 12.8.0 are the same.

    Versions of Python packages have more than numbers: ``model/distribution.py`` reads them.
    """
    found = _NUMBERS.match(version)
    numbers = [int(part[:_MOST_DIGITS]) for part in found[0].split(".")] if found else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)


def major(version: str | None) -> int:
    """Return the first number of a version; 0 if there is none."""
    return next(iter(version_numbers(version or "")), 0)


def second_count(text: str) -> float | None:
    """Return the seconds of ``30d``, ``12h``, ``5h30m`` or ``0``; ``None`` for any other text."""
    words = text.strip().lower()
    if words and not words.strip("0."):
        return 0.0 if _TIME.fullmatch(f"{words}s") else None
    found = _TIME.findall(words)
    if not found or "".join(number + unit for number, unit in found) != words:
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in found)


def byte_count(text: str) -> int | None:
    """Return the bytes of ``8G``, ``512M`` or ``1.5GiB`` (powers of 1024); ``None`` for
    other text.
    """
    found = _AMOUNT.fullmatch(text.strip().upper())
    return int(float(found[1]) * 1024 ** " KMGT".index(found[2] or " ")) if found else None
