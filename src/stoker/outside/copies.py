"""Runs a command on copies of folders: all that it writes there is thrown away.

The copies are overlay mounts in a mount namespace of the command's own, so that they are made at
once, have the paths of the originals and need room only for what is written. Linux only; users
other than root need user namespaces.
"""

import os
import re
import shlex
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from stoker.model.errors import MissingError
from stoker.outside import folders
from stoker.outside.deleting import remove_whole
from stoker.outside.process import CommandResult, run

_SCRATCH = ("/var/tmp", "/tmp")  # for what is written; neither is copied
_NOT_MADE = 121  # the status if a copy cannot be made
_OTHERS = ("/usr", "/opt", "/etc")  # where commands of builds install
_SPECIAL = frozenset(":,\\\n")  # which the options of a mount cannot contain


def run_on_copies(
    command: Sequence[str],
    *,
    folder: Path,
    timeout: float,
    env: Mapping[str, str] | None = None,
) -> CommandResult:
    """Run a command in a folder of which it sees a copy, as of the user's home and of the system.
    Raise a MissingError if copies cannot be made here.
    """
    if shutil.which("unshare") is None:
        raise MissingError("cannot make copies of folders: there is no unshare, of util-linux")
    home = Path((env or os.environ).get("HOME", "/root"))
    copied = copied_folders([folder, home, folders.state(), *map(Path, _OTHERS)])
    scratch = Path(tempfile.mkdtemp(prefix="stoker-try-", dir=_scratch(copied)))
    steps = " &&\n".join(_steps(scratch, copied, folder))
    script = f'{{ {steps}; }} || exit {_NOT_MADE}\nexec "$@"'
    entered, before = ["unshare", "--mount", "--propagation", "private"], []
    if user := os.geteuid():  # who may not mount, and runs the command as themselves again
        entered[1:1] = ["--user", "--map-root-user"]
        before = ["unshare", "--user", f"--map-user={user}", f"--map-group={os.getegid()}"]
    words = [*entered, "sh", "-c", script, "sh", *before, *command]
    try:
        done = run(words, timeout=timeout, env=env)
    finally:
        remove_whole(scratch)
    if done.status == _NOT_MADE:
        reason = done.stderr.strip().splitlines()[-1:] or ["mount failed"]
        raise MissingError(f"cannot run a command on copies of folders here: {reason[0]}")
    return done


def _steps(scratch: Path, copied: Iterable[Path], folder: Path) -> Iterator[str]:
    """Yield the commands that make the copies. In a container what is written cannot be kept on
    its own overlay, and is kept in memory. Mounts below a folder are copied by themselves: an
    overlay does not show them.
    """
    where = shlex.quote(str(scratch))
    yield f'[ "$(stat -f -c %T {where})" != overlayfs ] || mount -t tmpfs tmpfs {where}'
    number = 0
    for top in copied:
        kept = scratch / f"kept{number}"
        yield shlex.join(["mkdir", str(kept)])
        yield shlex.join(["mount", "--rbind", str(top), str(kept)])
        for path in [top, *_mounts_below(top)]:
            number += 1
            origin = kept / path.relative_to(top)
            as_it_is = shlex.join(["mount", "--rbind", str(origin), str(path)])
            if path == top:
                yield _overlay(scratch, number, origin, path)
            elif path.is_dir():
                yield f"{{ {_overlay(scratch, number, origin, path)} || {as_it_is}; }}"
            else:
                yield as_it_is
    yield shlex.join(["cd", str(folder)])


def _overlay(scratch: Path, number: int, origin: Path, path: Path) -> str:
    upper, work = scratch / f"upper{number}", scratch / f"work{number}"
    layers = f"lowerdir={origin},upperdir={upper},workdir={work}"
    made = shlex.join(["mkdir", str(upper), str(work)])
    mount = ["mount", "-t", "overlay", "overlay", "-o", layers, str(path)]
    return f"{made} && {shlex.join(mount)}"


def _mounts_below(folder: Path) -> list[Path]:
    """Return where something is mounted below a folder, the outer ones first."""
    with Path("/proc/self/mountinfo").open(encoding="utf-8", errors="surrogateescape") as stream:
        names = [line.split()[4] for line in stream]
    paths = {Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), n)) for n in names}
    return sorted(path for path in paths if folder in path.parents and path.exists())


def copied_folders(wanted: Iterable[Path]) -> list[Path]:
    """Return the folders to copy: of each path the top folder that is on the same disk, since an
    overlay does not contain other disks below it. No folder is below another on its disk.
    """
    found: dict[Path, None] = {}
    for path in wanted:
        if path.exists():
            found[_top(path.resolve())] = None
    return sorted(found)


def _top(path: Path) -> Path:
    device = path.stat().st_dev
    while path.parent != Path("/") and path.parent.stat().st_dev == device:
        path = path.parent
    if _SPECIAL.intersection(str(path)) or path == Path("/"):
        raise MissingError(f"cannot make a copy of {path}: its name has a special character")
    return path


def _scratch(copied: Iterable[Path]) -> str:
    taken = [str(path) for path in copied]
    for folder in _SCRATCH:
        if not any(folder == one or folder.startswith(f"{one}/") for one in taken):
            return folder
    raise MissingError("cannot make copies: the build is in the folder of temporary files")
