"""A planned library written to a file, where it appears when it is whole and has been checked."""

from pathlib import Path
from typing import BinaryIO

from stoker.artifact.reader import Reader, open_file
from stoker.deliver.slim.check import check_slimmed
from stoker.deliver.slim.library import LibraryPlan, Rewrite
from stoker.outside.files import file_made_whole


def write_library(plan: LibraryPlan, reader: Reader, path: Path) -> None:
    """Write the slimmed library of a plan that ``changes``; ``path`` may be the original's.

    ``reader`` is what the plan was made of. The file is a new one with the usual permissions:
    those of the original are for the caller to give. A failed check is an ArtifactError.
    """
    assert plan.rewrite is not None
    with file_made_whole(path) as stream:
        _write(plan.rewrite, reader, stream)
        stream.flush()
        with open_file(Path(stream.name), reader.name) as written:
            check_slimmed(reader, written, plan.kept)


def _write(rewrite: Rewrite, reader: Reader, stream: BinaryIO) -> None:
    stream.truncate(rewrite.size)
    for source, target, size in rewrite.copies:
        stream.seek(target)
        stream.writelines(reader.chunks(source, size))
    for target, content in rewrite.overwritten:
        stream.seek(target)
        stream.write(content)
