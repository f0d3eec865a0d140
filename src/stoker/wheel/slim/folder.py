"""Slims libraries in place: in a folder, or of an installed distribution.

What a slimming, --undo and --discard do depends on how far an earlier process came:

    state        slimming           --undo                      --discard
    none         slims              deletes what was prepared   deletes what was prepared
    replacing    puts back, slims   puts back                   puts back what is unchanged since
    kept         refuses            puts back                   deletes the originals
    discarding   finishes, slims    finishes, refuses           deletes the originals

Without anything to restore or to delete, --undo refuses.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from stoker.model.errors import StokerError, StorageError, UsageError
from stoker.model.slimming import SLIM_MEMBER
from stoker.outside.files import Stamp, sha256_of, stamp_of, write_whole
from stoker.wheel.inspect.facts import files_below, is_elf
from stoker.wheel.slim.files import (
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
from stoker.wheel.slim.in_place import ORIGINALS, STORE, Originals, StoreState, give
from stoker.wheel.slim.installed import Installed, absolute, owners, read_installed, rewritten
from stoker.wheel.slim.selection import SlimRequest
from stoker.wheel.zip.record import RecordRow, render_record
from stoker.wheel.zip.record import written as encoded_digest


def plan_folder(folder: Path, request: SlimRequest) -> tuple[PlannedFile, ...]:
    """Plan all ELF files in a folder; NVIDIA's packages stay unchanged, with a remark."""
    libraries = _libraries(folder, files_below(folder))
    distributions = [
        distribution
        for distribution in owners(libraries.values())
        if is_nvidia_distribution(distribution.name)
    ]
    listed = {path for distribution in distributions for path in distribution.rows}
    owned = frozenset(name for name, path in libraries.items() if absolute(path) in listed)
    return plan_files(libraries, request, nvidia_owned=owned)


def plan_installed(dist_info: Path, request: SlimRequest) -> tuple[PlannedFile, ...]:
    installed = read_installed(dist_info)
    if is_nvidia_distribution(installed.name) and not request.nvidia:
        raise nvidia_refusal(installed.name)
    return plan_files(_libraries(dist_info.parent, installed.names.values()), request)


def _libraries(root: Path, names: Iterable[str]) -> dict[str, Path]:
    return {name: root / name for name in names if STORE not in name and is_elf(root / name)}


def replace_files(
    files: Sequence[PlannedFile], originals: Originals, request: SlimRequest, *, keep: bool
) -> tuple[PlannedFile, ...]:
    """Replace the files that change; with ``keep``, the originals stay in their store for undo.

    The caller holds the store's lock and has called ``recover``.
    """
    if originals.state:
        raise UsageError(
            f"it was slimmed before, and its originals are in {originals.store}",
            hints=["restore them first with --undo, or delete them with --discard"],
        )
    check_room(originals.store, sum(file.summary.after_bytes for file in changed(files)))
    affected = owners(file.path for file in changed(files))
    touched = [originals.store.parent, *(file.path.parent for file in changed(files))]
    touched += [one.dist_info.parent for one in affected]
    site = _Site(Path(os.path.commonpath(list(map(absolute, touched)))), originals)
    try:
        made = write_files(files, lambda file: originals.prepared(site.name(file.path)))
        written = {site.name(file.path): file for file in changed(made)}
        stamps: dict[str, Stamp | None] = {}
        for name, file in written.items():
            give(originals.prepared(name), file.path)
            stamps[name] = file.stamp
        rows = {absolute(file.path): site.row(name) for name, file in written.items()}
        for installed in affected:
            if own := [file for file in written.values() if absolute(file.path) in installed.rows]:
                stamps |= _prepare_notes(site, installed, own, rows, request, keep=keep)
        if stamps:
            originals.replace(site.root, stamps)
    finally:
        if originals.state is None:
            with suppress(StorageError):
                originals.clear()
    if stamps and not keep:
        _discard_kept(originals)
    return made


class _Site(NamedTuple):
    """The folder that contains all files to replace, and the store in it."""

    root: Path
    originals: Originals

    def name(self, file: Path) -> str:
        return os.path.relpath(absolute(file), self.root)

    def row(self, name: str) -> RecordRow:
        """Return the row of RECORD for a file that was prepared."""
        path = self.originals.prepared(name)
        digest = encoded_digest("sha256", bytes.fromhex(sha256_of(path)))
        return RecordRow(digest=digest, size=path.stat().st_size)


def _prepare_notes(
    site: _Site,
    installed: Installed,
    own: Sequence[PlannedFile],
    rows: Mapping[str, RecordRow],
    request: SlimRequest,
    *,
    keep: bool,
) -> dict[str, Stamp | None]:
    """Write the slim record and RECORD of a distribution to the store; return both names with the
    stamps of the present files.
    """
    here, originals = installed.dist_info / SLIM_MEMBER, site.originals
    stamp = stamp_of(here) if here.is_file() else None
    before = decode_record(here.read_bytes()) if stamp else None
    note, listed = site.name(here), site.name(installed.record)
    write_whole(originals.prepared(note), encode_record(make_record(request, own, before)))
    added = {absolute(here): site.row(note)}
    if keep:
        kept = (*(site.name(file.path) for file in own), listed)
        added |= {absolute(originals.original(name)): RecordRow() for name in kept}
        if originals.store.is_relative_to(installed.dist_info):
            added[absolute(originals.journal)] = RecordRow()
    write_whole(originals.prepared(listed), rewritten(installed, rows, added))
    give(originals.prepared(listed), installed.record)
    return {note: stamp, listed: installed.stamp}


def recover(originals: Originals) -> None:
    """Complete or revert what a killed process began. The caller holds the store's lock."""
    match originals.state:
        case StoreState.REPLACING:
            originals.put_back()
        case StoreState.DISCARDING:
            _finish_discarding(originals)
        case None:
            originals.check_no_originals()
            originals.clear()


def put_back_originals(originals: Originals) -> tuple[str, ...]:
    """Restore the originals and return their names; none if nothing had been replaced yet."""
    _check_there(originals)
    with originals.held():
        if originals.state in (StoreState.KEPT, StoreState.REPLACING):
            return originals.put_back()
        was_preparing = originals.state is None and originals.has_prepared
        recover(originals)
    if not was_preparing:
        raise originals.none_left()
    return ()


def delete_originals(originals: Originals) -> int:
    """Delete the originals and their rows in RECORD; return their size in bytes.

    Files that a killed process was still replacing are restored.
    """
    _check_there(originals)
    with originals.held():
        match originals.state:
            case StoreState.KEPT | StoreState.DISCARDING:
                return _discard_kept(originals)
            case StoreState.REPLACING:
                originals.put_back_ours()
            case None:
                originals.clear()
    return 0


def _check_there(originals: Originals) -> None:
    if not originals.store.is_dir():
        raise originals.none_left()


def _discard_kept(originals: Originals) -> int:
    kept = originals.begin_discarding()
    _finish_discarding(originals)
    return kept


def _finish_discarding(originals: Originals) -> None:
    """Delete the originals first: on a full disk, RECORD cannot be written before."""
    root, files = originals.replaced()
    originals.clear(only=[ORIGINALS])
    inside = f"{absolute(originals.store)}{os.sep}"
    for file in files:
        path = root / file.path
        if path.name != "RECORD" or not path.is_file():
            continue
        try:
            installed = read_installed(path.parent)
        except StokerError:  # an unreadable RECORD stays unchanged
            continue
        rows = installed.rows.items()
        left = {installed.names[at]: row for at, row in rows if not at.startswith(inside)}
        if len(left) < len(rows):
            made = originals.prepared(file.path)
            write_whole(made, render_record(left))
            give(made, path)
            made.replace(path)
    originals.clear()
