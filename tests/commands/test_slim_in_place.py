"""`stoker slim` on libraries, folders and environments: in place, and back to the originals."""

import os
from pathlib import Path

import pytest

from built_libraries import PTX, entry, region
from conftest import Need
from slim_libraries import build_library, cubins, listed, loaded
from slim_wheels import ARCHS, CUDA, ask_torch, make_wheel, pip, slim, slim_json, venv_with
from stoker.model.errors import ExitStatus, StokerError, UsageError
from wheel_files import digest


@pytest.fixture
def library(members: dict[str, bytes], tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "libmill.so"
    path.write_bytes(members[CUDA])
    path.chmod(0o751)
    return path


def test_a_library_elsewhere(library: Path, tmp_path: Path) -> None:
    before, out = library.read_bytes(), tmp_path / "made.so"
    assert slim(library, "--for", "sm90", "-o", out) == 0
    assert library.read_bytes() == before
    assert listed(out) == [["sm_90"], ["sm_90"]]
    assert out.stat().st_mode & 0o777 == 0o751
    assert loaded(out, {0: 16})
    with pytest.raises(UsageError, match="already exists"):
        slim(library, "--for", "sm90", "-o", out)


def test_a_library_in_place_and_back(library: Path) -> None:
    before, inode = library.read_bytes(), library.stat().st_ino
    assert slim(library, "--for", "sm90,sm86") == 0
    assert listed(library) == [["sm_86", "sm_90"], ["sm_86", "sm_90"]]
    assert library.stat().st_ino != inode
    assert library.stat().st_mode & 0o777 == 0o751
    with pytest.raises(UsageError, match="slimmed before"):
        slim(library, "--for", "sm90")
    with pytest.raises(UsageError, match="runs on sm80") as raised:
        slim(library, "--for", "sm80")
    assert "--undo" in raised.value.hints[-1]
    assert slim(library, "--undo") == 0
    assert (library.read_bytes(), library.stat().st_ino) == (before, inode)
    assert [path.name for path in library.parent.iterdir()] == ["libmill.so"]


def test_a_library_by_a_link_to_it(library: Path) -> None:
    """What the link leads to is slimmed; the link stays."""
    before, link = library.read_bytes(), library.with_name("link.so")
    link.symlink_to(library.name)
    assert slim(link, "--for", "sm90") == 0
    assert link.is_symlink()
    assert listed(library) == [["sm_90"], ["sm_90"]]
    assert slim(link, "--undo") == 0
    assert library.read_bytes() == before


def test_a_library_that_cannot_be_cut(library: Path) -> None:
    broken = library.read_bytes().replace(b"\x50\xed\x55\xba\x01", b"\x50\xed\x55\xba\x07", 1)
    library.write_bytes(broken)
    with pytest.raises(StokerError, match="was not changed") as raised:
        slim(library, "--for", "sm90")
    assert raised.value.status == ExitStatus.FAILED
    assert library.read_bytes() == broken


def test_ptx_on_request(need: Need, tmp_path: Path) -> None:
    entries = [entry(2, 90, b"c" * 99), entry(PTX, 80, b"p" * 9), entry(PTX, 90, b"q" * 9)]
    path = build_library(need, tmp_path, [cubins(1, *ARCHS), region(entries)])
    assert slim(path, "--for", "sm90+ptx", "--discard") == 0
    assert listed(path) == [["sm_90"], ["sm_90", "compute_90"]]


def test_a_folder_and_back(
    library: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = library.parent
    (folder / "deep").mkdir()
    other = folder / "deep" / "libother.so"
    other.write_bytes(library.read_bytes())
    (folder / "link.so").symlink_to("libmill.so")
    cache = tmp_path / "cache.so"
    os.link(library, cache)
    before = {path: path.read_bytes() for path in (library, other)}
    report = slim_json(capsys, folder, "--for", "sm90")
    assert [row["path"] for row in report["libraries"]] == ["deep/libother.so", "libmill.so"]
    assert "--undo restores them" in report["notes"][0]
    assert [listed(path) for path in before] == [[["sm_90"], ["sm_90"]]] * 2
    assert cache.read_bytes() == before[library]
    assert (folder / "link.so").is_symlink()
    assert slim_json(capsys, folder, "--for", "sm90")["output"] is None  # nothing is left to cut
    assert slim(folder, "--undo") == 0
    assert {path: path.read_bytes() for path in before} == before
    assert sorted(path.name for path in folder.iterdir()) == ["deep", "libmill.so", "link.so"]


def test_originals_are_given_up(library: Path, capsys: pytest.CaptureFixture[str]) -> None:
    slim(library.parent, "--for", "sm90")
    assert slim(library.parent, "--discard") == 0
    assert "deleted the originals (" in capsys.readouterr().err
    assert [path.name for path in library.parent.iterdir()] == ["libmill.so"]
    with pytest.raises(UsageError, match="nothing can be restored"):
        slim(library.parent, "--undo")


@pytest.fixture
def environment(
    wheel: Path, members: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """With torch and a package of NVIDIA."""
    folder = venv_with(wheel, tmp_path / "env")
    theirs = {"nvidia/cu13/lib/libcublas.so.13": members[CUDA]}
    nvidia = make_wheel(tmp_path / "theirs", theirs, name="nvidia_cublas", version="13.1")
    pip(folder, "install", str(nvidia))
    monkeypatch.setenv("VIRTUAL_ENV", str(folder))
    return folder


def site_of(environment: Path) -> Path:
    (site,) = environment.glob("lib/python*/site-packages")
    return site


@pytest.mark.slow
def test_an_installed_distribution(environment: Path) -> None:
    site = site_of(environment)
    assert slim("torch", "--for", "sm90") == 0
    assert ask_torch(environment) == "sm_90 42\n"
    assert listed(site / CUDA) == [["sm_90"], ["sm_90"]]
    assert len(listed(site / "nvidia/cu13/lib/libcublas.so.13")[0]) == 3
    rows = (site / "torch-2.0+cu130.dist-info" / "RECORD").read_text().splitlines()
    content = (site / CUDA).read_bytes()
    assert f"{CUDA},{digest(content)},{len(content)}" in rows
    pip(environment, "uninstall", "torch")
    assert [path.name for path in site.iterdir() if "torch" in path.name] == []


@pytest.mark.slow
def test_a_program_outside_of_the_packages(environment: Path, members: dict[str, bytes]) -> None:
    """RECORD names it by a path that leads upwards."""
    site = site_of(environment)
    program = environment / "bin" / "mill"
    program.write_bytes(members[CUDA])
    record = site / "torch-2.0+cu130.dist-info" / "RECORD"
    record.write_text(record.read_text() + "../../../bin/mill,,\n")
    before = {path: path.read_bytes() for path in environment.rglob("*") if path.is_file()}
    assert slim("torch", "--for", "sm90") == 0
    assert listed(program) == [["sm_90"], ["sm_90"]]
    assert slim("torch", "--undo") == 0
    assert {path: path.read_bytes() for path in environment.rglob("*") if path.is_file()} == before


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [True, False])
def test_without_originals(environment: Path, at_once: bool) -> None:
    site = site_of(environment)
    assert slim("torch", "--for", "sm90", *(["--discard"] if at_once else [])) == 0
    assert at_once or slim("torch", "--discard") == 0
    assert not list(site.rglob("*originals*"))
    assert "originals" not in (site / "torch-2.0+cu130.dist-info" / "RECORD").read_text()
    pip(environment, "uninstall", "torch")
    assert [path.name for path in site.iterdir() if "torch" in path.name] == []


@pytest.mark.slow
def test_a_whole_environment(environment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """NVIDIA's packages are left alone; lists of files outside the folder are kept right."""
    site = site_of(environment)
    report = slim_json(capsys, environment, "--for", "sm90")
    rows = {row["path"].rpartition("/")[2]: row for row in report["libraries"]}
    assert rows["libtorch_cuda.so"]["layout"] == "move"
    assert "licence" in rows["libcublas.so.13"]["skipped_because"]
    content = (site / CUDA).read_bytes()
    record = site / "torch-2.0+cu130.dist-info" / "RECORD"
    assert f"{CUDA},{digest(content)},{len(content)}" in record.read_text()
    slim(environment, "--undo")
    assert len(listed(site / CUDA)[0]) == 3
    assert slim(site / "torch", "--for", "sm90") == 0  # its RECORD lies beside the folder
    content = (site / CUDA).read_bytes()
    assert f"{CUDA},{digest(content)},{len(content)}" in record.read_text()
    pip(environment, "uninstall", "torch")
    assert not (site / "torch" / "lib").exists()


def test_a_package_of_nvidia_by_name(environment: Path) -> None:
    with pytest.raises(UsageError, match="nvidia_cublas was not changed"):
        slim("nvidia-cublas", "--for", "sm90")
    assert slim("nvidia-cublas", "--for", "sm90", "--nvidia") == 0
    theirs = site_of(environment) / "nvidia/cu13/lib/libcublas.so.13"
    assert listed(theirs) == [["sm_90"], ["sm_90"]]


@pytest.mark.slow
def test_what_was_installed_again_is_not_overwritten(environment: Path, wheel: Path) -> None:
    slim("torch", "--for", "sm90")
    site = site_of(environment)
    (site / CUDA).write_bytes(b"another")
    with pytest.raises(UsageError, match="was changed or installed again"):
        slim("torch", "--undo")
    pip(environment, "install", "--force-reinstall", str(wheel))
    assert len(listed(site / CUDA)[0]) == 3
    assert not list(site.rglob("*originals*"))


@pytest.mark.slow
def test_one_without_a_list_of_its_files(environment: Path) -> None:
    (site_of(environment) / "torch-2.0+cu130.dist-info" / "RECORD").unlink()
    with pytest.raises(UsageError, match="has no RECORD") as raised:
        slim("torch", "--for", "sm90")
    assert "folder" in raised.value.hints[0]
