"""Finds the control groups that a process is in, from its own up to the outermost in sight.

It knows how to get from /proc/PID/cgroup to folders; their readers know what the files say.
"""

from pathlib import PurePosixPath
from typing import Literal

from stoker.machine.file_tree import FileTree, Mount, parse_mounts
from stoker.model.value import Value

UNIFIED = ""  # how /proc/PID/cgroup names the controllers of version 2


class ControlGroup(Value, frozen=True, kw_only=True):
    version: int
    folder: str


def groups(
    tree: FileTree, controller: str, process: int | Literal["self"] = "self"
) -> tuple[ControlGroup, ...]:
    """Return the visible groups whose limits apply to a process, its own first.

    On a hybrid host a controller is on version 1 or on version 2, never on both; a process has a
    line for each, so version 1 is asked first and must name the controller.
    """
    membership = parse_membership(tree.text(f"/proc/{process}/cgroup") or "")
    mounts = parse_mounts(tree.text("/proc/self/mountinfo") or "")
    version_1 = [
        mount for mount in mounts if mount.filesystem == "cgroup" and controller in mount.options
    ]
    if controller in membership and version_1:
        return _chain(tree, 1, membership[controller], version_1)
    version_2 = [mount for mount in mounts if mount.filesystem == "cgroup2"]
    if UNIFIED in membership and version_2:
        return _chain(tree, 2, membership[UNIFIED], version_2)
    return ()


def parse_membership(text: str) -> dict[str, str]:
    """Return controller to path within its hierarchy, from ``number:controllers:path`` lines."""
    membership: dict[str, str] = {}
    for line in text.split("\n"):
        number, *rest = line.split(":", 2)
        if number.isdigit() and len(rest) == 2 and rest[1].startswith("/"):
            membership.update(dict.fromkeys(rest[0].split(","), rest[1]))
    return membership


def _chain(
    tree: FileTree, version: int, path: str, mounts: list[Mount]
) -> tuple[ControlGroup, ...]:
    """Return the groups from ours upward. Of several mounts, use the one that shows our
    own group.
    """
    showing = (mount for mount in mounts if tree.exists(_folder(path, mount)))
    mount = next(showing, mounts[0])
    own = PurePosixPath(_folder(path, mount))
    return tuple(
        ControlGroup(version=version, folder=str(folder))
        for folder in (own, *own.parents)
        if folder.is_relative_to(mount.point) and tree.exists(str(folder))
    )


def _folder(path: str, mount: Mount) -> str:
    """Return the folder at which a mount shows a group, or the mount itself if that is unknown.

    A container sees a part of the hierarchy: without a cgroup namespace of its own the path still
    starts with the part's name, which the mount gives as its root. ``..`` stands for groups outside
    our namespace, whose names are hidden.
    """
    if ".." in path.split("/"):
        return mount.point
    inside = PurePosixPath(path)
    if inside.is_relative_to(mount.root):
        inside = inside.relative_to(mount.root)
    return str(PurePosixPath(mount.point) / str(inside).lstrip("/"))
