"""A wheel slimmed: its libraries unpacked aside, planned, cut, and put into a new wheel."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from packaging.version import InvalidVersion

from stoker.artifact.elf import MAGIC
from stoker.artifact.engine import Content, Edit, Wheel, rewrite
from stoker.artifact.engine.identity import identify
from stoker.artifact.engine.parallel import threads
from stoker.artifact.headers import Headers
from stoker.deliver.slim import nvidia
from stoker.deliver.slim.cuts import Cut, SlimRequest, changed, check_room, plan_cuts, write_cuts
from stoker.deliver.slim.record import decode, encode, make_record
from stoker.model.distribution import read_version
from stoker.model.errors import ArtifactError, StorageError
from stoker.model.slim import SLIM_MEMBER
from stoker.outside.temporary import folder_of_process

ASIDE = ".stoker-slim-"  # how the names of folders begin that are gone when the work is done


@contextmanager
def planned(wheel: Wheel, request: SlimRequest, folder: Path) -> Iterator[tuple[Cut, ...]]:
    """The cuts of its libraries, which lie unpacked in ``folder`` for as long as they are used."""
    name = Headers(wheel.read(f"{wheel.dist_info}/METADATA")).values("Name")
    owned = bool(name) and nvidia.is_nvidia_distribution(name[0])
    if owned and not request.nvidia:
        raise nvidia.refusal(wheel.path.name)
    members = _libraries(wheel)
    unpacked = sum(wheel.members[member].size for member in members)
    check_room(folder, unpacked + wheel.path.stat().st_size)
    with folder_of_process(folder, ASIDE) as aside:
        files = _unpack(wheel, members, aside)
        yield plan_cuts(files, request, nvidia_owned=frozenset(members if owned else ()))


def _libraries(wheel: Wheel) -> list[str]:
    """The ELF files, the largest first, so that no thread is left alone with it."""
    found = [
        name
        for name, member in wheel.members.items()
        if member.size > len(MAGIC) and next(iter(wheel.stream(name)))[: len(MAGIC)] == MAGIC
    ]
    return sorted(found, key=lambda name: -wheel.members[name].size)


def _unpack(wheel: Wheel, members: Sequence[str], folder: Path) -> dict[str, Path]:
    """By number: the names of a wheel are no names for a disk."""

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
    """Of the wheel that will be."""
    edited = _metadata(wheel, changed(cuts), request)
    metadata = b"".join(edited[f"{wheel.dist_info}/METADATA"].chunks())
    try:
        return identify(metadata, wheel.read(f"{wheel.dist_info}/WHEEL")).file_name
    except ValueError as error:
        raise ArtifactError(str(error), file=str(wheel.path)) from None


def write_wheel(
    wheel: Wheel, cuts: Collection[Cut], request: SlimRequest, into: Path
) -> tuple[Path | None, tuple[Cut, ...]]:
    """The wheel as planned, in the folder ``into``, where it appears when it is whole.

    None where no library passed its check.
    """
    become = write_cuts(cuts, _slimmed_file)
    written = changed(become)
    if not written:
        return None, become
    contents = {cut.name: Content.of_file(_slimmed_file(cut)) for cut in written}
    contents |= _metadata(wheel, written, request)
    # Made among the libraries, so that nothing else is left of it when this process is killed.
    made = rewrite(wheel, Edit(contents=contents), written[0].file.parent)
    try:
        return made.replace(into / made.name), become
    except OSError as error:
        raise StorageError(f"cannot write {into / made.name}: {error.strerror}") from error


def _slimmed_file(cut: Cut) -> Path:
    return cut.file.with_suffix(".slim")


def _metadata(wheel: Wheel, written: Iterable[Cut], request: SlimRequest) -> Mapping[str, Content]:
    metadata, note = f"{wheel.dist_info}/METADATA", f"{wheel.dist_info}/{SLIM_MEMBER}"
    before = decode(wheel.read(note)) if note in wheel.members else None
    record = make_record(request, written, before)
    headers = Headers(wheel.read(metadata))
    previous = before.label if before else None
    headers.replace("Version", [new_version(headers.values("Version"), record.label, previous)])
    if record.private and nvidia.PRIVATE not in headers.values("Classifier"):
        headers.insert("Classifier", [nvidia.PRIVATE])
    return {
        metadata: Content.of_bytes(bytes(headers)),
        note: Content.of_bytes(encode(record)),
    }


def new_version(said: Sequence[str], label: str, previous: str | None) -> str:
    """With the label at the end of the local one, in the place of that of an earlier slimming."""
    try:
        version = read_version(said[0])
    except (InvalidVersion, IndexError) as error:
        raise ArtifactError(f"METADATA has no version that can be extended: {error}") from None
    local = version.local or ""
    if previous and (local == previous or local.endswith(f".{previous}")):
        local = local[: -len(previous)].rstrip(".")
    return f"{version.public}+{'.'.join(part for part in (local, label) if part)}"
