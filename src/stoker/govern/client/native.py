"""The launcher and the preloaded library: where they are installed, and copies that last.

A build folder configured with `--via launcher` remembers the path of a link to the copy, which
stays when stoker is upgraded or removed. What the parts do is described in launcher/README.md.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path
from zlib import crc32

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
    """Return lasting copies of both parts, and write them if there are none.

    They are in stoker's data folder, in a folder for this content: another version must not change
    those of a running build, whose governor it does not understand. The library is in another
    folder if LD_PRELOAD would split that path.
    """
    launcher, library = _content(installed(LAUNCHER)), _content(installed(LIBRARY))
    name = f"{crc32(library, crc32(launcher)):08x}"
    folder = folders.data_folder("native")
    own = folders.data_folder("native", name)
    program = _copied(launcher, own / Path(LAUNCHER).name, 0o755)
    if any(character in str(folder) for character in ": \t\n"):  # LD_PRELOAD is split at these
        own = folders.private_folder(Path(f"/tmp/stoker-{os.getuid()}-native")) / name
        own.mkdir(mode=0o700, exist_ok=True)
    preloaded = _copied(library, own / Path(LIBRARY).name, 0o644)
    link = own / _SANITIZER_LINK
    with suppress(FileExistsError):
        link.symlink_to(".")
    return Native(
        launcher=str(program),
        library=str(link / preloaded.name),
        remembered=str(_linked(folder / program.name, f"{name}/{program.name}")),
    )


def _linked(link: Path, target: str) -> Path:
    """Let a link lead to a file. It replaces another link at once."""
    with suppress(OSError):
        if link.readlink() == Path(target):
            return link
    new = link.with_name(f"{link.name}.{os.getpid()}")
    new.symlink_to(target)
    new.replace(link)
    return link


def _copied(content: bytes, path: Path, mode: int) -> Path:
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
