"""Installed distributions as their RECORD files describe them, with paths as they are on disk."""

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from stoker.model.errors import ArtifactError, StorageError, UsageError
from stoker.model.value import Value
from stoker.outside.files import Stamp, stamp_of
from stoker.wheel.zip.record import RecordRow, parse_record, render_record


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
        rows = parse_record((dist_info / "RECORD").read_bytes())
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
    return render_record(rows)


def absolute(path: Path) -> str:
    """Return the absolute path without following links, since RECORD lists the links."""
    return os.path.normpath(path.absolute())
