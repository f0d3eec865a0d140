"""Where the native launcher is: installed with the package, and copied to a place that lasts.

Build folders remember the path of the copy, which stays when stoker is upgraded or gone. What the
launcher does is told in launcher/README.md.
"""

import os
from contextlib import suppress
from importlib import metadata
from pathlib import Path

from stoker.model.errors import MissingError, StorageError
from stoker.outside import folders
from stoker.outside.files import file_made_whole

NAME = "stoker-launcher"


def launcher_path() -> Path:
    """The launcher that came with this stoker; an editable install keeps it apart from the code."""
    with suppress(metadata.PackageNotFoundError):
        path = Path(str(metadata.distribution("stoker").locate_file(f"stoker/bin/{NAME}")))
        if os.access(path, os.X_OK):
            return path
    raise MissingError(
        f"{NAME} is not installed",
        hints=["install stoker again: `pip install --force-reinstall stoker`, or `make venv`"],
    )


def stable_launcher() -> Path:
    """A copy of it among stoker's data, the same as this stoker's own."""
    path = folders.data_folder("launcher") / NAME
    content = _content(launcher_path())
    with suppress(OSError):
        if os.access(path, os.X_OK) and path.read_bytes() == content:
            return path
    with file_made_whole(path) as stream:
        # Before it appears: a build that runs meanwhile must never find one it cannot execute.
        os.fchmod(stream.fileno(), 0o755)
        stream.write(content)
    return path


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
