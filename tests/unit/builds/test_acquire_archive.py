"""Unpacking valid and hostile archives."""

import gzip
import io
import os
import stat
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from conftest import Need
from repositories import git, repository, with_submodule
from stoker.builds.acquire import archive, kept_sources
from stoker.builds.acquire.archive import inside, unpack
from stoker.builds.acquire.kept_sources import acquired
from stoker.model.errors import ArtifactError, StokerError, StorageError, UsageError
from stoker.source.git_state import read_git_state

FILES = {
    "pkg-1.0/CMakeLists.txt": b"project(pkg)",
    "pkg-1.0/src/a.cpp": Random(1).randbytes(20_000),
}


def entry(name: str, **fields: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    for field, value in fields.items():
        setattr(info, field, value)
    return info


def tar(path: Path, *entries: tarfile.TarInfo, mode: str = "w") -> Path:
    """With the usual files first, and ``size`` bytes for each entry that has any."""
    with tarfile.open(path, mode) as opened:  # type: ignore[call-overload]
        for name, content in FILES.items():
            opened.addfile(entry(name, size=len(content), mtime=10**9), io.BytesIO(content))
        for info in entries:
            opened.addfile(info, io.BytesIO(b"x" * info.size) if info.isreg() else None)
    return path


def zipped(path: Path, extra: dict[str, tuple[int, bytes]] | None = None) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as opened:
        for name, content in FILES.items():
            opened.writestr(name, content)
        for name, (mode, content) in (extra or {}).items():
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            opened.writestr(info, content)
    return path


def unpacked(path: Path) -> Path:
    into = path.with_name(f"{path.name}.unpacked")
    into.mkdir()
    return unpack(path, into)


def content(tree: Path) -> dict[str, bytes]:
    return {
        f"{tree.name}/{path.relative_to(tree)}": path.read_bytes()
        for path in tree.rglob("*")
        if path.is_file()
    }


def refusal(path: Path) -> str:
    """Why; nothing is written beside the folder."""
    before = {*path.parent.rglob("*")}
    with pytest.raises(ArtifactError) as caught:
        unpacked(path)
    assert caught.value.where == path.name
    written = {*path.parent.rglob("*")} - before
    assert all(name.is_relative_to(f"{path}.unpacked") for name in written)
    return caught.value.message


@pytest.mark.parametrize(
    ("name", "mode"),
    [("a.tar", "w"), ("a.tar.gz", "w:gz"), ("a.tar.xz", "w:xz"), ("a.tar.bz2", "w:bz2")],
)
def test_tar_of_any_kind(tmp_path: Path, name: str, mode: str) -> None:
    tree = unpacked(tar(tmp_path / name, mode=mode))
    assert content(tree) == FILES
    assert (tree / "CMakeLists.txt").stat().st_mtime == 10**9


def test_zstd(tmp_path: Path, need: Need) -> None:
    plain = tar(tmp_path / "a.tar")
    subprocess.run([need("zstd"), "-q", plain], check=True)
    assert content(unpacked(tmp_path / "a.tar.zst")) == FILES
    whole = (tmp_path / "a.tar.zst").read_bytes()
    (tmp_path / "cut.tar.zst").write_bytes(whole[:-20])
    assert "damaged" in refusal(tmp_path / "cut.tar.zst")


def test_zip(tmp_path: Path) -> None:
    run = (stat.S_IFREG | 0o755, b"#!/bin/sh")
    link = (stat.S_IFLNK | 0o777, b"src/a.cpp")
    path = zipped(tmp_path / "a.zip", {"pkg-1.0/run": run, "pkg-1.0/link": link})
    tree = unpacked(path)
    assert content(tree).items() >= FILES.items()
    assert os.access(tree / "run", os.X_OK)
    assert not os.access(tree / "CMakeLists.txt", os.X_OK)
    assert (tree / "link").readlink() == Path("src/a.cpp")


def test_several_folders_at_the_top(tmp_path: Path) -> None:
    tree = unpacked(tar(tmp_path / "a.tar", entry("README", size=3)))
    assert sorted(path.name for path in tree.iterdir()) == ["README", "pkg-1.0"]


def test_links_inside_are_kept(tmp_path: Path) -> None:
    tree = unpacked(
        tar(
            tmp_path / "a.tar",
            entry("pkg-1.0/deep/up", type=tarfile.SYMTYPE, linkname="../src/../CMakeLists.txt"),
            entry("pkg-1.0/source", type=tarfile.SYMTYPE, linkname="src"),
            entry("pkg-1.0/through", type=tarfile.SYMTYPE, linkname="source/a.cpp"),
            entry("pkg-1.0/nowhere", type=tarfile.SYMTYPE, linkname="absent"),
            entry("pkg-1.0/second", type=tarfile.LNKTYPE, linkname="pkg-1.0/src/a.cpp"),
        )
    )
    source = FILES["pkg-1.0/src/a.cpp"]
    assert (tree / "deep/up").read_bytes() == b"project(pkg)"
    assert (tree / "through").read_bytes() == source == (tree / "second").read_bytes()
    assert (tree / "nowhere").is_symlink()


@pytest.mark.parametrize("kind", ["tar", "zip"])
def test_repositories_are_left_out(tmp_path: Path, kind: str) -> None:
    """The first command of git in the tree would run what they name."""
    names = (".git/config", ".git", ".GIT/hooks/x", "src/.git/config", "src/sub/.git")
    if kind == "tar":
        members = [entry(f"pkg-1.0/{name}", size=5) for name in names]
        path = tar(tmp_path / "a.tar", *members, entry("pkg-1.0/.gitignore", size=5))
    else:
        extra = {f"pkg-1.0/{name}": (0o100644, b"xxxxx") for name in (*names, ".gitignore")}
        path = zipped(tmp_path / "a.zip", extra)
    found = {str(path.relative_to(tree)) for tree in [unpacked(path)] for path in tree.rglob("*")}
    assert found == {"CMakeLists.txt", "src", "src/a.cpp", ".gitignore"}


def test_nothing_of_an_archive_is_run(tmp_path: Path, need: Need) -> None:
    need("git")
    inner = repository(tmp_path / "inner", {"inner.txt": "inner"})
    tree = with_submodule(repository(tmp_path / "pkg-1.0", {"setup.py": ""}), inner, "sub")
    (tmp_path / "run").write_text(f"#!/bin/sh\ntouch {tmp_path / 'was-run'}\n")
    (tmp_path / "run").chmod(0o755)
    git(tree, "config", "core.fsmonitor", str(tmp_path / "run"))
    git(tree / "sub", "config", "core.fsmonitor", str(tmp_path / "run"))
    path = tmp_path / "pkg-1.0.tar"
    with tarfile.open(path, "w") as opened:
        opened.add(tree, "pkg-1.0")
    for place in (path, tree):
        (tmp_path / "was-run").unlink(missing_ok=True)
        with acquired(str(place), say=lambda _: None) as source:
            assert (Path(source.path) / "sub/inner.txt").is_file()
            read_git_state(Path(source.path))
        assert not (tmp_path / "was-run").exists()


def test_of_one_name_the_last_counts(tmp_path: Path) -> None:
    tree = unpacked(
        tar(
            tmp_path / "a.tar",
            entry("pkg-1.0/CMakeLists.txt", size=2),
            entry("pkg-1.0/was", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
            entry("pkg-1.0/was", size=1),
        )
    )
    assert (tree / "CMakeLists.txt").read_bytes() == b"xx"
    assert (tree / "was").read_bytes() == b"x"


def link(name: str, target: str) -> tarfile.TarInfo:
    return entry(name, type=tarfile.SYMTYPE, linkname=target)


@pytest.mark.parametrize(
    ("entries", "why"),
    [
        ([entry("../escaped", size=1)], "outside"),
        ([entry("pkg-1.0/../../escaped", size=1)], "outside"),
        ([entry("/tmp/escaped", size=1)], "outside"),
        ([link("pkg-1.0/link", "/etc")], "link out"),
        ([link("pkg-1.0/link", "../../etc")], "link out"),
        ([link("pkg-1.0/link", "")], "link out"),
        ([link("a/b/c", "../../d"), link("e", "a/b/c/../..")], "link out"),
        ([link("loop", "loop")], "link out"),
        ([link("dir", ".."), entry("dir/escaped", size=1)], "out of the archive|cannot be"),
        ([link("dir", "pkg-1.0"), entry("dir/escaped", size=1)], "cannot be unpacked"),
        ([entry("second", type=tarfile.LNKTYPE, linkname="/etc/passwd")], "outside"),
        ([entry("second", type=tarfile.LNKTYPE, linkname="../x")], "outside"),
        ([entry("second", type=tarfile.LNKTYPE, linkname="absent")], "not there"),
        ([link("to", "pkg-1.0"), entry("s", type=tarfile.LNKTYPE, linkname="to")], "not there"),
        ([entry("null", type=tarfile.CHRTYPE, devmajor=1, devminor=3)], "device"),
        ([entry("disk", type=tarfile.BLKTYPE)], "device"),
        ([entry("pipe", type=tarfile.FIFOTYPE)], "pipe"),
        ([entry("pkg-1.0", size=1)], "cannot be unpacked"),
        ([entry("pkg-1.0/src/a.cpp/x", size=1)], "cannot be unpacked"),
        ([entry("x" * 300, size=1)], "cannot be unpacked"),
        ([entry("d/" * 101 + "x", size=1)], "nested"),
    ],
)
def test_members_that_are_refused(tmp_path: Path, entries: list[tarfile.TarInfo], why: str) -> None:
    import re

    assert re.search(why, refusal(tar(tmp_path / "a.tar", *entries)))


@pytest.mark.parametrize(
    "extra",
    [
        {"../escaped": (stat.S_IFREG | 0o644, b"x")},
        {"/escaped": (stat.S_IFREG | 0o644, b"x")},
        {"link": (stat.S_IFLNK | 0o777, b"../..")},
        {"pipe": (stat.S_IFIFO | 0o644, b"")},
    ],
)
def test_zip_members_that_are_refused(tmp_path: Path, extra: dict[str, tuple[int, bytes]]) -> None:
    assert refusal(zipped(tmp_path / "a.zip", extra)).startswith("refused:")


def test_bombs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "_ALWAYS_ALLOWED", 1 << 20)
    bomb = tar(tmp_path / "a.tar.gz", entry("zeros", size=32 << 20), mode="w:gz")
    assert "unpacks to more than" in refusal(bomb)
    zeros = (stat.S_IFREG | 0o644, bytes(32 << 20))
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as opened:
        opened.writestr("zeros", zeros[1])
    assert "unpacks to more than" in refusal(tmp_path / "a.zip")
    copies = [entry(f"copy{n}", type=tarfile.LNKTYPE, linkname="big") for n in range(100)]
    linked = tar(tmp_path / "b.tar.gz", entry("big", size=1 << 20), *copies, mode="w:gz")
    assert "unpacks to more than" in refusal(linked)
    monkeypatch.setattr(archive, "_MOST_MEMBERS", 50)
    assert "more than 50 files" in refusal(tar(tmp_path / "c.tar", *map(entry, "abc" * 20)))


def test_attributes_that_would_fill_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    header = entry("long", type=tarfile.XHDTYPE, size=1 << 30).tobuf(tarfile.USTAR_FORMAT)
    path.write_bytes(gzip.compress(header + bytes(1 << 20)))
    assert "header of" in refusal(path)


def test_file_that_claims_more_than_there_is(tmp_path: Path) -> None:
    header = entry("long", size=1 << 20).tobuf(tarfile.USTAR_FORMAT)
    (tmp_path / "a.tar").write_bytes(header + bytes(1 << 10))
    assert "damaged" in refusal(tmp_path / "a.tar")


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:xz", "w:bz2"])
@pytest.mark.parametrize("kept", [0, 1, 100, 512, 1024, 0.3, 0.9, -1])
def test_cut_off(tmp_path: Path, mode: str, kept: float) -> None:
    whole = tar(tmp_path / "whole.tar", mode=mode).read_bytes()
    if mode == "w":
        whole = whole.rstrip(b"\0")  # of which a few are not missed
    length = int(kept * len(whole)) if isinstance(kept, float) else kept
    (tmp_path / "cut.tar").write_bytes(whole[:length])
    assert "not an archive, or it is damaged" in refusal(tmp_path / "cut.tar")


def test_cut_between_members(tmp_path: Path) -> None:
    whole = tar(tmp_path / "whole.tar").read_bytes()
    (tmp_path / "cut.tar").write_bytes(whole[:1024])
    assert "ends too early" in refusal(tmp_path / "cut.tar")


def test_damage_in_the_middle_is_not_the_end(tmp_path: Path) -> None:
    whole = bytearray(tar(tmp_path / "whole.tar").read_bytes())
    whole[1024 + 10] ^= 0xFF  # in the header of the second member
    (tmp_path / "bad.tar").write_bytes(whole)
    assert "damaged" in refusal(tmp_path / "bad.tar")


@pytest.mark.parametrize(
    "text", [b"", b"<html>404</html>", bytes(10240), b"PK\x03\x04", b"\x1f\x8b"]
)
def test_no_archive_at_all(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "a.tar.gz").write_bytes(text)
    refusal(tmp_path / "a.tar.gz")


NAMES = st.lists(
    st.sampled_from(["..", ".", "", "a", "b", "c", "link"]) | st.text(max_size=3), max_size=5
).map("/".join)
TYPES = st.sampled_from(
    [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE]
)


def no_escape(path: Path) -> None:
    """Either a clear error or a tree that leads nowhere else."""
    into = path.with_name("into")
    into.mkdir()
    before = {*path.parent.rglob("*")}
    try:
        unpack(path, into)
    except StokerError:
        pass
    else:
        links = [found for found in into.rglob("*") if found.is_symlink()]
        assert all(found.resolve().is_relative_to(into.resolve()) for found in links)
    assert all(found.is_relative_to(into) for found in {*path.parent.rglob("*")} - before)


@given(st.lists(st.tuples(NAMES, TYPES, NAMES, st.integers(0, 600)), max_size=8))
def test_no_archive_writes_elsewhere(
    tmp_path_factory: pytest.TempPathFactory, members: list[tuple[str, bytes, str, int]]
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    with tarfile.open(folder / "a.tar", "w", errors="replace") as opened:
        for name, kind, target, count in members:
            regular = kind == tarfile.REGTYPE
            info = entry(name, type=kind, linkname=target, size=count if regular else 0)
            opened.addfile(info, io.BytesIO(bytes(count)))
    no_escape(folder / "a.tar")


@given(
    st.sampled_from(["w", "w:gz", "w:xz", "w:bz2", "zip"]),
    st.lists(st.tuples(st.floats(0, 1), st.binary(max_size=8)), max_size=4),
    st.floats(0, 1),
)
def test_no_damage_is_a_traceback(
    tmp_path_factory: pytest.TempPathFactory,
    mode: str,
    changes: list[tuple[float, bytes]],
    kept: float,
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    whole = folder / "whole"
    made = zipped(whole) if mode == "zip" else tar(whole, link("pkg-1.0/up", "src"), mode=mode)
    content = bytearray(made.read_bytes())
    for where, new in changes:
        start = int(where * len(content))
        content[start : start + len(new)] = new
    (folder / "a").write_bytes(content[: int(kept * len(content)) + 1])
    no_escape(folder / "a")


@given(st.binary(max_size=2000))
def test_nor_are_any_bytes(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    (folder / "a").write_bytes(content)
    no_escape(folder / "a")


PLACES = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3).map("/".join)
TARGETS = st.lists(st.sampled_from(["..", ".", "a", "b", "c"]), min_size=1, max_size=6)


@given(st.dictionaries(PLACES, TARGETS.map("/".join), min_size=1, max_size=5))
@example({"a/b/c": "../../b", "c": "a/b/c/../.."})
def test_links_lead_where_the_system_says(
    tmp_path_factory: pytest.TempPathFactory, links: dict[str, str]
) -> None:
    root = tmp_path_factory.mktemp("links") / "root"
    for name in links:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
    try:
        for name, target in links.items():
            (root / name).symlink_to(target)
    except OSError:
        return  # one is in the way of another
    for name in links:
        try:
            goal = Path(os.path.realpath(root / name, strict=True))
        except FileNotFoundError:
            continue  # Python and the kernel differ about `absent/..`
        except OSError:
            assert not inside(name, links)
        else:
            assert inside(name, links) == goal.is_relative_to(root.resolve())


def test_unpacked_once_and_known_by_content(tmp_path: Path) -> None:
    path = tar(tmp_path / "pkg-1.0.tar.gz", mode="w:gz")
    with acquired(str(path), say=print) as first:
        (Path(first.path) / "made by a build").touch()
    with acquired(str(path), say=print) as second:
        assert second == first
        assert (Path(second.path) / "made by a build").exists()
    assert Path(first.path).name == "pkg-1.0"
    tar(path, entry("pkg-1.0/more", size=1), mode="w:gz")
    with acquired(str(path), say=print) as third:
        assert third.identity != first.identity
        assert (Path(third.path) / "more").exists()


@pytest.mark.parametrize("mode", ["escape", "cut"])
def test_nothing_is_kept_of_a_bad_one(tmp_path: Path, mode: str) -> None:
    path = tar(tmp_path / "a.tar", entry("../escaped", size=1))
    if mode == "cut":
        path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(ArtifactError), acquired(str(path), say=print):
        pass
    assert [found.suffix for found in kept_sources.root().iterdir()] == [".lock"]


def test_a_killed_unpacking_starts_again(tmp_path: Path) -> None:
    path = tar(tmp_path / "a.tar")
    with acquired(str(path), say=print) as source:
        entry_folder = Path(source.path).parent.parent
    partial = entry_folder.with_name(f".{entry_folder.name}.partial")
    entry_folder.rename(partial)
    (partial / "source.json").unlink()
    (partial / "unpacked/stray").touch()
    with acquired(str(path), say=print) as source:
        assert content(Path(source.path)) == FILES
    assert not partial.exists()


def test_several_at_once_unpack_it_once(tmp_path: Path) -> None:
    path = tar(tmp_path / "a.tar", *(entry(f"pkg-1.0/{number}", size=100) for number in range(500)))
    script = (
        "import sys\nfrom pathlib import Path\n"
        "from stoker.builds.acquire.kept_sources import acquired\n"
        "with acquired(sys.argv[1], say=lambda _: None) as source:\n"
        "    print(len(list(Path(source.path).iterdir())), Path(source.path).stat().st_ino)"
    )
    command = [sys.executable, "-c", script, str(path)]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(4)]
    answers = {child.communicate()[0] for child in children}
    assert len(answers) == 1
    assert answers.pop().startswith(b"502 ")


def test_damaged_since(tmp_path: Path) -> None:
    import shutil

    path = tar(tmp_path / "a.tar")
    with acquired(str(path), say=print) as source:
        shutil.rmtree(source.path)
    with acquired(str(path), say=print) as source:
        assert content(Path(source.path)) == FILES


def test_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system with room for less than the archive holds."""
    from conftest import missing

    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk], check=False, capture_output=True
    )
    if mounted.returncode:
        missing("root, to mount a small disk")
    try:
        path = tar(tmp_path / "a.tar", entry("big", size=1 << 20))
        monkeypatch.setenv("STOKER_HOME", str(disk))
        with pytest.raises(StorageError, match="No space left"), acquired(str(path), say=print):
            pass
        assert [found.suffix for found in kept_sources.root().iterdir()] == [".lock"]
    finally:
        subprocess.run(["umount", disk], check=True)


def test_wheel_is_no_source(tmp_path: Path) -> None:
    zipped(tmp_path / "a-1-py3-none-any.whl")
    with (
        pytest.raises(UsageError, match="built already"),
        acquired(str(tmp_path / "a-1-py3-none-any.whl"), say=print),
    ):
        pass
