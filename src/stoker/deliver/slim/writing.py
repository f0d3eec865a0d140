"""A planned library written to a file, where it appears when it is whole and has been checked."""

from pathlib import Path

from stoker.artifact.reader import Reader
from stoker.deliver.slim.library import LibraryPlan


def write_library(plan: LibraryPlan, reader: Reader, path: Path) -> None:
    """Write the slimmed library to ``path``, which may be that of the original.

    ``reader`` is what the plan was made of. The file is a new one with the usual permissions:
    those of the original are for the caller to give. A failed check is an ArtifactError.
    """
    raise NotImplementedError
