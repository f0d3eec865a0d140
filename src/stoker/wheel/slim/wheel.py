"""Slims a wheel: unpacks its libraries to a temporary folder, slims them, writes a new wheel."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from packaging.utils import parse_wheel_filename
from packaging.version import InvalidVersion, Version

from stoker.model.artifact import SLIM_MEMBER, SlimRecord
from stoker.model.distribution import read_tags, read_version
from stoker.model.errors import ArtifactError, StorageError
from stoker.outside.files import folder_of_process
from stoker.outside.process import threads
from stoker.wheel.elf import MAGIC
from stoker.wheel.engine import Content, Edit, Wheel, rewrite
from stoker.wheel.engine.edit import identify
from stoker.wheel.metadata import Headers
from stoker.wheel.slim.cuts import (
    Cut,
    SlimRequest,
    changed,
    check_room,
    decode_record,
    encode_record,
    make_record,
    plan_cuts,
    write_cuts,
)
from stoker.wheel.slim.selection import PRIVATE, is_nvidia_distribution, nvidia_refusal

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
                stream.writelines(wheel.stream(members[number]))
        except OSError as error:
            raise StorageError(f"cannot write {path}: {error.strerror or error}") from error
        return members[number], path

    with ThreadPoolExecutor(threads()) as pool:
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


def write_wheel(
    wheel: Wheel, cuts: Collection[Cut], request: SlimRequest, into: Path
) -> tuple[Path | None, tuple[Cut, ...]]:
    """Write the slimmed wheel to the folder ``into``, where it appears when it is complete.

    Return its path, or None if no library passed its check, and the cuts as they were made. With a
    label, a wheel that has nothing to remove is written as well, with only its version changed.
    """
    become = write_cuts(cuts, _slimmed_file)
    written = changed(become)
    if not written and (changed(cuts) or not request.label):
        return None, become
    contents = {cut.name: Content.of_file(_slimmed_file(cut)) for cut in written}
    contents |= _metadata(wheel, written, request)
    # Written next to the libraries, so that a killed process leaves only the temporary folder.
    made = rewrite(wheel, Edit(contents=contents), become[0].file.parent)
    try:
        return made.replace(into / made.name), become
    except OSError as error:
        raise StorageError(f"cannot write {into / made.name}: {error.strerror}") from error


def _slimmed_file(cut: Cut) -> Path:
    return cut.file.with_suffix(".slim")


def _metadata(wheel: Wheel, written: Iterable[Cut], request: SlimRequest) -> Mapping[str, Content]:
    metadata, note = f"{wheel.dist_info}/METADATA", f"{wheel.dist_info}/{SLIM_MEMBER}"
    before = _previous(wheel)
    record = make_record(request, written, before)
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
