"""Example messages of the wire protocol, as values and as bytes.

The C launcher and the Python governor are both tested against them. Those of the launcher are what
`stoker-launcher --protocol-selftest` prints, in this order.
"""

from typing import NamedTuple


class Example(NamedTuple):
    word: str
    fields: tuple[bytes, ...]
    line: bytes


_ACCOUNT = (b"2000001", b"1900000", b"1073741824", b"536870912")
_TAIL = b"a.cc:1: error:\n\tx\\y\r\n\0."

FROM_LAUNCHER = (
    Example(
        "ask",
        (
            b"7",
            b"4711",
            b"/build/caf\xc3\xa9",
            b"0",
            b"12",
            b"compile",
            b"",
            b"/usr/bin/g++",
            b"-c",
            b"a b.cc",
            b'-DTAB="\t\\"',
            b"",
            b"-o",
            b"\xff.o",
        ),
        b"ask\t7\t4711\t/build/caf\xc3\xa9\t0\t12\tcompile\t\t/usr/bin/g++\t-c\ta b.cc\t"
        b'-DTAB="\\t\\\\"\t\t-o\t\xff.o\n',
    ),
    Example("lease", (b"4711", b"12000000", b"0"), b"lease\t4711\t12000000\t0\n"),
    Example("started", (), b"started\n"),
    Example(
        "memory",
        (b"1048576", b"18446744073709551615", b"1"),
        b"memory\t1048576\t18446744073709551615\t1\n",
    ),
    Example(
        "done",
        (b"0", b"0", *_ACCOUNT, b""),
        b"done\t0\t0\t2000001\t1900000\t1073741824\t536870912\t\n",
    ),
    Example(
        "done",
        (b"1", b"0", *_ACCOUNT, _TAIL),
        b"done\t1\t0\t2000001\t1900000\t1073741824\t536870912\t"
        b"a.cc:1: error:\\n\\tx\\\\y\\r\\n\\0.\n",
    ),
    Example(
        "done",
        (b"0", b"9", *_ACCOUNT, b""),
        b"done\t0\t9\t2000001\t1900000\t1073741824\t536870912\t\n",
    ),
    Example("killed", _ACCOUNT, b"killed\t2000001\t1900000\t1073741824\t536870912\n"),
    Example("ping", (), b"ping\n"),
)

FROM_GOVERNOR = (
    Example("run", (b"42",), b"run\t42\n"),
    Example("run", (b"43", b"--param=a=1", b"a b"), b"run\t43\t--param=a=1\ta b\n"),
    Example("pause", (), b"pause\n"),
    Example("resume", (), b"resume\n"),
    Example("kill", (), b"kill\n"),
    Example("release", (), b"release\n"),
    Example("again", (), b"again\n"),
    Example(
        "fail", (b"a.cu needs 9 GiB:\n\tC:\\temp",), b"fail\ta.cu needs 9 GiB:\\n\\tC:\\\\temp\n"
    ),
    Example("wrong_version", (), b"wrong_version\n"),
    Example("pong", (), b"pong\n"),
    Example("end", (), b"end\n"),
)
