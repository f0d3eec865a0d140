"""Unpacks an untrusted archive into one folder, completely or not at all.

No symbolic link is made before the last file is written, so nothing is ever written through one.
Does not know how archives are packed.
"""

import errno
import os
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from stoker.builds.acquire.members import DAMAGE, ArchiveMember, MemberKind, read_members
from stoker.builds.acquire.naming import ARCHIVES
from stoker.model.errors import ArtifactError, CommandError, StokerError, UsageError
from stoker.model.value import size
from stoker.outside.deleting import remove_file
from stoker.outside.folders import unwritable

_MOST_MEMBERS = 250_000  # LLVM with all its tests has 170,000; making a file takes time
_MOST_DEEP = 100  # folders in one another
_MOST_RATIO = 200  # source code is packed to a tenth
_ALWAYS_ALLOWED = 64 << 20  # bytes that are no bomb however small the archive is
_COST_OF_MEMBER = 16 << 10  # bytes that every file counts for: making one takes time and space
_LONGEST_TARGET = 4095  # bytes of a symbolic link on Linux
_CHUNK = 1 << 20
_GIT = ".git"  # is left out: git would run what a repository's configuration names
# What the system says of names that contradict one another, or that no file can have.
_BAD_NAMES = (
    *(errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.EPERM),
    *(errno.EILSEQ, errno.EINVAL, errno.ENAMETOOLONG),
)
_MOST_HOPS = 40  # of links, as Linux follows them
_MOST_STEPS = 500  # folders, over all hops


def unpack(archive: Path, into: Path) -> Path:
    """Fill the empty folder ``into``; gives the tree in it: the one folder at the top, or itself.

    After an error ``into`` holds a part, which is for the caller to delete.
    """
    with _explained(archive, into):
        unpacking = _Unpacking(into, most=_ALWAYS_ALLOWED + _MOST_RATIO * archive.stat().st_size)
        for member in read_members(archive):
            unpacking.take(member)
        unpacking.link()
        top = list(into.iterdir())
    if not top:
        raise ArtifactError("the archive is empty", file=archive.name)
    alone = len(top) == 1 and top[0].is_dir() and not top[0].is_symlink()
    return top[0] if alone else into


class _RefusedError(Exception):
    """The archive contains something that no honest source archive contains."""


class _Unpacking:
    """Writes members in order; symbolic links are created last."""

    def __init__(self, into: Path, *, most: int):
        self._into = into
        self._most = most
        self._bytes = 0
        self._members = 0
        self._links: dict[str, str] = {}

    def take(self, member: ArchiveMember) -> None:
        self._count(member.size)
        name = checked_name(member.name)
        if not name:
            return  # the folder that holds all others
        if _GIT in name.lower().split("/"):
            return
        path = self._into / name
        if member.kind is MemberKind.FOLDER:
            path.mkdir(parents=True, exist_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        # Of members with one name the last counts.
        self._links.pop(name, None)
        match member.kind:
            case MemberKind.FILE:
                _write(path, member)
            case MemberKind.SYMBOLIC:
                if len(member.target) > _LONGEST_TARGET:
                    raise _RefusedError(f"{name!r} is a link to {len(member.target):,} characters")
                remove_file(path, below=self._into)
                self._links[name] = member.target
            case MemberKind.HARD:
                self._copy(self._into / checked_name(member.target), path)
            case MemberKind.OTHER:
                raise _RefusedError(f"{name!r} is a {member.kind}")

    def link(self) -> None:
        for name, target in self._links.items():
            if not target or not inside(name, self._links):
                raise _RefusedError(f"{name!r} is a link out of the archive: {target!r}")
        for name, target in self._links.items():
            (self._into / name).symlink_to(target)

    def _count(self, content: int) -> None:
        self._members += 1
        self._bytes += content + _COST_OF_MEMBER
        if self._members > _MOST_MEMBERS:
            raise _RefusedError(f"it holds more than {_MOST_MEMBERS:,} files")
        if self._bytes > self._most:
            raise _RefusedError(f"it unpacks to more than {size(self._most)}, far above its size")

    def _copy(self, source: Path, path: Path) -> None:
        """Copy a hard link's target, so that a change of one file does not change the other."""
        if not source.is_file():
            raise _RefusedError(f"{path.name!r} is a second name of a file that is not there")
        self._count(source.stat().st_size)
        if source != path:
            remove_file(path, below=self._into)
            shutil.copy2(source, path)


def checked_name(name: str) -> str:
    """Return the name without redundant parts; refuse one that leads outside the folder."""
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise _RefusedError(f"{name!r} would be written outside the folder")
    if len(parts) > _MOST_DEEP:
        raise _RefusedError(f"its folders are nested more than {_MOST_DEEP} deep")
    return "/".join(parts)


def _write(path: Path, member: ArchiveMember) -> None:
    assert member.content is not None
    remove_file(path)
    with path.open("xb") as stream:
        shutil.copyfileobj(member.content, stream, _CHUNK)
        if stream.tell() != member.size:
            raise EOFError
        if member.executable:
            os.fchmod(stream.fileno(), 0o755)
    os.utime(path, (member.modified, member.modified))


@contextmanager
def _explained(archive: Path, into: Path) -> Iterator[None]:
    try:
        yield
    except _RefusedError as error:
        hints = ["made to do harm, or by mistake: look at it before you unpack it by hand"]
        raise ArtifactError(f"refused: {error}", file=archive.name, hints=hints) from error
    except DAMAGE as error:
        raise _damaged(archive, error) from error
    except OSError as error:
        if error.errno is None:  # from a decompressor, not from the system
            raise _damaged(archive, error) from error
        if error.errno in _BAD_NAMES:
            why = f"it cannot be unpacked: {error.strerror}: {error.filename}"
            raise ArtifactError(why, file=archive.name) from error
        raise unwritable(into, error, doing=f"unpack {archive.name} in") from error


def _damaged(archive: Path, error: Exception) -> StokerError:
    if not archive.name.endswith(ARCHIVES):
        hints = [f"if it is part of a tree: `stoker build {shlex.quote(str(archive.parent))}`"]
        return UsageError(f"{archive.name} is neither a folder nor an archive", hints=hints)
    why = error.output.strip() if isinstance(error, CommandError) else str(error)
    if isinstance(error, EOFError):
        why = "it ends too early"
    return ArtifactError(
        f"this is not an archive, or it is damaged: {why}",
        file=archive.name,
        hints=["download it again", "a source archive is a .tar.gz, .xz, .bz2, .zst or .zip"],
    )


def inside(link: str, links: Mapping[str, str]) -> bool:
    """Return whether a link leads to a place inside the tree when all links are in place.

    ``links`` maps the path of each link to its target. The target need not exist.
    """
    here: list[str] = []
    ahead = link.split("/")[::-1]
    hops = steps = 0
    while ahead:
        part = ahead.pop()
        steps += 1
        if steps > _MOST_STEPS:
            return False
        if part == "..":
            if not here:
                return False
            here.pop()
        elif part not in ("", "."):
            here.append(part)
            if (target := links.get("/".join(here))) is not None:
                hops += 1
                if hops > _MOST_HOPS or target.startswith("/"):
                    return False
                here.pop()
                ahead += target.split("/")[::-1]
    return True
