"""The folder that stands first on a governed command's PATH: links named like compilers, a ninja.

It lies among stoker's data, so that a path configured into a build folder stays good when stoker
is upgraded or gone; the launcher without a governor is the command itself.
"""

import os
from contextlib import suppress
from importlib import resources
from pathlib import Path

from stoker.govern.launcher import stable_launcher
from stoker.outside import folders
from stoker.outside.files import write_whole
from stoker.plan.chain import MASQUERADED, Links


def make_links() -> Links:
    """Make what is missing, renew what has changed."""
    launcher = stable_launcher()
    folder = folders.data() / "links"
    folder.mkdir(parents=True, exist_ok=True)
    for name in MASQUERADED:
        _link(folder / name, launcher)
    shim = resources.files("stoker.govern").joinpath("shims/ninja").read_bytes()
    target = folder / "ninja"
    if not target.is_file() or target.read_bytes() != shim:
        write_whole(target, shim)
    target.chmod(0o755)
    return Links(launcher=str(launcher), folder=str(folder))


def _link(path: Path, target: Path) -> None:
    with suppress(OSError):
        if path.readlink() == target:
            return
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.symlink_to(target)
    aside.replace(path)
