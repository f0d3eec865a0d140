"""Fetching trees with git from real repositories on this machine."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from repositories import bare_copy, git, repository, served, with_submodule
from stoker.builds.acquire import kept_sources
from stoker.builds.acquire.kept_sources import Acquired, acquired
from stoker.model.errors import CommandError, MissingError, StokerError, UsageError
from stoker.model.source import SourceKind

pytestmark = pytest.mark.usefixtures("git_alone")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Two tags, a branch, and submodules two deep."""
    inner = repository(tmp_path / "inner", {"inner.txt": "inner"})
    outer = with_submodule(repository(tmp_path / "outer", {"o.txt": "o"}), inner, "deep/inner")
    project = repository(tmp_path / "project", {"CMakeLists.txt": "one"}, tag="v1.0.0")
    with_submodule(project, outer, "third_party/outer", tag="v1.1.0")
    git(project, "branch", "feature/quick")
    return repository(project, {"CMakeLists.txt": "newest"})


def acquire(given: str, tag: str | None = None) -> Acquired:
    with acquired(given, tag=tag, say=lambda _: None) as source:
        return source


def entries() -> list[str]:
    return sorted(path.name for path in kept_sources.root().iterdir() if path.suffix != ".lock")


@pytest.mark.parametrize("form", ["{path}@v1.1.0", "{uri}@v1.1.0", "git+{uri}@v1.1.0"])
def test_a_tag_with_its_submodules(project: Path, form: str) -> None:
    source = acquire(form.format(path=project, uri=project.as_uri()))
    tree = Path(source.path)
    assert (tree / "CMakeLists.txt").read_text() == "one"
    assert (tree / "third_party/outer/deep/inner/inner.txt").read_text() == "inner"
    assert source.kind is SourceKind.GIT
    assert source.identity == f"commit {git(project, 'rev-parse', 'v1.1.0^{commit}')}"
    assert source.notes == ()
    assert git(tree, "describe", "--tags") == "v1.1.0"


def test_history_stays_where_it_is(project: Path) -> None:
    tree = Path(acquire(f"{project.as_uri()}@v1.1.0").path)
    assert git(tree, "rev-list", "--count", "HEAD") == "1"
    assert git(tree / "third_party/outer", "rev-list", "--count", "HEAD") == "1"


def test_server_that_gives_only_what_it_shows(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Protocol 0 hands out tips alone, and the submodules are at older commits."""
    for name in ("inner", "outer"):
        repository(tmp_path / name, {"new.txt": "new"})
    count = int(os.environ["GIT_CONFIG_COUNT"])
    monkeypatch.setenv("GIT_CONFIG_COUNT", str(count + 1))
    monkeypatch.setenv(f"GIT_CONFIG_KEY_{count}", "protocol.version")
    monkeypatch.setenv(f"GIT_CONFIG_VALUE_{count}", "0")
    test_a_tag_with_its_submodules(project, "{uri}@v1.1.0")
    commit = git(project, "rev-parse", "v1.0.0^{commit}")
    assert acquire(f"{project.as_uri()}@{commit}").identity == f"commit {commit}"


def test_server_of_plain_files(project: Path, tmp_path: Path) -> None:
    """Git's oldest way over HTTP, which knows no shallow fetches."""
    (tmp_path / "served").mkdir()
    bare = bare_copy(tmp_path / "served/plain.git", project)
    with served(bare.parent) as url:
        source = acquire(f"{url}/plain.git@v1.1.0")
        with pytest.raises(UsageError, match="no tag, branch or commit"):
            acquire(f"{url}/plain.git@absent")
    assert (Path(source.path) / "third_party/outer/deep/inner/inner.txt").is_file()


@pytest.mark.parametrize(
    ("login", "written"), [("me:p@ss", "me:p%40ss"), ("me:p@ss", "me:p@ss"), ("s3cr3t:", "s3cr3t")]
)
def test_credentials_are_used_and_not_kept(tmp_path: Path, login: str, written: str) -> None:
    """Also for submodules on the same server; git's own processes do not show them either."""
    inner = repository(tmp_path / "inner", {"inner.txt": "inner"})
    outer = repository(tmp_path / "outer", {"setup.py": ""})
    git(outer, "submodule", "--quiet", "add", inner.as_uri(), "inner")
    git(outer, "submodule", "set-url", "inner", "../inner.git")
    repository(outer, {}, tag="v1")
    (tmp_path / "served").mkdir()
    for name, original in (("inner", inner), ("outer", outer)):
        bare_copy(tmp_path / f"served/{name}.git", original)
    with served(tmp_path / "served", login=login) as url:
        with pytest.raises(CommandError, match="git cannot fetch"):
            acquire(f"{url}/outer.git@v1")
        source = acquire(f"{url.replace('//', f'//{written}@')}/outer.git@v1")
    assert (Path(source.path) / "inner/inner.txt").is_file()
    assert source.given == f"{url}/outer.git@v1"
    kept = [path for path in kept_sources.root().rglob("*") if path.is_file()]
    secret = login.strip(":").rpartition(":")[2].encode()
    assert [path for path in kept for text in [path.read_bytes()] if secret in text] == []
    assert [path for path in kept if written.encode() in path.read_bytes()] == []
    assert git(Path(source.path), "config", "remote.origin.url") == f"{url}/outer.git"


def test_the_users_own_helper_knows_the_password_of_a_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for `https://me@host/...`; a password in the URL comes before what the helper knows."""
    bare_copy(tmp_path / "plain.git", repository(tmp_path / "plain", {"setup.py": ""}))
    count = int(os.environ["GIT_CONFIG_COUNT"])
    helper = (
        f'!f() {{ cat >> {tmp_path}/asked; echo "$1" >> {tmp_path}/asked; echo password=pw; }}; f'
    )
    monkeypatch.setenv("GIT_CONFIG_COUNT", str(count + 1))
    monkeypatch.setenv(f"GIT_CONFIG_KEY_{count}", "credential.helper")
    monkeypatch.setenv(f"GIT_CONFIG_VALUE_{count}", helper)
    with served(tmp_path, login="me:pw") as url:
        assert acquire(f"{url.replace('//', '//me@')}/plain.git")
    assert "username=me" in (tmp_path / "asked").read_text()
    (tmp_path / "asked").unlink()
    with served(tmp_path, login="me:other") as url:
        assert acquire(f"{url.replace('//', '//me:other@')}/plain.git")
    assert not (tmp_path / "asked").exists()


def test_credentials_are_on_no_command_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level("DEBUG", "stoker.process")
    bare_copy(tmp_path / "plain.git", repository(tmp_path / "plain", {"setup.py": ""}))
    wrapper = tmp_path / "bin/git"
    wrapper.parent.mkdir()
    wrapper.write_text(
        f'#!/bin/sh\necho "$*" >> {tmp_path}/words\nexec {shutil.which("git")} "$@"\n'
    )
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", f"{wrapper.parent}:{os.environ['PATH']}")
    with served(tmp_path, login="me:s3cr3t") as url:
        acquire(f"{url.replace('//', '//me:s3cr3t@')}/plain.git")
    assert "ls-remote" in caplog.text
    assert "s3cr3t" not in caplog.text
    assert "s3cr3t" not in (tmp_path / "words").read_text()


def test_tag_can_be_said_apart_but_not_twice(project: Path) -> None:
    assert acquire(str(project), "v1.0.0") == acquire(f"{project}@v1.0.0")
    with pytest.raises(UsageError, match=r"two tags: v1.0.0 .* v1.1.0"):
        acquire(f"{project}@v1.0.0", "v1.1.0")


def test_a_branch_moves(project: Path) -> None:
    first = acquire(f"{project.as_uri()}@feature/quick")
    git(project, "checkout", "--quiet", "feature/quick")
    repository(project, {"CMakeLists.txt": "quick"})
    second = acquire(f"{project.as_uri()}@feature/quick")
    assert (Path(first.path) / "CMakeLists.txt").read_text() == "one"
    assert (Path(second.path) / "CMakeLists.txt").read_text() == "quick"


@pytest.mark.parametrize("length", [40, 12])
def test_a_commit(project: Path, length: int) -> None:
    commit = git(project, "rev-parse", "v1.0.0^{commit}")
    source = acquire(f"{project.as_uri()}@{commit[:length]}")
    assert source.identity == f"commit {commit}"


def test_without_a_tag_what_the_repository_shows(project: Path, tmp_path: Path) -> None:
    assert (Path(acquire(project.as_uri()).path) / "CMakeLists.txt").read_text() == "newest"
    bare = tmp_path / "bare.git"
    git(tmp_path, "clone", "--quiet", "--bare", str(project), str(bare))
    assert (Path(acquire(str(bare)).path) / "CMakeLists.txt").read_text() == "newest"


def test_it_is_fetched_once(project: Path) -> None:
    first = acquire(f"{project.as_uri()}@v1.1.0")
    marker = Path(first.path) / "made by a build"
    marker.touch()
    assert acquire(f"{project.as_uri()}@v1.1.0") == first
    assert marker.exists()


def test_what_is_here_serves_without_the_server(project: Path) -> None:
    url = "http://127.0.0.1:9/project.git"
    with pytest.raises(MissingError, match=r"cannot reach http://127.0.0.1:9/project.git"):
        acquire(f"{url}@v1.1.0")
    source = acquire(f"{project.as_uri()}@v1.1.0")
    record = Path(source.path).parent / "source.json"
    record.write_text(record.read_text().replace(project.as_uri(), url))
    assert acquire(f"{url}@v1.1.0").path == source.path
    assert "fetched from there earlier" in acquire(f"{url}@v1.1.0").notes[0]


def test_unknown_tag_names_the_nearest(project: Path) -> None:
    with pytest.raises(UsageError, match=r"no tag, branch or commit 'v1.2.0'") as caught:
        acquire(f"{project.as_uri()}@v1.2.0")
    assert "v1.1.0" in caught.value.hints[0]
    assert not kept_sources.root().exists()


def test_no_repository(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="git cannot fetch") as caught:
        acquire(f"{tmp_path.as_uri()}@v1")
    assert "repository" in caught.value.output


def test_submodule_that_is_gone(project: Path, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "inner")
    with pytest.raises(CommandError, match="git cannot fetch") as caught:
        acquire(f"{project.as_uri()}@v1.1.0")
    assert "deep/inner" in caught.value.output
    assert all(name.startswith(".") for name in entries())


def test_submodule_on_this_machine_is_explained(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_CONFIG_COUNT", "3")  # without protocol.file.allow
    with pytest.raises(UsageError) as caught:
        acquire(f"{project.as_uri()}@v1.1.0")
    assert "protocol.file.allow" in caught.value.hints[0]


def test_folder_with_submodules_missing(project: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(project), str(clone))
    with pytest.raises(
        UsageError, match=r"1 submodules are missing .*: third_party/outer"
    ) as caught:
        acquire(str(clone))
    assert caught.value.hints[0].startswith(f"git -C {clone} submodule update --init --recursive")
    subprocess.run(caught.value.hints[0], shell=True, check=True)  # noqa: S602
    assert acquire(str(clone)).notes == ()


def test_nested_submodule_missing(project: Path, tmp_path: Path) -> None:
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "--quiet", str(project), str(clone))
    git(clone, "submodule", "--quiet", "update", "--init")
    with pytest.raises(UsageError, match="third_party/outer/deep/inner"):
        acquire(str(clone))


def test_folder_with_a_submodule_that_moved_is_used(project: Path) -> None:
    submodule = project / "third_party/outer"
    git(project, "submodule", "--quiet", "update", "--init", "--recursive")
    repository(submodule, {"new.txt": "work in progress"})
    assert "third_party/outer" in acquire(str(project)).notes[0]


def test_killed_fetches_are_finished(project: Path) -> None:
    """A git that was killed may leave its locks."""
    script = (
        "import sys\nfrom stoker.builds.acquire.kept_sources import Acquired, acquired\n"
        "with acquired(sys.argv[1], say=lambda s: print(s, flush=True)): pass"
    )
    command = [sys.executable, "-c", script, f"{project.as_uri()}@v1.1.0"]
    for lines in range(3):
        child = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        assert child.stdout is not None
        for _ in range(lines):
            child.stdout.readline()
        os.killpg(child.pid, signal.SIGKILL)
        child.communicate()
        for folder in kept_sources.root().glob(".*.partial/project/.git"):
            (folder / "index.lock").touch()
    test_a_tag_with_its_submodules(project, "{uri}@v1.1.0")
    assert len(entries()) == 1


def test_leftover_of_no_use_is_thrown_away(project: Path) -> None:
    source = acquire(f"{project.as_uri()}@v1.1.0")
    entry = Path(source.path).parent
    partial = entry.with_name(f".{entry.name}.partial")
    entry.rename(partial)
    (partial / "source.json").unlink()
    modules = partial / "project/.git/modules/third_party/outer"
    shutil.rmtree(modules / "objects")
    test_a_tag_with_its_submodules(project, "{uri}@v1.1.0")
    assert entries() == [entry.name]


@pytest.mark.parametrize(
    "reference", ["--upload-pack=touch bad", "-b", "a..b", "a b", "", "x\ny", "a~1"]
)
def test_names_that_git_could_misunderstand(project: Path, reference: str) -> None:
    with pytest.raises(StokerError):
        acquire(f"{project.as_uri()}@{reference}")
    with pytest.raises(StokerError):
        acquire(str(project), reference)
