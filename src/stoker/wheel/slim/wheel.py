"""Slims a wheel: unpacks its libraries to a temporary folder, slims them, writes a new wheel."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
from packaging.utils import parse_wheel_filename
from packaging.version import InvalidVersion, Version

from stoker.model.artifact import SLIM_MEMBER, SlimRecord
from stoker.model.distribution import read_tags, read_version
from stoker.model.errors import ArtifactError, StorageError
from stoker.outside.files import folder_of_process
from stoker.outside.process import threads
from stoker.outside.progress import stage
from stoker.wheel.elf import MAGIC, Elf
from stoker.wheel.elf_edit import ElfEdit, Patch, make_patch
from stoker.wheel.engine import Content, Edit, Wheel, rewrite
from stoker.wheel.engine.identity import identify
from stoker.wheel.facts import read_file, wheel_facts
from stoker.wheel.inspecting import wheel_artifact
from stoker.wheel.metadata import Headers
from stoker.wheel.origins import portable_paths
from stoker.wheel.reader import open_file, printable
from stoker.wheel.slim.cuts import (
    PRIVATE,
    Cut,
    SlimRequest,
    changed,
    check_room,
    decode_record,
    encode_record,
    is_nvidia_distribution,
    make_record,
    nvidia_refusal,
    plan_cuts,
    write_cuts,
)
from stoker.wheel.verify.checks import inherited
from stoker.wheel.verify.tested import WheelUnderTest
from stoker.wheel.verify.verifying import under_test

ASIDE = ".stoker-slim-"  # prefix of temporary folders


@contextmanager
def planned(wheel: Wheel, request: SlimRequest, folder: Path) -> Iterator[tuple[Cut, ...]]:
    """Yield the cuts of its libraries, which are unpacked in ``folder`` inside the context."""
    name = Headers(wheel.read(f"{wheel.dist_info}/METADATA")).values("Name")
    owned = bool(name) and is_nvidia_distribution(name[0])
    if owned and not request.nvidia:
        raise nvidia_refusal(wheel.path.name)
    members = _libraries(wheel)
    unpacked = sum(wheel.members[member].size for member in members)
    check_room(folder, unpacked + wheel.path.stat().st_size)
    with folder_of_process(folder, ASIDE) as aside:
        files = _unpack(wheel, members, aside)
        yield plan_cuts(files, request, nvidia_owned=frozenset(members if owned else ()))


def _libraries(wheel: Wheel) -> list[str]:
    """Return the ELF files, largest first, so that no thread works on it alone at the end."""
    with stage("looking for libraries"):
        found = [
            name
            for name, member in wheel.members.items()
            if member.size > len(MAGIC) and next(iter(wheel.stream(name)))[: len(MAGIC)] == MAGIC
        ]
    return sorted(found, key=lambda name: -wheel.members[name].size)


def _unpack(wheel: Wheel, members: Sequence[str], folder: Path) -> dict[str, Path]:
    """Unpack members to numbered files, since their names are not safe to use on disk."""

    def unpack(number: int) -> tuple[str, Path]:
        path = folder / str(number)
        try:
            with path.open("wb") as stream:
                for chunk in wheel.stream(members[number]):
                    advance(stream.write(chunk))
        except OSError as error:
            raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
        return members[number], path

    total = sum(wheel.members[name].size for name in members)
    with stage("unpacking libraries", total) as advance, ThreadPoolExecutor(threads()) as pool:
        return dict(pool.map(unpack, range(len(members))))


def file_name(wheel: Wheel, cuts: Collection[Cut], request: SlimRequest) -> str:
    """Return the file name of the slimmed wheel."""
    edited = _metadata(wheel, changed(cuts), request)
    metadata = b"".join(edited[f"{wheel.dist_info}/METADATA"].chunks())
    try:
        return identify(metadata, _wheel_file(wheel)).file_name
    except ValueError as error:
        raise ArtifactError(str(error), file=str(wheel.path)) from None


def _wheel_file(wheel: Wheel) -> bytes:
    """Return WHEEL with the tags of the file name. Installers read only those, and some wheels of
    NVIDIA have others in WHEEL (manylinux2014_sbsa for AArch64), which no installer accepts.
    """
    content = wheel.read(f"{wheel.dist_info}/WHEEL")
    try:
        named = parse_wheel_filename(wheel.path.name)[3]
    except ValueError:
        return content
    headers = Headers(content)
    if read_tags(headers.values("Tag")) == named:
        return content
    headers.replace("Tag", sorted(map(str, named)))
    return bytes(headers)


class WrittenWheel(NamedTuple):
    """``path`` is None if no library passed its check; ``cuts`` are as they were made."""

    path: Path | None
    cuts: tuple[Cut, ...]
    notes: tuple[str, ...] = ()


def write_wheel(
    wheel: Wheel, cuts: Collection[Cut], request: SlimRequest, into: Path
) -> WrittenWheel:
    """Write the slimmed wheel to the folder ``into``, where it appears when it is complete.

    With a label, a wheel that has nothing to remove is written as well, with only its version
    changed.
    """
    become = write_cuts(cuts, _slimmed_file)
    written = changed(become)
    if not written and (changed(cuts) or not request.label):
        return WrittenWheel(None, become)
    contents = {cut.name: Content.of_file(_slimmed_file(cut)) for cut in written}
    original = _original(wheel, become)
    repairs = search_paths(original, request)
    contents |= dict(_repaired(become, repairs))
    contents |= _metadata(wheel, written, request, inherited(_with_paths(original, repairs)))
    # Written next to the libraries, so that a killed process leaves only the temporary folder.
    made = rewrite(wheel, Edit(contents=contents), become[0].file.parent)
    notes = tuple(_repair_note(path, original) for path in repairs)
    try:
        return WrittenWheel(made.replace(into / made.name), become, notes)
    except OSError as error:
        raise StorageError(f"cannot write {into / made.name}: {error.strerror}") from error


def _original(wheel: Wheel, cuts: Collection[Cut]) -> WheelUnderTest:
    """Return the wheel before it is slimmed, as `stoker verify` sees it. The tags are those that
    the slimmed wheel has: errors that follow from them are older than the slimming.
    """
    facts = wheel_facts(
        wheel.read(f"{wheel.dist_info}/METADATA"),
        _wheel_file(wheel),
        members=len(wheel.members),
        unpacked=sum(member.size for member in wheel.members.values()),
    )
    with stage("reading libraries", sum(cut.summary.before_bytes for cut in cuts)) as advance:
        known = []
        for cut in cuts:
            if library := read_file(cut.file, printable(cut.name)):
                known.append(library)
            advance(cut.summary.before_bytes)
    artifact = wheel_artifact(wheel.path, facts, tuple(known), tuple(wheel.members))
    return under_test(wheel, artifact)


def search_paths(wheel: WheelUnderTest, request: SlimRequest) -> dict[str, ElfEdit]:
    """Return the search paths that lose folders of the build machine, which other machines lack.

    NVIDIA's own libraries stay unchanged unless the user allows it.
    """
    own = wheel.libraries if request.nvidia else wheel.own_libraries
    as_runpath = {library.path: bool(library.runpath) for library in own}
    return {
        path: ElfEdit(rpath=":".join(folders), as_runpath=as_runpath[path])
        for path, folders in portable_paths(own, wheel.facts.dependencies).items()
    }


def _repaired(
    cuts: Collection[Cut], repairs: Mapping[str, ElfEdit]
) -> Iterator[tuple[str, Content]]:
    for cut in cuts:
        if edit := repairs.get(printable(cut.name)):
            file = _slimmed_file(cut) if cut.changes else cut.file
            with open_file(file) as reader:
                patch = make_patch(Elf(reader), edit)
            yield cut.name, _patched(patch, Content.of_file(file))


def _repair_note(path: str, wheel: WheelUnderTest) -> str:
    library = next(one for one in wheel.libraries if one.path == path)
    gone = (folder for folder in library.runpath or library.rpath if "ORIGIN" not in folder)
    return f"{path} no longer searches folders of the machine that built it: {', '.join(gone)}"


def _patched(patch: Patch, content: Content) -> Content:
    return Content(size=patch.size, chunks=lambda: patch.applied(content.chunks()))


def _with_paths(wheel: WheelUnderTest, repairs: Mapping[str, ElfEdit]) -> WheelUnderTest:
    """Return the wheel with repaired search paths."""
    libraries = tuple(
        msgspec.structs.replace(library, rpath=(), runpath=tuple((edit.rpath or "").split(":")))
        if (edit := repairs.get(library.path))
        else library
        for library in wheel.facts.libraries
    )
    facts = msgspec.structs.replace(wheel.facts, libraries=libraries)
    return msgspec.structs.replace(wheel, facts=facts)


def _slimmed_file(cut: Cut) -> Path:
    return cut.file.with_suffix(".slim")


def _metadata(
    wheel: Wheel,
    written: Iterable[Cut],
    request: SlimRequest,
    inherited: Mapping[str, tuple[str, ...]] | None = None,
) -> Mapping[str, Content]:
    metadata, note = f"{wheel.dist_info}/METADATA", f"{wheel.dist_info}/{SLIM_MEMBER}"
    before = _previous(wheel)
    record = make_record(request, written, before)
    record = msgspec.structs.replace(record, inherited=dict(inherited or {}))
    headers = Headers(wheel.read(metadata))
    said = headers.values("Version")
    if request.label:
        version = f"{_read_version(said).public}+{request.label}"
    else:
        version = new_version(said, record.label, before.label if before else None)
    headers.replace("Version", [version])
    if record.private and PRIVATE not in headers.values("Classifier"):
        headers.insert("Classifier", [PRIVATE])
    return {
        metadata: Content.of_bytes(bytes(headers)),
        note: Content.of_bytes(encode_record(record)),
        f"{wheel.dist_info}/WHEEL": Content.of_bytes(_wheel_file(wheel)),
    }


def _previous(wheel: Wheel) -> SlimRecord | None:
    """Return the record of an earlier slimming."""
    note = f"{wheel.dist_info}/{SLIM_MEMBER}"
    return decode_record(wheel.read(note)) if note in wheel.members else None


def original_label(wheel: Wheel) -> str:
    """Return the local version of a wheel, without the label of an earlier slimming."""
    said = Headers(wheel.read(f"{wheel.dist_info}/METADATA")).values("Version")
    before = _previous(wheel)
    return _local(_read_version(said), before.label if before else None)


def new_version(said: Sequence[str], label: str, previous: str | None) -> str:
    """Append the label to the local version, in place of the label of an earlier slimming."""
    version = _read_version(said)
    parts = (_local(version, previous), label)
    return f"{version.public}+{'.'.join(part for part in parts if part)}"


def _read_version(said: Sequence[str]) -> Version:
    try:
        return read_version(said[0])
    except (InvalidVersion, IndexError) as error:
        raise ArtifactError(f"METADATA has no version that can be extended: {error}") from None


def _local(version: Version, previous: str | None) -> str:
    local = version.local or ""
    if previous and (local == previous or local.endswith(f".{previous}")):
        local = local[: -len(previous)].rstrip(".")
    return local
