"""The git state of a tree, read without running anything from the tree."""

import os
import shutil
from contextlib import suppress
from pathlib import Path

import pytest

from conftest import find_tool, made_once, slow
from repositories import git, repository, with_submodule
from stoker.model.errors import StokerError
from stoker.source.git_state import read_git_state, submodule_states

pytestmark = pytest.mark.usefixtures("git_alone")


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with submodules two deep."""

    def make(folder: Path) -> None:
        inner = repository(folder / "inner", {"inner.txt": "inner"})
        outer = with_submodule(repository(folder / "outer", {"o.txt": "o"}), inner, "deep/inner")
        tree = repository(folder / "tree", {"a.txt": "a", "b.txt": "b"}, tag="v1")
        with_submodule(tree, outer, "third party/outer")
        git(tree, "submodule", "--quiet", "update", "--init", "--recursive")

    find_tool("git")
    return made_once(tmp_path_factory, "git-state", make) / "tree"


@pytest.fixture
def tree(original: Path, tmp_path: Path) -> Path:
    return shutil.copytree(original, tmp_path / "tree", symlinks=True)


def changed(tree: Path) -> bool:
    state = read_git_state(tree)
    assert state is not None
    return state.changed


def test_commit_time_and_origin(tree: Path) -> None:
    git(tree, "remote", "add", "origin", "https://me:t0p@secret@example.org/tree.git")
    state = read_git_state(tree)
    assert state is not None
    assert state.commit == git(tree, "rev-parse", "HEAD")
    assert state.time == int(git(tree, "log", "-1", "--format=%ct"))
    assert state.origin == "https://example.org/tree.git"
    assert not state.changed


@pytest.mark.parametrize(
    "how", ["pack-refs --all", "checkout --quiet --detach", "checkout --quiet -b x/y", "gc --quiet"]
)
def test_however_the_commit_is_kept(tree: Path, how: str) -> None:
    git(tree, *how.split())
    state = read_git_state(tree)
    assert state is not None
    assert state.commit == git(tree, "rev-parse", "HEAD")
    assert not state.changed


@pytest.mark.parametrize("options", ["--depth 1", "--shared", "--bare"])
def test_clones(tree: Path, tmp_path: Path, options: str) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", *options.split(), tree.as_uri()[7:], str(clone))
    state = read_git_state(clone)
    assert (state and state.commit) == (
        None if "bare" in options else git(tree, "rev-parse", "HEAD")
    )


def test_a_second_work_tree(tree: Path, tmp_path: Path) -> None:
    git(tree, "worktree", "add", "--quiet", "-b", "second", str(tmp_path / "second"))
    repository(tmp_path / "second", {"c.txt": "c"})
    state = read_git_state(tmp_path / "second")
    assert state is not None
    assert state.commit == git(tmp_path / "second", "rev-parse", "HEAD")
    assert not state.changed


def test_no_repository(tmp_path: Path, tree: Path) -> None:
    assert read_git_state(tmp_path) is None
    assert submodule_states(tmp_path) == {}
    git(tmp_path, "init", "--quiet", "unborn")
    assert read_git_state(tmp_path / "unborn") is None
    assert read_git_state(tree / "third party") is None


def test_sha256(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--object-format=sha256", "tree")
    tree = repository(tmp_path / "tree", {"a": "a"})
    assert len(git(tree, "rev-parse", "HEAD")) == 64
    assert not changed(tree)


@pytest.mark.parametrize("file", ["a.txt", "third party/outer/o.txt"])
def test_changed_files(tree: Path, file: str) -> None:
    (tree / "untracked").touch()
    os.utime(tree / file, (1, 1))
    assert not changed(tree), "only the time differs"
    (tree / file).write_text("changed")
    assert changed(tree)


def test_changed_in_the_index_only(tree: Path) -> None:
    git(tree, "rm", "--quiet", "--cached", "a.txt")
    assert changed(tree)


def test_modes_that_the_file_system_does_not_keep(tree: Path) -> None:
    (tree / "a.txt").chmod(0o755)
    assert changed(tree)
    git(tree, "config", "core.fileMode", "false")
    assert not changed(tree)


def test_submodules(tree: Path) -> None:
    outer, inner = "third party/outer", "third party/outer/deep/inner"
    assert submodule_states(tree) == {outer: " ", inner: " "}
    repository(tree / inner, {"new.txt": "new"})
    assert submodule_states(tree) == {outer: " ", inner: "+"}
    assert changed(tree)
    shutil.rmtree(tree / inner)
    assert submodule_states(tree) == {outer: " ", inner: "-"}
    shutil.rmtree(tree / outer)
    assert submodule_states(tree) == {outer: "-"}


def test_a_nested_repository_that_is_not_a_submodule_is_skipped(tree: Path) -> None:
    git(tree, "update-index", "--add", "--cacheinfo", f"160000,{'1' * 40},stray")
    assert "stray" not in submodule_states(tree)


def test_the_index_is_left_as_it_is(tree: Path) -> None:
    os.utime(tree / "a.txt", (1, 1))
    before = (tree / ".git/index").read_bytes()
    assert not changed(tree)
    assert (tree / ".git/index").read_bytes() == before
    assert not (tree / ".git/index.lock").exists()


ATTACKS = {
    "core.fsmonitor": "{run}",
    "core.hooksPath": "{hooks}",
    "core.sshCommand": "{run}",
    "core.alternateRefsCommand": "{run}",
    "core.pager": "{run}",
    "core.gitProxy": "{run}",
    "core.askPass": "{run}",
    "core.editor": "{run}",
    "filter.bad.clean": "{run}",
    "filter.bad.smudge": "{run}",
    "filter.bad.process": "{run}",
    "filter.bad.required": "true",
    "diff.external": "{run}",
    "diff.bad.textconv": "{run}",
    "diff.bad.command": "{run}",
    "gpg.program": "{run}",
    "log.showSignature": "true",
    "credential.helper": "{run}",
    "remote.origin.url": "ext::{run}",
    "remote.origin.promisor": "true",
    "extensions.partialClone": "origin",
    "protocol.ext.allow": "always",
    "uploadpack.packObjectsHook": "{run}",
    "status.submoduleSummary": "true",
    "submodule.third party/outer.update": "!{run}",
    "alias.status": "!{run}",
    "alias.ls-files": "!{run}",
}


def arm(repository: Path, folder: Path, tmp_path: Path) -> Path:
    """Everything that git could run from the configuration of a repository; gives the sign that
    it was run.
    """
    sign, run, hooks = tmp_path / "was-run", tmp_path / "run", tmp_path / "hooks"
    run.write_text(f'#!/bin/sh\necho "$0 $*" >> {sign}\ncat\n')
    run.chmod(0o755)
    hooks.mkdir(exist_ok=True)
    for name in ("post-checkout", "fsmonitor-watchman", "post-index-change", "query-watchman"):
        for place in (hooks, folder / "hooks"):
            place.mkdir(exist_ok=True)
            shutil.copy(run, place / name)
    for key, value in ATTACKS.items():
        git(
            repository,
            "config",
            "--file",
            str(folder / "config"),
            key,
            value.format(run=run, hooks=hooks),
        )
    (folder / "info").mkdir(exist_ok=True)
    (folder / "info/attributes").write_text("* filter=bad diff=bad\n")
    (repository / ".gitattributes").write_text("* filter=bad diff=bad\n")
    for file in repository.glob("*.txt"):
        os.utime(file, (1, 1))  # to be compared by content
    return sign


@pytest.mark.parametrize("where", ["tree", "submodule", "nested"])
def test_nothing_of_the_tree_is_run(tree: Path, tmp_path: Path, where: str) -> None:
    modules = tree / ".git/modules/third party/outer"
    repositories = {
        "tree": (tree, tree / ".git"),
        "submodule": (tree / "third party/outer", modules),
        "nested": (tree / "third party/outer/deep/inner", modules / "modules/deep/inner"),
    }
    sign = arm(*repositories[where], tmp_path)
    assert not changed(tree)
    assert set(submodule_states(tree).values()) == {" "}
    assert not sign.exists(), sign.read_text()


def test_missing_objects_are_not_fetched(tree: Path, tmp_path: Path) -> None:
    sign = arm(tree, tree / ".git", tmp_path)
    for folder in (tree / ".git/objects").glob("??"):
        shutil.rmtree(folder)
    assert read_git_state(tree) is None
    assert not sign.exists()


@pytest.mark.parametrize(
    "name", [".git", ".git/HEAD", ".git/config", ".git/index", ".git/commondir"]
)
@pytest.mark.parametrize("kind", ["folder", slow("link"), "bytes", slow("gitdir"), slow("pipe")])
def test_damaged_repositories(tree: Path, name: str, kind: str) -> None:
    path = tree / name
    shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    match kind:
        case "folder":
            path.mkdir()
        case "link":
            path.symlink_to(path.name)
        case "pipe":
            os.mkfifo(path)
        case "bytes":
            path.write_bytes(bytes(range(256)))
        case "gitdir":
            path.write_text("gitdir: ../tree\nref: refs/../../x\n../..\n")
    read_git_state(tree)
    with suppress(StokerError):
        submodule_states(tree)


def test_submodule_that_is_a_link_to_the_tree(tree: Path) -> None:
    shutil.rmtree(tree / "third party/outer")
    (tree / "third party/outer").symlink_to("..")
    assert submodule_states(tree) == {"third party/outer": "-"}
    read_git_state(tree)
