"""Checks metadata, tags and plan, and that nothing is bundled that must not be. Pure."""

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from packaging.tags import Tag
from packaging.utils import parse_wheel_filename
from packaging.version import InvalidVersion

from stoker.knowledge.wheels import (
    PlatformPolicy,
    excess,
    is_of_glibc,
    is_openmp,
    never_bundled,
    policies,
    unhashed,
)
from stoker.model.artifact import ElfKind
from stoker.model.distribution import read_tag, read_version
from stoker.model.finding import Finding
from stoker.model.plan import PLAN_MEMBER, Variant
from stoker.wheel.verify.tested import WheelUnderTest, error, note

_WORLD_WRITABLE = 0o002
_MANYLINUX = re.compile(r"(manylinux(?:_(\d+)_(\d+)|\d+))_(.+)")
_MODULE = re.compile(r"\.cpython-(\d+)t?-[\w-]+\.so$")
_NOT_HELD_AGAINST = ("features", "platform", "build_type", "sanitizer")


def unreadable(wheel: WheelUnderTest) -> Iterator[Finding]:
    if wheel.facts.problems:
        title = "files could not be read, so they were not checked"
        yield error("unreadable-library", title, list(wheel.facts.problems))
    if wheel.facts.notes:
        yield note("not-read", "files of these kinds are not checked", list(wheel.facts.notes))


def record(wheel: WheelUnderTest) -> Iterator[Finding]:
    for name, title, found in (
        ("wrong-record", "RECORD does not list the files of the wheel", wheel.mismatches),
        ("wrong-hash", "files differ from their hashes in RECORD", wheel.wrong_hashes),
    ):
        if found:
            yield error(name, title, [f"{row.member}: {row.problem}" for row in found])


def permissions(wheel: WheelUnderTest) -> Iterator[Finding]:
    found = [member.name for member in wheel.members if member.mode & _WORLD_WRITABLE]
    if found:
        yield error("world-writable", "everyone can write to these files once installed", found)


def plan(wheel: WheelUnderTest) -> Iterator[Finding]:
    if wheel.plan is None:
        if wheel.libraries and not wheel.asked:
            code = "the CPU level was" if wheel.slimmed_for else "device code and CPU level were"
            title = f"{code} not checked: the wheel includes no plan"
            yield note("missing-plan", title, ["name the expected variant with --variant"])
    elif wheel.plan.problem:
        yield error("unreadable-plan", f"{PLAN_MEMBER} cannot be read", [wheel.plan.problem])
    elif (
        wheel.asked
        and wheel.plan.variant
        and (lines := _differences(wheel.asked, wheel.plan.variant))
    ):
        yield error("other-plan", "it was built for another variant than requested", lines)


def _differences(asked: Variant, built: Variant) -> list[str]:
    """Return a line for each field that the user set and that differs in the plan."""
    fields = [name for name in Variant.__struct_fields__ if name not in _NOT_HELD_AGAINST]
    return [
        f"{name.replace('_', ' ')}: asked for {_words(wanted)}, built for {_words(had)}"
        for name in fields
        if (wanted := getattr(asked, name)) and wanted != (had := getattr(built, name))
    ]


def _words(value: object) -> str:
    if isinstance(value, tuple):
        return ";".join(target.arch + ("+PTX" if target.ptx else "") for target in value) or "none"
    return str(value)


# -- tags ----------------------------------------------------------------------------------------


def tags(wheel: WheelUnderTest) -> Iterator[Finding]:
    told = wheel.tags
    lines = [f"{line!r} is not a tag" for line in wheel.metadata.tags if not read_tag(line)]
    lines += [
        *_name_problems(wheel, told),
        *_platform_problems(wheel, told),
        *_modules(wheel, told),
    ]
    if lines:
        yield error("wrong-tag", "the tag does not describe the wheel", lines)


def _name_problems(wheel: WheelUnderTest, told: frozenset[Tag]) -> Iterator[str]:
    try:
        name, version, _, named = parse_wheel_filename(wheel.file_name)
    except ValueError as problem:  # also of numbers too long to be converted
        yield str(problem)
        return
    if named != told:
        yield f"the file name says {_joined(named)}, the metadata {_joined(told)}"
    if name != wheel.project or str(version) != _normal(wheel.metadata.version):
        yield f"the file name says {name} {version}, the metadata {wheel.metadata.version}"


def _normal(version: str) -> str:
    try:
        return str(read_version(version))
    except InvalidVersion:
        return version


def _joined(found: Iterable[Tag]) -> str:
    return " ".join(sorted(map(str, found)))


def _platform_problems(wheel: WheelUnderTest, told: frozenset[Tag]) -> Iterator[str]:
    platforms = {tag.platform for tag in told}
    for library in wheel.libraries:
        if "any" in platforms:
            yield f"any machine, but {library.path} is for {library.machine}"
        elif not all(platform.endswith(f"_{library.machine}") for platform in platforms):
            yield f"{' '.join(sorted(platforms))}, but {library.path} is for {library.machine}"


def _modules(wheel: WheelUnderTest, told: frozenset[Tag]) -> Iterator[str]:
    interpreters = {tag.interpreter for tag in told}
    for library in wheel.libraries:
        found = _MODULE.search(library.path)
        if found and f"cp{found[1]}" not in interpreters:
            yield f"{' '.join(sorted(interpreters))}, but {library.path} is for cp{found[1]}"


def symbols(wheel: WheelUnderTest) -> Iterator[Finding]:
    """Check the symbols against the tag of the oldest system, since all tags must be true."""
    lines = []
    for library in wheel.libraries:
        policy = _oldest(wheel, library.machine)
        beyond = excess(policy, library.machine, library.versions) if policy else {}
        if policy and beyond:
            needs = ", ".join(f"{series}_{version}" for series, version in beyond.items())
            lines.append(f"{library.path} needs {needs}, which is too new for {policy.name}")
    if lines:
        yield error("too-new-symbols", "it needs a newer system than its tag says", lines)


def _oldest(wheel: WheelUnderTest, machine: str) -> PlatformPolicy | None:
    found = [policy for tag in wheel.tags if (policy := _policy(tag.platform, machine))]
    return min(found, key=policies().index, default=None)


def _policy(platform: str, machine: str) -> PlatformPolicy | None:
    """Return the newest policy that is not newer than the tag, which may lie between two."""
    match = _MANYLINUX.fullmatch(platform)
    if not match or match[4] != machine:
        return None
    known = [row for row in policies() if machine in row.newest]
    if not match[2]:
        return next((row for row in known if match[1] in row.aliases), None)
    told = (int(match[2]), int(match[3]))
    not_newer = [row for row in known if _glibc(row) <= told]
    return not_newer[-1] if not_newer else None


def _glibc(policy: PlatformPolicy) -> tuple[int, ...]:
    return tuple(int(number) for number in policy.name.split("_")[1:])


def portability(wheel: WheelUnderTest) -> Iterator[Finding]:
    """Note a plain Linux tag: it names no minimum system, and package indexes refuse it."""
    plain = sorted({tag for tag in wheel.metadata.tags if "-linux_" in tag})
    if plain:
        yield note("plain-linux-tag", "the tag names no minimum system", plain)


# -- what must not be in a wheel -----------------------------------------------------------------


def bundled(wheel: WheelUnderTest) -> Iterator[Finding]:
    names = {library.path: _names(library.path, library.soname) for library in wheel.libraries}
    for name, title, is_one in (
        (
            "bundled-driver",
            "it bundles libraries that fit only the driver or interpreter of one machine",
            lambda word: never_bundled(unhashed(word)),
        ),
        ("bundled-glibc", "it bundles parts of glibc, which fit only their loader", is_of_glibc),
    ):
        found = [path for path, words in names.items() if any(map(is_one, words))]
        if found:
            yield error(name, title, found)


def _names(path: str, soname: str | None) -> tuple[str, ...]:
    return tuple(filter(None, (PurePosixPath(path).name, soname)))


def openmp(wheel: WheelUnderTest) -> Iterator[Finding]:
    """Check that at most one OpenMP runtime is loaded, including the one that torch brings."""
    found = [
        library.path
        for library in wheel.libraries
        if library.kind is ElfKind.LIBRARY
        and any(map(is_openmp, _names(library.path, library.soname)))
    ]
    brought = ["the OpenMP runtime of torch, a requirement"] if wheel.requires_torch else []
    if found and len(found) + len(brought) > 1:
        title = "two OpenMP runtimes would be loaded into one process"
        yield error("second-openmp", title, [*found, *brought])
