"""What stands first on a governed command's PATH: links named like compilers, and build tools.

They lie among stoker's data, so that a path configured into a build folder stays good when stoker
is upgraded or gone; the launcher without a governor is the command itself. There are links only
for compilers that are there: one that is not must not seem to be. So each set of names has a folder
of its own.
"""

import hashlib
import os
from contextlib import suppress
from importlib import resources
from pathlib import Path

from stoker.govern.launcher import stable_launcher
from stoker.model.errors import StorageError
from stoker.outside import folders
from stoker.outside.files import file_made_whole
from stoker.plan.chain import BUILD_TOOLS, COMPILER, Links


def make_links(path: str) -> Links:
    """Make what is missing, renew what has changed. ``path``: the PATH as the user has it."""
    launcher = stable_launcher()
    tools, nvcc = folders.data_folder("tools"), folders.data_folder("torch") / "nvcc"
    for name in BUILD_TOOLS:
        _write(tools / name, "build_tool")
    _write(nvcc, "nvcc")
    names = compilers_on(path)
    digest = hashlib.sha256(":".join(names).encode()).hexdigest()[:12]
    compilers = folders.data_folder("links", digest)
    try:
        for name in names:
            _link(compilers / name, launcher)
    except OSError as error:
        raise StorageError(f"cannot make links in {compilers}: {error.strerror}") from error
    return Links(launcher=str(launcher), compilers=str(compilers), tools=str(tools), nvcc=str(nvcc))


def compilers_on(path: str) -> list[str]:
    """Names of the compilers that a PATH leads to; not of those that are ccache under their name:
    it calls the launcher by itself, and only on a miss.
    """
    first: dict[str, str] = {}
    for folder in dict.fromkeys(path.split(":")):
        with suppress(OSError), os.scandir(folder or ".") as entries:
            for entry in entries:
                if COMPILER.fullmatch(entry.name):
                    first.setdefault(entry.name, entry.path)
    return sorted(name for name, file in first.items() if Path(file).resolve().name != "ccache")


def _write(path: Path, shim: str) -> None:
    content = resources.files("stoker.govern").joinpath("shims", shim).read_bytes()
    with suppress(OSError):
        if path.read_bytes() == content and os.access(path, os.X_OK):
            return
    with file_made_whole(path) as stream:
        os.fchmod(stream.fileno(), 0o755)  # before it appears, as for the launcher
        stream.write(content)


def _link(path: Path, target: Path) -> None:
    with suppress(OSError):
        if path.readlink() == target:
            return
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.symlink_to(target)
    aside.replace(path)
