"""The launcher and the preloaded library: where they are installed, and copies that last.

A build folder configured with `--via launcher` remembers the path of the copy, which stays when
stoker is upgraded or removed. What the parts do is described in launcher/README.md.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

from stoker.govern.chain import Native
from stoker.model.errors import MissingError, StorageError
from stoker.outside import folders
from stoker.outside.files import file_made_whole

LAUNCHER = "bin/stoker-launcher"
LIBRARY = "lib/libstoker-preload.so"
# Programs built with the address sanitizer start only if every library before its own has such a
# name; a link in the path is enough (launcher/README.md).
_SANITIZER_LINK = "libasan.so-libclang_rt.asan"


def installed(part: str) -> Path:
    """Return the file that came with this stoker. An editable install keeps it apart from the
    code.
    """
    package = Path(__file__).parents[2]
    for folder in (package, *(Path(entry) / "stoker" for entry in sys.path)):
        if os.access(folder / part, os.R_OK):
            return folder / part
    raise MissingError(
        f"{Path(part).name} is not installed",
        hints=["install stoker again from its wheel or checkout: `uv tool install --force .`"],
    )


def stable_native() -> Native:
    """Return lasting copies of both parts, and write them if they differ from those of this stoker.

    They are in stoker's data folder. The library is in another folder if LD_PRELOAD would split
    that path.
    """
    folder = folders.data_folder("native")
    launcher = _copied(LAUNCHER, folder, 0o755)
    if any(character in str(folder) for character in ": \t\n"):  # LD_PRELOAD is split at these
        folder = folders.private_folder(Path(f"/tmp/stoker-{os.getuid()}-native"))
    library = _copied(LIBRARY, folder, 0o644)
    link = folder / _SANITIZER_LINK
    with suppress(FileExistsError):
        link.symlink_to(".")
    return Native(launcher=str(launcher), library=str(link / library.name))


def _copied(part: str, folder: Path, mode: int) -> Path:
    path = folder / Path(part).name
    content = _content(installed(part))
    with suppress(OSError):
        if path.read_bytes() == content and path.stat().st_mode & 0o777 == mode:
            return path
    with file_made_whole(path) as stream:
        # Before it appears: a running build must never find a launcher that it cannot execute.
        os.fchmod(stream.fileno(), mode)
        stream.write(content)
    return path


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StorageError(f"cannot read {path}: {error.strerror}") from error
