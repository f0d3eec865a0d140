"""Wheels for tests, written with Python's zipfile: correct, or broken in one place.

This module does not use the engine under test, so that two independent programs must agree.
"""

import base64
import hashlib
import io
import re
import struct
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

NAME = "mill-1.2-py3-none-any.whl"
DIST_INFO = "mill-1.2.dist-info"
METADATA = b"Metadata-Version: 2.1\nName: mill\nVersion: 1.2\n\nGrinds.\n"
WHEEL = b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
CODE = b"def grind(corn):\n    return [grain * 2 for grain in corn]\n" * 40
LIBRARY = bytes(range(256)) * 500


def digest(content: bytes) -> str:
    raw = hashlib.sha256(content).digest()
    return "sha256=" + base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def members(**more: bytes) -> dict[str, bytes]:
    """Return the files of a small wheel, without RECORD."""
    return {
        "mill/__init__.py": CODE,
        "mill/lib/libmill.so": LIBRARY,
        "mill/empty.py": b"",
        **more,
        f"{DIST_INFO}/METADATA": METADATA,
        f"{DIST_INFO}/WHEEL": WHEEL,
    }


def record(contents: Mapping[str, bytes], dist_info: str = DIST_INFO) -> bytes:
    rows = [f"{name},{digest(content)},{len(content)}" for name, content in contents.items()]
    return "\n".join([*rows, f"{dist_info}/RECORD,,", ""]).encode()


def zipped(
    contents: Mapping[str, bytes],
    *,
    method: int = zipfile.ZIP_DEFLATED,
    describe: bool = False,
    zip64: bool = False,
    modes: Mapping[str, int] | None = None,
) -> bytes:
    """Return a zip file; with ``describe`` the sizes follow the data, as in a pipe."""
    target = io.BytesIO()
    stream = _Pipe(target) if describe else target
    with zipfile.ZipFile(stream, "w") as archive:
        for name, content in contents.items():
            info = zipfile.ZipInfo(name, date_time=(2026, 7, 3, 22, 18, 34))
            info.compress_type = method
            info.external_attr = (0o100000 | (modes or {}).get(name, 0o644)) << 16
            with archive.open(info, "w", force_zip64=zip64) as member:
                member.write(content)
    return target.getvalue()


class _Pipe(io.RawIOBase):
    """A stream that can only be written to."""

    def __init__(self, target: io.BytesIO):
        self._target = target

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        return self._target.write(data)


def wheel_bytes(contents: Mapping[str, bytes] | None = None) -> bytes:
    contents = members() if contents is None else contents
    return zipped({**contents, f"{DIST_INFO}/RECORD": record(contents)})


def make_wheel(folder: Path, content: bytes | None = None) -> Path:
    path = folder / NAME
    path.write_bytes(wheel_bytes() if content is None else content)
    return path


def packed(folder: Path, into: Path) -> Path:
    """Write the content of a folder as a wheel, with a new RECORD."""
    (dist_info,) = folder.glob("*.dist-info")
    names = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "RECORD")
    files = {path.relative_to(folder).as_posix(): path for path in names}
    contents = {name: path.read_bytes() for name, path in files.items()}
    tag = re.findall(r"^Tag: (.+)$", (dist_info / "WHEEL").read_text(), re.MULTILINE)
    interpreters, abis, platforms = (
        ".".join(sorted({*part})) for part in zip(*(t.split("-") for t in tag), strict=True)
    )
    into.mkdir(parents=True, exist_ok=True)
    target = into / f"{dist_info.stem}-{interpreters}-{abis}-{platforms}.whl"
    modes = {name: path.stat().st_mode & 0o777 for name, path in files.items()}
    written = record(contents, dist_info.name)
    target.write_bytes(zipped({**contents, f"{dist_info.name}/RECORD": written}, modes=modes))
    return target


def sparse_zip(path: Path, name: str, size: int, crc: int = 0) -> None:
    """Write one stored member of zeros, of any size: a sparse file that needs no disk space."""
    raw = name.encode()
    wide = struct.pack("<2H2Q", 1, 16, size, size)
    sizes = (crc, 2**32 - 1, 2**32 - 1, len(raw), len(wide))
    local = struct.pack("<4s5H3L2H", b"PK\x03\x04", 45, 0, 0, 0, 33, *sizes) + raw + wide
    entry = struct.pack("<4s6H3L2H", b"PK\x01\x02", 0x32D, 45, 0, 0, 0, 33, *sizes)
    directory = entry + struct.pack("<3H2L", 0, 0, 0, 0o100644 << 16, 0) + raw + wide
    start = len(local) + size
    place = (1, 1, len(directory), start)
    end64 = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, *place)
    locator = struct.pack("<4sLQL", b"PK\x06\x07", 0, start + len(directory), 1)
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 1, 1, len(directory), 2**32 - 1, 0)
    with path.open("wb") as stream:
        stream.write(local)
        stream.seek(start)
        stream.write(directory + end64 + locator + end)


def unpacked(path: Path) -> dict[str, bytes]:
    """Return the members of a wheel as zipfile reads them, in the order of the file."""
    with zipfile.ZipFile(path) as archive:
        return {info.filename: archive.read(info) for info in archive.infolist()}


# Offsets of fields in an entry of the central directory and in a local header.
FLAGS, METHOD, CRC, COMPRESSED, SIZE = 8, 10, 16, 20, 24
LOCAL_FLAGS, LOCAL_METHOD, LOCAL_CRC, LOCAL_COMPRESSED, LOCAL_SIZE = 6, 8, 14, 18, 22
SYSTEM, ATTRIBUTES, OFFSET, NAME_AT = 5, 38, 42, 46


def entry_at(data: bytes, name: str) -> int:
    """Return the offset of a member's entry in the central directory."""
    position = struct.unpack_from("<L", data, len(data) - 6)[0]
    while data[position : position + 4] == b"PK\x01\x02":
        lengths = struct.unpack_from("<3H", data, position + 28)
        if data[position + NAME_AT :][: lengths[0]] == name.encode():
            return int(position)
        position += NAME_AT + sum(lengths)
    raise KeyError(name)


def header_at(data: bytes, name: str) -> int:
    """Return the offset of a member's local header."""
    return int(struct.unpack_from("<L", data, entry_at(data, name) + OFFSET)[0])


def patched(data: bytes, position: int, form: str, value: int) -> bytes:
    result = bytearray(data)
    struct.pack_into(form, result, position, value)
    return bytes(result)


def renamed(data: bytes, old: str, new: str) -> bytes:
    """Replace a name by another of the same length, in both headers."""
    assert len(old.encode()) == len(new.encode())
    return data.replace(old.encode(), new.encode())


Breakage = Callable[[bytes], bytes]
