"""Is the wheel what its metadata says, and free of what must not be in one? Pure."""

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath

from packaging.tags import Tag
from packaging.utils import parse_wheel_filename

from stoker.deliver.verify.case import PLAN_MEMBER, Case, error, note, warning
from stoker.knowledge.manylinux import Policy, excess, policies
from stoker.knowledge.nvidia_packages import never_bundled
from stoker.knowledge.singletons import is_of_glibc, is_openmp, unhashed
from stoker.model.artifact import ElfKind
from stoker.model.distribution import read_tag
from stoker.model.finding import Finding
from stoker.model.variant import Variant

_WORLD_WRITABLE = 0o002
_MANYLINUX = re.compile(r"(manylinux(?:_(\d+)_(\d+)|\d+))_(.+)")
_MODULE = re.compile(r"\.cpython-(\d+)t?-[\w-]+\.so$")
_NOT_HELD_AGAINST = ("features", "platform", "build_type", "sanitizer")


def unreadable(case: Case) -> Iterator[Finding]:
    if case.facts.problems:
        title = "files could not be read to the end, and were not checked"
        yield error("unreadable-library", title, list(case.facts.problems))
    if case.facts.notes:
        yield note("not-read", "files of kinds that are not checked", list(case.facts.notes))


def record(case: Case) -> Iterator[Finding]:
    for name, title, found in (
        ("wrong-record", "RECORD and the members of the wheel differ", case.mismatches),
        ("wrong-hash", "members are not what RECORD says", case.wrong_hashes),
    ):
        if found:
            yield error(name, title, [f"{row.member}: {row.problem}" for row in found])


def permissions(case: Case) -> Iterator[Finding]:
    found = [member.name for member in case.members if member.mode & _WORLD_WRITABLE]
    if found:
        yield error("world-writable", "anybody may change these files once installed", found)


def plan(case: Case) -> Iterator[Finding]:
    if case.plan is None:
        lines = [] if case.asked else ["device code and CPU level were held against nothing"]
        yield warning("missing-plan", f"there is no {PLAN_MEMBER}: it does not say its plan", lines)
    elif case.plan.problem:
        yield error("unreadable-plan", f"{PLAN_MEMBER} cannot be read", [case.plan.problem])
    elif (
        case.asked and case.plan.variant and (lines := _differences(case.asked, case.plan.variant))
    ):
        yield error("other-plan", "it was built for something else than asked", lines)


def _differences(asked: Variant, built: Variant) -> list[str]:
    """In what the user said; what was left open may be anything."""
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


def tags(case: Case) -> Iterator[Finding]:
    told = case.tags
    lines = [f"{line!r} is no tag" for line in case.wheel.tags if not read_tag(line)]
    lines += [*_name_problems(case, told), *_platform_problems(case, told), *_modules(case, told)]
    if lines:
        yield error("wrong-tag", "the tag of the wheel is not true", lines)


def _name_problems(case: Case, told: frozenset[Tag]) -> Iterator[str]:
    try:
        name, version, _, named = parse_wheel_filename(case.file_name)
    except ValueError as problem:  # also of numbers too long to be converted
        yield str(problem)
        return
    if named != told:
        yield f"the file's name says {_joined(named)}, the wheel itself {_joined(told)}"
    if name != case.project or str(version) != _normal(case.wheel.version):
        yield f"the file's name says {name} {version}, the wheel itself {case.wheel.version}"


def _normal(version: str) -> str:
    from packaging.version import InvalidVersion

    from stoker.model.distribution import read_version

    try:
        return str(read_version(version))
    except InvalidVersion:
        return version


def _joined(found: Iterable[Tag]) -> str:
    return " ".join(sorted(map(str, found)))


def _platform_problems(case: Case, told: frozenset[Tag]) -> Iterator[str]:
    platforms = {tag.platform for tag in told}
    for library in case.libraries:
        if "any" in platforms:
            yield f"any machine, but {library.path} is for {library.machine}"
        elif not all(platform.endswith(f"_{library.machine}") for platform in platforms):
            yield f"{' '.join(sorted(platforms))}, but {library.path} is for {library.machine}"


def _modules(case: Case, told: frozenset[Tag]) -> Iterator[str]:
    interpreters = {tag.interpreter for tag in told}
    for library in case.libraries:
        found = _MODULE.search(library.path)
        if found and f"cp{found[1]}" not in interpreters:
            yield f"{' '.join(sorted(interpreters))}, but {library.path} is for cp{found[1]}"


def symbols(case: Case) -> Iterator[Finding]:
    """Every tag must hold: the oldest promises least."""
    lines = []
    for library in case.libraries:
        policy = _oldest(case, library.machine)
        beyond = excess(policy, library.machine, library.versions) if policy else {}
        if policy and beyond:
            needs = ", ".join(f"{series}_{version}" for series, version in beyond.items())
            lines.append(f"{library.path} needs {needs}, more than {policy.name} promises")
    if lines:
        yield error("too-new-symbols", "it needs a newer system than its tag says", lines)


def _oldest(case: Case, machine: str) -> Policy | None:
    found = [policy for tag in case.tags if (policy := _policy(tag.platform, machine))]
    return min(found, key=policies().index, default=None)


def _policy(platform: str, machine: str) -> Policy | None:
    """The newest that promises no more than the tag; a glibc between two policies has no own."""
    match = _MANYLINUX.fullmatch(platform)
    if not match or match[4] != machine:
        return None
    known = [row for row in policies() if machine in row.newest]
    if not match[2]:
        return next((row for row in known if match[1] in row.aliases), None)
    told = (int(match[2]), int(match[3]))
    not_newer = [row for row in known if _glibc(row) <= told]
    return not_newer[-1] if not_newer else None


def _glibc(policy: Policy) -> tuple[int, ...]:
    return tuple(int(number) for number in policy.name.split("_")[1:])


def portability(case: Case) -> Iterator[Finding]:
    """A tag that no index takes, and no promise about the system."""
    plain = sorted({tag for tag in case.wheel.tags if "-linux_" in tag})
    if plain:
        yield note("plain-linux-tag", "the tag promises nothing about the system", plain)


# -- what must not be in a wheel -----------------------------------------------------------------


def bundled(case: Case) -> Iterator[Finding]:
    names = {library.path: _names(library.path, library.soname) for library in case.libraries}
    for name, title, is_one in (
        (
            "bundled-driver",
            "it holds libraries that only fit the driver or interpreter of one machine",
            lambda word: never_bundled(unhashed(word)),
        ),
        ("bundled-glibc", "it holds parts of glibc, which only fit their own loader", is_of_glibc),
    ):
        found = [path for path, words in names.items() if any(map(is_one, words))]
        if found:
            yield error(name, title, found)


def _names(path: str, soname: str | None) -> tuple[str, ...]:
    return tuple(filter(None, (PurePosixPath(path).name, soname)))


def openmp(case: Case) -> Iterator[Finding]:
    """One for itself is fine; PyTorch brings one for itself and its extensions."""
    found = [
        library.path
        for library in case.libraries
        if library.kind is ElfKind.LIBRARY
        and any(map(is_openmp, _names(library.path, library.soname)))
    ]
    brought = ["that of torch, which is required"] if case.requires_torch else []
    if found and len(found) + len(brought) > 1:
        title = "there would be two OpenMP runtimes in one process"
        yield error("second-openmp", title, [*found, *brought])
