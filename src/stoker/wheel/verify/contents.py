"""Checks files, permissions and plan, and that nothing is bundled that must not be."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import PurePosixPath

from stoker.knowledge.nvidia_packages import never_bundled
from stoker.knowledge.sonames import is_of_glibc, is_openmp, unhashed
from stoker.model.artifact import ElfKind
from stoker.model.finding import Finding, error, note, warning
from stoker.model.value import size
from stoker.model.variant import PLAN_MEMBER, Variant
from stoker.wheel.verify.tested import WheelUnderTest

_WORLD_WRITABLE = 0o002
_NOT_HELD_AGAINST = ("features", "platform", "build_type", "sanitizer")


def unreadable_files(wheel: WheelUnderTest) -> Iterator[Finding]:
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


def included_plan(wheel: WheelUnderTest) -> Iterator[Finding]:
    if wheel.plan is None:
        if wheel.libraries and not wheel.asked:
            code = "the CPU level was" if wheel.slimmed_for else "device code and CPU level were"
            title = f"{code} not checked: the wheel includes no plan"
            yield note("missing-plan", title, ["name the expected variant with --variant"])
    elif wheel.plan.problem:
        yield error("unreadable-plan", f"{PLAN_MEMBER} cannot be read", [wheel.plan.problem])
    elif wheel.asked and wheel.plan.variant:
        fields = [name for name in Variant.__struct_fields__ if name not in _NOT_HELD_AGAINST]
        lines = [
            f"{name.replace('_', ' ')}: asked for {_words(wanted)}, built for {_words(had)}"
            for name in fields  # which the user set, and which differ
            if (wanted := getattr(wheel.asked, name))
            and wanted != (had := getattr(wheel.plan.variant, name))
        ]
        if lines:
            yield error("other-plan", "it was built for another variant than requested", lines)


def _words(value: object) -> str:
    if isinstance(value, tuple):
        return ";".join(target.torch_word for target in value) or "none"
    return str(value)


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


def copies(wheel: WheelUnderTest) -> Iterator[Finding]:
    """Warn of a library under several names: a wheel has no links, so each name is a copy.

    They are more than waste. The loader knows a library by the name that it was asked for, so an
    extension that needs `libx.so` loads a second one beside the `libx.so.2` of the package.
    """
    groups: dict[tuple[str, str, int], list[str]] = defaultdict(list)
    for library in wheel.libraries:
        if library.kind is ElfKind.LIBRARY and library.soname:
            folder, _, name = library.path.rpartition("/")
            groups[folder, library.soname, library.size_bytes].append(name)
    lines, waste = [], 0
    for (folder, soname, size_bytes), names in groups.items():
        others = sorted(name for name in names if name != soname)
        if len(names) > 1 and soname in names:
            waste += len(others) * size_bytes
            lines.append(f"{folder}/{soname} is also {', '.join(others)}")
    if lines:
        title = f"libraries are in the wheel under several names, {size(waste)} more than needed"
        advice = (
            "-D CMAKE_PLATFORM_NO_VERSIONED_SONAME=ON builds CMake's libraries without versions."
        )
        yield warning("copied-libraries", title, lines, advice=advice)


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
