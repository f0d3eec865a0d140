"""Slims libraries in place: in a folder, or of an installed distribution."""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from stoker.model.errors import ArtifactError, StokerError, StorageError, UsageError
from stoker.model.slimming import SLIM_MEMBER
from stoker.model.value import Value
from stoker.outside.files import Stamp, sha256_of, stamp_of, write_whole
from stoker.wheel.engine import record
from stoker.wheel.engine.record import RecordRow, written
from stoker.wheel.facts import files_below, is_elf
from stoker.wheel.slim import in_place
from stoker.wheel.slim.cuts import (
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
from stoker.wheel.slim.in_place import STORE, Site, StoreState, give, state_of


class Installed(Value, frozen=True, kw_only=True):
    """A distribution: its dist-info folder, and the rows of its RECORD by absolute path.

    ``stamp`` identifies the RECORD that was read.
    """

    dist_info: Path
    stamp: Stamp
    rows: dict[str, RecordRow]
    names: dict[str, str]  # as RECORD writes a path

    @property
    def name(self) -> str:
        return self.dist_info.name.partition("-")[0]

    @property
    def record(self) -> Path:
        return self.dist_info / "RECORD"


def read_installed(dist_info: Path) -> Installed:
    try:
        stamp = stamp_of(dist_info / "RECORD")
        rows = record.parse_record((dist_info / "RECORD").read_bytes())
    except FileNotFoundError:
        raise UsageError(
            f"{dist_info.name} has no RECORD, so its files are unknown",
            hints=["name the folder of its libraries instead"],
        ) from None
    except OSError as error:
        raise StorageError(f"cannot read {dist_info / 'RECORD'}: {error.strerror}") from error
    except ValueError as error:
        raise ArtifactError(str(error), file=str(dist_info / "RECORD")) from None
    site = dist_info.parent
    names = {absolute(site / name): name for name in rows}
    return Installed(
        dist_info=dist_info,
        stamp=stamp,
        rows={path: rows[name] for path, name in names.items()},
        names=names,
    )


def owners(files: Iterable[Path]) -> tuple[Installed, ...]:
    """Return the distributions in parent folders whose RECORD lists one of the files."""
    wanted = {absolute(file) for file in files}
    folders = {folder for path in wanted for folder in Path(path).parents}
    found = [
        read_installed(dist_info)
        for folder in sorted(folders)
        for dist_info in sorted(folder.glob("*.dist-info"))
        if (dist_info / "RECORD").is_file()
    ]
    return tuple(installed for installed in found if wanted & installed.rows.keys())


def rewritten(
    installed: Installed, changed: Mapping[str, RecordRow], added: Mapping[str, RecordRow]
) -> bytes:
    """Return RECORD with changed and added rows, which are given by absolute path."""
    site = installed.dist_info.parent
    rows = {installed.names[path]: changed.get(path, row) for path, row in installed.rows.items()}
    rows |= {os.path.relpath(path, site): row for path, row in added.items()}
    return record.render_record(rows)


def absolute(path: Path) -> str:
    """Return the absolute path without following links, since RECORD lists the links."""
    return os.path.normpath(path.absolute())


def plan_folder(folder: Path, request: SlimRequest) -> tuple[Cut, ...]:
    """Plan all ELF files in a folder; NVIDIA's packages stay unchanged, with a remark."""
    files = _libraries(folder, files_below(folder))
    nvidias = [one for one in owners(files.values()) if is_nvidia_distribution(one.name)]
    paths = {path for one in nvidias for path in one.rows}
    owned = frozenset(name for name, file in files.items() if absolute(file) in paths)
    return plan_cuts(files, request, nvidia_owned=owned)


def plan_installed(dist_info: Path, request: SlimRequest) -> tuple[Cut, ...]:
    installed = read_installed(dist_info)
    if is_nvidia_distribution(installed.name) and not request.nvidia:
        raise nvidia_refusal(installed.name)
    return plan_cuts(_libraries(dist_info.parent, installed.names.values()), request)


def _libraries(root: Path, names: Iterable[str]) -> dict[str, Path]:
    return {name: root / name for name in names if STORE not in name and is_elf(root / name)}


def recover(store: Path) -> None:
    """Complete or revert what a killed process began. The caller holds the store's lock."""
    state = state_of(store)
    if state is StoreState.REPLACING:
        in_place.put_back(store)
    elif state is StoreState.DISCARDING:
        _finish_discarding(store)
    elif state is None:
        in_place.check_no_originals(store)
        in_place.clear_store(store)


def replace_files(
    cuts: Sequence[Cut], store: Path, request: SlimRequest, *, keep: bool
) -> tuple[Cut, ...]:
    """Replace the files that change; with ``keep``, the originals stay in the store for undo.

    The caller holds the store's lock and has called ``recover``.
    """
    if state_of(store):
        raise UsageError(
            f"it was slimmed before, and its originals are in {store}",
            hints=["restore them first with --undo, or delete them with --discard"],
        )
    check_room(store, sum(cut.summary.after_bytes for cut in changed(cuts)))
    affected = owners(cut.file for cut in changed(cuts))
    written = [store.parent, *(cut.file.parent for cut in changed(cuts))]
    written += [one.dist_info.parent for one in affected]
    site = Site(root=Path(os.path.commonpath(list(map(absolute, written)))), store=store)
    try:
        become = write_cuts(cuts, lambda cut: site.prepared(_under(site, cut.file)))
        stamps = _prepare(site, changed(become), affected, request, keep=keep)
        if stamps:
            in_place.replace_prepared(site, stamps)
    finally:
        if state_of(store) is None:
            with suppress(StorageError):
                in_place.clear_store(store)
    if stamps and not keep:
        discard_originals(store)
    return become


def _prepare(
    site: Site,
    written: Sequence[Cut],
    affected: Iterable[Installed],
    request: SlimRequest,
    *,
    keep: bool,
) -> dict[str, Stamp | None]:
    """Create the other new files in the store: slim records and RECORD files.

    Return all files to replace, relative to the root, with the stamps of the present files.
    """
    names = [_under(site, cut.file) for cut in written]
    stamps: dict[str, Stamp | None] = {}
    for cut, name in zip(written, names, strict=True):
        give(site.prepared(name), cut.file)
        stamps[name] = cut.stamp
    rows = {absolute(cut.file): _row(site, name) for cut, name in zip(written, names, strict=True)}
    for installed in affected:
        if own := [cut for cut in written if absolute(cut.file) in installed.rows]:
            stamps |= _notes(site, installed, rows, own, request, keep=keep)
    return stamps


def _notes(
    site: Site,
    installed: Installed,
    rows: Mapping[str, RecordRow],
    own: Sequence[Cut],
    request: SlimRequest,
    *,
    keep: bool,
) -> Iterator[tuple[str, Stamp | None]]:
    """Write the slim record and RECORD of a distribution to the store."""
    here = installed.dist_info / SLIM_MEMBER
    stamp = stamp_of(here) if here.is_file() else None
    before = decode_record(here.read_bytes()) if stamp else None
    note = _under(site, here)
    write_whole(site.prepared(note), encode_record(make_record(request, own, before)))
    yield note, stamp
    listed = _under(site, installed.record)
    added = {absolute(site.root / note): _row(site, note)}
    if keep:
        originals = (*(_under(site, cut.file) for cut in own), listed)
        added |= {absolute(site.original(name)): RecordRow() for name in originals}
        if site.store.is_relative_to(installed.dist_info):
            added[absolute(site.journal)] = RecordRow()
    write_whole(site.prepared(listed), rewritten(installed, rows, added))
    give(site.prepared(listed), installed.record)
    yield listed, installed.stamp


def _under(site: Site, file: Path) -> str:
    return os.path.relpath(absolute(file), site.root)


def _row(site: Site, name: str) -> RecordRow:
    path = site.prepared(name)
    return RecordRow(
        digest=written("sha256", bytes.fromhex(sha256_of(path))), size=path.stat().st_size
    )


def put_back_originals(store: Path) -> tuple[str, ...]:
    """Restore the originals and return their names; none if nothing had been replaced yet."""
    _check_there(store)
    with in_place.held_store(store):
        if state_of(store) in (StoreState.KEPT, StoreState.REPLACING):
            return in_place.put_back(store)
        was_preparing = state_of(store) is None and in_place.has_prepared(store)
        recover(store)
    if not was_preparing:
        raise in_place.no_originals(store)
    return ()


def delete_originals(store: Path) -> int:
    """Delete the originals and their rows in RECORD; return their size in bytes.

    Files that a killed process was still replacing are restored.
    """
    _check_there(store)
    with in_place.held_store(store):
        state = state_of(store)
        if state is None:
            in_place.clear_store(store)
        elif state is StoreState.REPLACING:
            in_place.put_back_ours(store)
        else:
            return discard_originals(store)
    return 0


def _check_there(store: Path) -> None:
    if not store.is_dir():
        raise in_place.no_originals(store)


def discard_originals(store: Path) -> int:
    """Delete the originals in a locked store whose files are all replaced."""
    kept = in_place.begin_discarding(store)
    _finish_discarding(store)
    return kept


def _finish_discarding(store: Path) -> None:
    """Delete the originals first: on a full disk, RECORD cannot be written before."""
    site, journal = in_place.open_site(store)
    in_place.clear_store(store, only=[in_place.ORIGINALS])
    for file in journal.files:
        path = site.root / file.path
        if path.name != "RECORD" or not path.is_file():
            continue
        try:
            installed = read_installed(path.parent)
        except StokerError:  # an unreadable RECORD stays unchanged
            continue
        inside = f"{absolute(store)}{os.sep}"
        left = {
            installed.names[row_path]: row
            for row_path, row in installed.rows.items()
            if not row_path.startswith(inside)
        }
        if len(left) < len(installed.rows):
            made = site.prepared(file.path)
            write_whole(made, record.render_record(left))
            give(made, path)
            made.replace(path)
    in_place.clear_store(store)
