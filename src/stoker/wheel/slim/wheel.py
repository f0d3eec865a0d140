"""Slims a wheel: unpacks its libraries to a temporary folder, slims them, writes a new wheel."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
from packaging.utils import parse_wheel_filename

from stoker.model.distribution import read_tags
from stoker.model.errors import StorageErrors
from stoker.model.slimming import SLIM_MEMBER, SlimRecord
from stoker.outside.files import folder_of_process
from stoker.outside.long_work import stage
from stoker.wheel.inspect.facts import elf_members
from stoker.wheel.reader import open_file, printable
from stoker.wheel.slim.files import (
    ASIDE,
    PRIVATE,
    PlannedFile,
    changed,
    check_room,
    decode_record,
    encode_record,
    is_nvidia_distribution,
    make_record,
    nvidia_refusal,
    plan_files,
    write_files,
)
from stoker.wheel.slim.inherited import inherit
from stoker.wheel.slim.selection import SlimRequest
from stoker.wheel.zip import Content, Wheel
from stoker.wheel.zip.metadata import Headers
from stoker.wheel.zip.revision import Revision, edited_library, extensible, new_version
from stoker.wheel.zip.threads import threads


@contextmanager
def planned_files(
    wheel: Wheel, request: SlimRequest, folder: Path
) -> Iterator[tuple[PlannedFile, ...]]:
    """Yield the plans of its libraries, which are unpacked in ``folder`` inside the context."""
    name = Headers(wheel.read(f"{wheel.dist_info}/METADATA")).values("Name")
    owned = bool(name) and is_nvidia_distribution(name[0])
    if owned and not request.nvidia:
        raise nvidia_refusal(wheel.path.name)
    members = elf_members(wheel)
    unpacked = sum(member.size for member in members)
    check_room(folder, unpacked + wheel.path.stat().st_size)
    with folder_of_process(folder, ASIDE) as aside:

        def unpack(number: int) -> tuple[str, Path]:
            path = aside / str(number)  # their names are not safe to use on disk
            with StorageErrors("write", path), path.open("wb") as stream:
                for chunk in wheel.archive.stream(members[number]):
                    advance(stream.write(chunk))
            return members[number].name, path

        title = "unpacking libraries"
        with stage(title, unpacked) as advance, ThreadPoolExecutor(threads()) as pool:
            paths = dict(pool.map(unpack, range(len(members))))
        yield plan_files(paths, request, nvidia_owned=frozenset(paths if owned else ()))


def new_wheel(
    wheel: Wheel,
    written: Iterable[PlannedFile],
    request: SlimRequest,
    errors: Mapping[str, tuple[str, ...]] | None = None,
) -> Revision:
    """Return the metadata of the slimmed wheel; ``errors`` are those of the original."""
    previous = _previous(wheel)
    record = make_record(request, written, previous)
    record = msgspec.structs.replace(record, inherited=dict(errors or {}))
    headers = Headers(wheel.read(f"{wheel.dist_info}/METADATA"))
    said = headers.values("Version")
    label = request.label or new_label(said, record.label, previous.label if previous else None)
    headers.replace("Version", [new_version(said[0] if said else "", label)])
    if record.private and PRIVATE not in headers.values("Classifier"):
        headers.insert("Classifier", [PRIVATE])
    return Revision(
        metadata=bytes(headers),
        kind=_wheel_file(wheel),
        records={SLIM_MEMBER: encode_record(record)},
    )


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
    """``path`` is None if no library passed its check; ``files`` are as they were made."""

    path: Path | None
    files: tuple[PlannedFile, ...]
    notes: tuple[str, ...] = ()


def write_wheel(
    wheel: Wheel, files: Collection[PlannedFile], request: SlimRequest, into: Path
) -> WrittenWheel:
    """Write the slimmed wheel to the folder ``into``, where it appears when it is complete.

    With a label, a wheel that has nothing to remove is written as well, with only its version
    changed.
    """
    made = write_files(files, _slimmed_file)
    written = changed(made)
    if not written and (changed(files) or not request.label):
        return WrittenWheel(None, made)
    original = inherit(wheel, _wheel_file(wheel), made, request)
    contents = {file.name: Content.of_file(_slimmed_file(file)) for file in written}
    for file in made:
        if edit := original.repairs.get(printable(file.name)):
            path = _slimmed_file(file) if file.changes else file.path
            with open_file(path) as reader:
                contents[file.name] = edited_library(reader, Content.of_file(path), edit)
    revision = new_wheel(wheel, written, request, original.errors)
    revision = msgspec.structs.replace(revision, contents=contents)
    # Written next to the libraries, so that a killed process leaves only the temporary folder.
    aside = revision.write(wheel, made[0].path.parent)
    with StorageErrors("write", into / aside.name):
        return WrittenWheel(aside.replace(into / aside.name), made, original.notes)


def _slimmed_file(file: PlannedFile) -> Path:
    return file.path.with_suffix(".slim")


def _previous(wheel: Wheel) -> SlimRecord | None:
    """Return the record of an earlier slimming, or None if there is none that can be read."""
    note = f"{wheel.dist_info}/{SLIM_MEMBER}"
    return decode_record(wheel.read(note)) if note in wheel.members else None


def original_label(wheel: Wheel) -> str:
    """Return the local version of a wheel, without the label of an earlier slimming."""
    said = Headers(wheel.read(f"{wheel.dist_info}/METADATA")).values("Version")
    previous = _previous(wheel)
    return new_label(said, "", previous.label if previous else None)


def new_label(said: Sequence[str], label: str, previous: str | None) -> str:
    """Append the label to the local version, in place of the label of an earlier slimming."""
    local = extensible(said[0] if said else "").local or ""
    if previous and (local == previous or local.endswith(f".{previous}")):
        local = local[: -len(previous)].rstrip(".")
    return ".".join(part for part in (local, label) if part)
