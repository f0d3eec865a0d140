"""Checks that file name, tags, libraries and symbols agree on the systems a wheel is for."""

import re
from collections.abc import Iterator
from contextlib import suppress

from packaging.tags import Tag
from packaging.utils import parse_wheel_filename
from packaging.version import InvalidVersion

from stoker.knowledge.manylinux import PlatformPolicy, excess, policies
from stoker.model.distribution import read_tag, read_version
from stoker.model.finding import Finding, error, note
from stoker.wheel.verify.tested import WheelUnderTest

_MANYLINUX = re.compile(r"(manylinux(?:_(\d+)_(\d+)|\d+))_(.+)")
_MODULE = re.compile(r"\.cpython-(\d+)t?-[\w-]+\.so$")


def tags(wheel: WheelUnderTest) -> Iterator[Finding]:
    told = wheel.tags
    lines = [f"{line!r} is not a tag" for line in wheel.metadata.tags if not read_tag(line)]
    lines += _name_problems(wheel, told)
    platforms = {tag.platform for tag in told}
    for library in wheel.libraries:
        if "any" in platforms:
            lines.append(f"any machine, but {library.path} is for {library.machine}")
        elif not all(platform.endswith(f"_{library.machine}") for platform in platforms):
            words = " ".join(sorted(platforms))
            lines.append(f"{words}, but {library.path} is for {library.machine}")
    interpreters = {tag.interpreter for tag in told}
    for library in wheel.libraries:
        found = _MODULE.search(library.path)
        if found and f"cp{found[1]}" not in interpreters:
            words = " ".join(sorted(interpreters))
            lines.append(f"{words}, but {library.path} is for cp{found[1]}")
    if lines:
        yield error("wrong-tag", "the tag does not describe the wheel", lines)


def _name_problems(wheel: WheelUnderTest, told: frozenset[Tag]) -> Iterator[str]:
    try:
        name, version, _, named = parse_wheel_filename(wheel.file_name)
    except ValueError as problem:  # also of numbers too long to be converted
        yield str(problem)
        return
    if named != told:
        one, two = (" ".join(sorted(map(str, each))) for each in (named, told))
        yield f"the file name says {one}, the metadata {two}"
    own = wheel.metadata.version
    with suppress(InvalidVersion):
        own = str(read_version(own))
    if name != wheel.project or str(version) != own:
        yield f"the file name says {name} {version}, the metadata {wheel.metadata.version}"


def symbols(wheel: WheelUnderTest) -> Iterator[Finding]:
    """Check the symbols against the tag of the oldest system, since all tags must be true."""
    lines = []
    for library in wheel.libraries:
        found = [policy for tag in wheel.tags if (policy := _policy(tag.platform, library.machine))]
        policy = min(found, key=policies().index, default=None)
        beyond = excess(policy, library.machine, library.versions) if policy else {}
        if policy and beyond:
            needs = ", ".join(f"{series}_{version}" for series, version in beyond.items())
            lines.append(f"{library.path} needs {needs}, which is too new for {policy.name}")
    if lines:
        yield error("too-new-symbols", "it needs a newer system than its tag says", lines)


def _policy(platform: str, machine: str) -> PlatformPolicy | None:
    """Return the newest policy that is not newer than the tag, which may lie between two."""
    match = _MANYLINUX.fullmatch(platform)
    if not match or match[4] != machine:
        return None
    known = [row for row in policies() if machine in row.newest]
    if not match[2]:
        return next((row for row in known if match[1] in row.aliases), None)
    told = (int(match[2]), int(match[3]))
    not_newer = [
        row for row in known if tuple(int(number) for number in row.name.split("_")[1:]) <= told
    ]
    return not_newer[-1] if not_newer else None


def portability(wheel: WheelUnderTest) -> Iterator[Finding]:
    """Note a plain Linux tag: it names no minimum system, and package indexes refuse it."""
    plain = sorted({tag for tag in wheel.metadata.tags if "-linux_" in tag})
    if plain:
        yield note("plain-linux-tag", "the tag names no minimum system", plain)
