"""Finds the Pythons of a container in which stoker can run. Pure."""

import re
from collections.abc import Sequence

import msgspec
from packaging.version import Version

from stoker.model.errors import MissingError
from stoker.model.value import UNDECODABLE, Value, prepared


class InsidePython(Value, frozen=True, kw_only=True):
    """An interpreter of the container."""

    version: str  # 3.11
    path: str
    machine: str
    glibc: str | None = None  # None: another C library


OLDEST = "3.11"
_ASK = """
import json, os, platform, sys
libc, version = platform.libc_ver()
print(json.dumps({
    "version": "%d.%d" % sys.version_info[:2], "path": sys.executable,
    "machine": platform.machine(), "glibc": version if libc == "glibc" else None,
}))
"""
# The one that is called python3 comes first; those of manylinux images lie apart.
_ASK_ALL = """
for python in python3 /usr/bin/python3.* /usr/local/bin/python3.* /opt/python/cp3*/bin/python3; do
    "$python" -c "$0" 2>/dev/null
done
true
"""
PROBE = ("sh", "-c", _ASK_ALL, _ASK)


def read_pythons(told: str) -> tuple[InsidePython, ...]:
    """Return the interpreters that the probe printed; other lines are ignored."""
    found = []
    for line in told.splitlines():
        try:
            found.append(msgspec.json.decode(line, type=prepared(InsidePython)))
        except UNDECODABLE:
            continue
    return tuple(p for p in found if re.fullmatch(r"3\.\d{1,3}", p.version))


def choose_python(
    pythons: Sequence[InsidePython], *, wanted: str | None, machine: str, image: str
) -> InsidePython:
    """Return the requested version, else the container's default, else its newest."""
    if any(python.machine != machine for python in pythons):
        raise MissingError(f"{image} is for {pythons[0].machine}, this machine is {machine}")
    fit = [python for python in pythons if Version(python.version) >= Version(OLDEST)]
    if wanted:
        fit = [python for python in fit if python.version == wanted]
    if fit:
        usual = fit[0] is pythons[0]
        return fit[0] if usual else max(fit, key=lambda python: Version(python.version))
    there = ", ".join(dict.fromkeys(python.version for python in pythons)) or "none"
    raise MissingError(
        f"{image} has no Python {wanted or f'{OLDEST} or newer'}, which stoker runs in there",
        hints=[f"Pythons found there: {there}", "another one: --container IMAGE"],
    )
