"""Reads the commit of a tree and the state of its submodules from git.

Git runs what the configuration of a repository names: file system monitors, hooks, filters, ssh.
The tree is untrusted. So git is shown a repository of ours, which has the objects and the
index of the tree's, and only those of its settings that say how files are compared.
"""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from stoker.model.build import GitState
from stoker.model.errors import CommandError, MissingError
from stoker.model.secrets import without_login
from stoker.model.value import Value
from stoker.outside import process
from stoker.outside.looking import exists, is_file, is_folder

_TIMEOUT_S = 60.0  # seconds; a large tree on a slow disk
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REFERENCE = re.compile(r"ref: (refs/(?!.*\.\.)\S+)")
_TIME = re.compile(r"^committer .*> (\d{1,12}) [+-]\d{4}$", re.MULTILINE)
_COMPARES = re.compile(r"core\.(filemode|ignorecase|symlinks|autocrlf|eol|trustctime|checkstat)")
_HASHED = "extensions.objectformat"
_WORD = re.compile(r"[a-z0-9]+")
_GITLINK = re.compile(r"160000 ([0-9a-f]{40,64}) ([0-3])\t(.+)", re.DOTALL)
_ALONE = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ALLOW_PROTOCOL": "",  # an object that is missing is not fetched
    "GIT_OPTIONAL_LOCKS": "0",  # the index is not rewritten
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}


def read_git_state(tree: Path) -> GitState | None:
    """Return the state of a repository; ``None`` if the tree is not the top of one, or git is
    missing.
    """
    with suppress(CommandError, MissingError, OSError), _opened(tree) as view:
        if view and view.commit and (time := _TIME.search(view.said("cat-file", "commit", "HEAD"))):
            return GitState(
                commit=view.commit,
                changed=_is_changed(view),
                time=int(time[1]),
                origin=without_login(view.settings.get("remote.origin.url", "")) or None,
            )
    return None


def submodule_states(tree: Path) -> dict[str, str]:
    """Return the sign of `git submodule status` for each submodule, recursively: ``-`` missing,
    ``+`` at another commit, ``U`` in conflict, or a blank.
    """
    states: dict[str, str] = {}
    with _opened(tree) as view:
        for path, commit, stage in _submodules(view) if view else ():
            with _opened(tree / path) as inner:
                if stage != "0":
                    states[path] = "U"
                elif inner is None or not _is_within(tree, path):
                    states[path] = "-"
                else:
                    states[path] = " " if inner.commit == commit else "+"
                    nested = submodule_states(tree / path)
                    states |= {f"{path}/{name}": state for name, state in nested.items()}
    return states


class _View(Value, frozen=True, kw_only=True):
    """A repository as git may see it. ``commit`` is ``None`` if there is none yet."""

    tree: Path
    commit: str | None
    settings: dict[str, str]  # all of the repository's own; git sees few
    environment: dict[str, str]

    def said(self, *words: str) -> str:
        return process.check(
            ["git", *words], timeout=_TIMEOUT_S, env=self.environment, cwd=self.tree
        )


@contextmanager
def _opened(tree: Path) -> Iterator[_View | None]:
    """Open a repository; return ``None`` if the folder is not the top of one."""
    folder = _git_folder(tree)
    if folder is None or not (head := _line(folder / "HEAD")):
        yield None
        return
    index = folder / "index"
    if exists(index) and not is_file(index):  # git would wait for a pipe or read a device
        yield None
        return
    common = folder / (_line(folder / "commondir") or "")
    settings = dict(_settings(common / "config"))
    commit = _commit(head, common)
    with TemporaryDirectory(prefix="stoker-git-") as ours:
        _make_repository(Path(ours), commit, settings)
        environment = {
            **_inherited(),
            "GIT_DIR": ours,
            "GIT_WORK_TREE": str(tree.absolute()),
            "GIT_INDEX_FILE": str((folder / "index").absolute()),
            "GIT_OBJECT_DIRECTORY": str((common / "objects").absolute()),
        }
        yield _View(tree=tree, commit=commit, settings=settings, environment=environment)


def head_commit(folder: Path) -> str | None:
    """Return the commit of the tree that a folder is in, read from git's files alone."""
    for tree in (folder, *folder.parents):
        if found := _git_folder(tree):
            named = _line(found / "commondir")
            common = found / named if named else found
            return _commit(_line(found / "HEAD") or "", common)
    return None


def _git_folder(tree: Path) -> Path | None:
    """Return the git folder. In a submodule or a second work tree, the file .git names it."""
    place = tree / ".git"
    if is_folder(place):
        return place
    named = (_line(place) or "").removeprefix("gitdir: ")
    return tree / named if named and is_folder(tree / named) else None


def _line(path: Path) -> str | None:
    """Return the first line of a regular file: opening a pipe would wait for ever."""
    if not is_file(path):
        return None
    with suppress(OSError), path.open(encoding="utf-8", errors="surrogateescape") as stream:
        line = stream.readline(4096).strip()
        return None if "\0" in line else line
    return None


def _commit(head: str, common: Path) -> str | None:
    if not (reference := _REFERENCE.fullmatch(head)):
        return head if _COMMIT.fullmatch(head) else None
    found = _line(common / reference[1]) or _packed(reference[1], common / "packed-refs")
    return found if found and _COMMIT.fullmatch(found) else None


def _packed(reference: str, path: Path) -> str | None:
    if is_file(path):
        with suppress(OSError), path.open(encoding="utf-8", errors="surrogateescape") as stream:
            for line in stream:
                if line.rstrip("\n").endswith(f" {reference}"):
                    return line.partition(" ")[0]
    return None


def _settings(file: Path) -> Iterator[tuple[str, str]]:
    """Return the settings of a file, without those it includes."""
    if not is_file(file):
        return
    command = ["git", "config", "--file", str(file.absolute()), "--null", "--list"]
    for entry in process.check(command, timeout=_TIMEOUT_S, env=_inherited(), cwd=Path("/")).split(
        "\0"
    ):
        key, equals, value = entry.partition("\n")
        if key:
            yield key, value if equals else "true"


def _inherited() -> dict[str, str]:
    """Return the environment for git without its own variables: `GIT_DIR` may come from a hook."""
    return {k: v for k, v in os.environ.items() if not k.startswith("GIT_")} | _ALONE


def _make_repository(ours: Path, commit: str | None, settings: Mapping[str, str]) -> None:
    kept = {
        name.removeprefix("core."): value
        for name, value in settings.items()
        if _COMPARES.fullmatch(name) and _WORD.fullmatch(value)
    }
    lines = ["[core]", *(f"{name} = {value}" for name, value in kept.items())]
    lines.append(f"repositoryformatversion = {int(_HASHED in settings)}")
    if _WORD.fullmatch(settings.get(_HASHED, "")):
        lines += ["[extensions]", f"objectformat = {settings[_HASHED]}"]
    (ours / "refs").mkdir()
    (ours / "config").write_text("\n".join(lines) + "\n")
    (ours / "HEAD").write_text(f"{commit or 'ref: refs/heads/none'}\n")


def _is_changed(view: _View) -> bool:
    """Return whether the tree has changes. Git itself would run in each submodule, with its
    settings.
    """
    words = ("status", "--porcelain", "--untracked-files=no", "--ignore-submodules=dirty")
    try:
        if view.said(*words).strip():
            return True
    except CommandError:  # a split or damaged index: unknown
        return True
    for path, _, _ in _submodules(view):
        with _opened(view.tree / path) as inner:
            if inner and inner.commit and _is_within(view.tree, path) and _is_changed(inner):
                return True
    return False


def _submodules(view: _View) -> Iterator[tuple[str, str, str]]:
    """Return path, commit and stage of each submodule that .gitmodules names."""
    named = {
        value
        for key, value in _settings(view.tree / ".gitmodules")
        if key.startswith("submodule.") and key.endswith(".path")
    }
    if named:
        for entry in view.said("ls-files", "--stage", "-z").split("\0"):
            if (link := _GITLINK.fullmatch(entry)) and link[3] in named:
                yield link[3], link[1], link[2]


def _is_within(tree: Path, path: str) -> bool:
    """Return whether a path is inside the tree, and not a link to the tree itself or out of it."""
    place, root = (tree / path).resolve(), tree.resolve()
    return place != root and place.is_relative_to(root)
