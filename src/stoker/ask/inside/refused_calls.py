"""Refuses calls of the kernel that no build needs and that namespaces do not shut in.

Sockets of other families than local, internet and netlink reach what no network namespace hides:
vsock reaches the machine that runs this one. io_uring does its work outside of the process.
"""

import ctypes
import os
import struct

_FAMILIES = (1, 2, 10, 16)  # AF_UNIX, AF_INET, AF_INET6, AF_NETLINK
_NUMBERS = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}  # architecture, socket()
_IO_URING_SETUP = 425  # the same number on all architectures
_X32 = 0x40000000  # calls of another interface of x86-64, with other numbers
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENT_AT = 0, 4, 16  # in struct seccomp_data
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_NO_SUCH_CALL, _NO_SUCH_FAMILY = 38, 97
_SET_SECCOMP, _FILTER = 22, 2


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("code", ctypes.c_char_p)]


def refuse_calls(libc):
    """Install the filter for this process and all that it starts; return what prctl says, which is
    negative if the kernel refused it. An unknown machine has no filter.
    """
    known = _NUMBERS.get(os.uname().machine)
    if not known:
        return 0
    code = filter_code(*known)
    program = _Program(len(code) // 8, code)
    return libc.prctl(_SET_SECCOMP, _FILTER, ctypes.byref(program), 0, 0)


def filter_code(architecture, socket):
    """Return the program of the kernel's packet filter that judges each call."""
    steps: list[tuple[str, int, str, str, int]] = [  # name, operation, jumps if so and if not
        ("", _LOAD, "", "", _ARCHITECTURE_AT),
        ("", _EQUAL, "", "no call", architecture),
        ("", _LOAD, "", "", _NUMBER_AT),
        ("", _AT_LEAST, "no call", "", _X32),
        ("", _EQUAL, "no call", "", _IO_URING_SETUP),
        ("", _EQUAL, "", "allow", socket),
        ("", _LOAD, "", "", _ARGUMENT_AT),
        *(("", _EQUAL, "allow", "", family) for family in _FAMILIES),
        ("", _RETURN, "", "", _ERROR | _NO_SUCH_FAMILY),
        ("no call", _RETURN, "", "", _ERROR | _NO_SUCH_CALL),
        ("allow", _RETURN, "", "", _ALLOW),
    ]
    places = {name: number for number, (name, *_) in enumerate(steps) if name}
    code = b""
    for number, (_, operation, yes, no, value) in enumerate(steps):
        jumps = (places[to] - number - 1 if to else 0 for to in (yes, no))
        code += struct.pack("HBBI", operation, *jumps, value)
    return code
