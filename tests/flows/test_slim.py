"""`stoker slim` on wheels, libraries, folders and environments, which are loaded afterwards."""

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from built_libraries import PTX, Need, build, entry, region
from conftest import Stoker, missing
from slim_libraries import build_library, cubins, listed, loaded
from stoker.artifact.engine import open_wheel
from stoker.cli.slim import command
from stoker.model.errors import (
    ArtifactError,
    ExitStatus,
    StokerError,
    StorageError,
    UsageError,
)
from wheel_files import digest, unpacked, zipped

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="ELF is what Linux loads")

MACHINE = os.uname().machine
ARCHS = 80, 86, 90
FLAGS = 'const char* flags(void) { return "sm_80 sm_86 sm_90"; }'
PYTHON = b"""
import ctypes, pathlib

folder = pathlib.Path(__file__).parent / "lib"
listing = ctypes.CDLL(str(folder / "libtorch_python.so")).flags
listing.restype = ctypes.c_char_p
flags = listing().decode()
answer = ctypes.CDLL(str(folder / "libtorch_cuda.so")).answer()
"""
CUDA, LISTING = "torch/lib/libtorch_cuda.so", "torch/lib/libtorch_python.so"


def make_wheel(
    folder: Path, members: Mapping[str, bytes], *, name: str = "torch", version: str = "2.0+cu130"
) -> Path:
    dist_info, tag = f"{name}-{version}.dist-info", f"py3-none-linux_{MACHINE}"
    metadata = f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n\nBurns.\n"
    about = f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n"
    everything = {
        **members,
        f"{dist_info}/METADATA": metadata.encode(),
        f"{dist_info}/WHEEL": about.encode(),
    }
    rows = [f"{path},{digest(content)},{len(content)}" for path, content in everything.items()]
    everything[f"{dist_info}/RECORD"] = "\n".join([*rows, f"{dist_info}/RECORD,,", ""]).encode()
    folder.mkdir(parents=True, exist_ok=True)
    wheel = folder / f"{name}-{version}-{tag}.whl"
    modes = {path: 0o755 for path in members if ".so" in path}
    wheel.write_bytes(zipped(everything, modes=modes))
    return wheel


@pytest.fixture
def members(need: Need, tmp_path: Path) -> dict[str, bytes]:
    """What a small PyTorch has: two regions of device code, and the list of architectures."""
    folder = tmp_path / "made"
    folder.mkdir()
    cuda = build_library(need, folder, [cubins(1, *ARCHS), cubins(2, *ARCHS)])
    other = build(need, folder, source=f'extern "C" {{ {FLAGS} }}', name="libtorch_python.so")
    return {
        "torch/__init__.py": PYTHON,
        "torch/version.py": b"__version__ = '2.0+cu130'\n",
        CUDA: cuda.read_bytes(),
        LISTING: other.read_bytes(),
    }


@pytest.fixture
def wheel(members: dict[str, bytes], tmp_path: Path) -> Path:
    return make_wheel(tmp_path, members)


def slim(*words: object) -> int:
    return int(command.main([str(word) for word in words], standalone_mode=False) or 0)


def slim_json(capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    assert slim(*words, "--json") == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


def in_wheel(wheel: Path, member: str, folder: Path) -> Path:
    path = folder / Path(member).name
    path.write_bytes(unpacked(wheel)[member])
    return path


# -- wheels --------------------------------------------------------------------------------------


def test_a_wheel(wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = wheel.read_bytes()
    report = slim_json(capsys, wheel, "--for", "sm90", "-o", tmp_path / "out")
    (made,) = (tmp_path / "out").iterdir()
    assert made.name == f"torch-2.0+cu130.sm90-py3-none-linux_{MACHINE}.whl"
    assert report["output"] == str(made)
    assert (report["before"], report["after"]) == (len(before), made.stat().st_size)
    assert report["after"] < 0.5 * report["before"]
    (library,) = report["libraries"]
    assert library["path"] == CUDA
    assert (library["kept"], library["dropped"], library["stubs"]) == (2, 4, 0)
    assert (library["layout"], library["skipped_because"]) == ("move", None)
    assert listed(in_wheel(made, CUDA, tmp_path)) == [["sm_90"], ["sm_90"]]
    assert wheel.read_bytes() == before

    contents = unpacked(made)
    dist_info = "torch-2.0+cu130.sm90.dist-info"
    assert b"\nVersion: 2.0+cu130.sm90\n" in contents[f"{dist_info}/METADATA"]
    assert contents["torch/version.py"] == unpacked(wheel)["torch/version.py"]
    note = json.loads(contents[f"{dist_info}/stoker-slim.json"])
    assert note == {"targets": ["9.0"], "label": "sm90", "private": False}
    with open_wheel(made) as opened:
        assert list(opened.mismatches()) == []
        assert list(opened.wrong_hashes()) == []
        assert opened.members[CUDA].mode == 0o755


def test_what_torch_lists_is_what_is_left(wheel: Path, tmp_path: Path) -> None:
    assert slim(wheel, "--for", "rtx4090", "-o", tmp_path / "out") == 0
    (made,) = (tmp_path / "out").iterdir()
    environment = venv_with(made, tmp_path / "env")
    ask = "import torch; print(torch.flags, torch.answer)"
    assert run(environment, "-c", ask) == "sm_86 42\n"


def test_a_wheel_that_was_slimmed_before(
    wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    slim(wheel, "--for", "sm86,sm90", "-o", first)
    (once,) = first.iterdir()
    assert "+cu130.sm86.sm90-" in once.name
    assert slim(once, "--for", "sm90", "-o", second) == 0
    (twice,) = second.iterdir()
    assert "+cu130.sm90-" in twice.name
    capsys.readouterr()
    report = slim_json(capsys, twice, "--for", "sm90", "-o", tmp_path / "third")
    assert report["output"] is None
    assert report["notes"] == ["it holds only code that these GPUs run"]
    assert not list((tmp_path / "third").glob("*"))


def test_the_plan(wheel: Path, tmp_path: Path, stoker: Stoker) -> None:
    done = stoker("slim", str(wheel), "--for", "sm90", "--dry-run")
    assert done.returncode == 0, done.stderr
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line for line in lines if line[:1] == ["sm_86"]] == [["sm_86", "2", "400", "KiB"]]
    assert [line for line in lines if line[:1] == ["sm_90"]] == [["sm_90", "2", "400", "KiB"]]
    (library,) = (line for line in lines if line[:1] == [CUDA])
    assert library[-3:] == ["2", "4", "move"]
    assert sorted(tmp_path.glob("*.whl")) == [wheel]
    assert not (tmp_path / "dist").exists()


def test_a_library_that_is_not_understood_is_left(
    members: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = members[CUDA]
    broken = good.replace(b"\x50\xed\x55\xba\x01", b"\x50\xed\x55\xba\x07", 1)
    wheel = make_wheel(tmp_path, {**members, "torch/lib/libodd.so": broken})
    report = slim_json(capsys, wheel, "--for", "sm90", "-o", tmp_path / "out")
    odd = next(row for row in report["libraries"] if row["path"] == "torch/lib/libodd.so")
    assert odd["layout"] is None
    assert odd["before"] == odd["after"] == len(broken)
    assert "at byte" in odd["skipped_because"]
    (made,) = (tmp_path / "out").iterdir()
    assert unpacked(made)["torch/lib/libodd.so"] == broken
    assert listed(in_wheel(made, CUDA, tmp_path)) == [["sm_90"], ["sm_90"]]


def test_the_list_stays_where_the_code_does(
    members: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing could be cut out of libtorch_cuda.so, so that the list is still right."""
    broken = members[CUDA].replace(b"\x50\xed\x55\xba\x01", b"\x50\xed\x55\xba\x07", 1)
    wheel = make_wheel(tmp_path, {**members, CUDA: broken, "torch/lib/libmore.so": members[CUDA]})
    slim(wheel, "--for", "sm90", "-o", tmp_path / "out")
    capsys.readouterr()
    (made,) = (tmp_path / "out").iterdir()
    assert unpacked(made)[LISTING] == members[LISTING]


def test_a_target_that_nothing_serves(wheel: Path, stoker: Stoker) -> None:
    done = stoker("slim", str(wheel), "--for", "sm90,sm120")
    assert done.returncode == ExitStatus.USAGE
    assert "it holds no device code that runs on sm120" in done.stderr
    assert "choose GPUs among sm_80 sm_86 sm_90" in done.stderr


def test_a_wheel_without_device_code(
    tmp_path: Path, stoker: Stoker, members: dict[str, bytes]
) -> None:
    wheel = make_wheel(tmp_path, {"torch/__init__.py": b"", LISTING: members[LISTING]})
    done = stoker("slim", str(wheel), "--for", "sm90")
    assert done.returncode == 0
    assert done.stdout == ""
    assert done.stderr == "note: it holds no device code, so there is nothing to do\n"


def test_not_enough_room(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = shutil.disk_usage(tmp_path)._replace(free=7)
    monkeypatch.setattr("shutil.disk_usage", lambda _: full)
    with pytest.raises(
        StorageError, match=r"not enough disk space in .*out: up to .* are needed, 7 B"
    ):
        slim(wheel, "--for", "sm90", "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_disk_that_is_full_on_the_way(wheel: Path, tmp_path: Path) -> None:
    """No file may be larger than some kilobytes: the system says no in the middle of one."""
    script = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (300000, 300000))\n"
        "from stoker.__main__ import main; sys.exit(main())"
    )
    out = tmp_path / "out"
    words = ["slim", str(wheel), "--for", "sm90", "-o", str(out)]
    done = subprocess.run(
        [sys.executable, "-c", script, *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == ExitStatus.STORAGE, done.stderr
    assert "File too large" in done.stderr
    assert list(out.iterdir()) == []


def test_an_output_that_is_there(wheel: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    slim(wheel, "--for", "sm90", "-o", out)
    with pytest.raises(UsageError, match="already exists") as raised:
        slim(wheel, "--for", "sm90", "-o", out)
    assert raised.value.hints == ("replace it with --force",)
    assert slim(wheel, "--for", "sm90", "-o", out, "--force") == 0


@pytest.mark.parametrize(
    ("words", "error", "match"),
    [
        (["nowhere.whl", "--for", "sm90"], UsageError, "no file or folder"),
        (["{text}", "--for", "sm90"], UsageError, "neither a wheel nor an ELF file"),
        (["{broken}", "--for", "sm90"], ArtifactError, "broken"),
        (["{wheel}"], UsageError, "no GPUs are given"),
        (["{wheel}", "--for", "h1000"], UsageError, "unknown word"),
        (["{wheel}", "--for", "sm90", "-o", "slim.whl"], UsageError, "takes a folder"),
        (["{wheel}", "--undo"], UsageError, "leaves the original unchanged"),
        (["{wheel}", "--discard"], UsageError, "leaves the original unchanged"),
        (["{folder}", "--undo"], UsageError, "nothing can be restored"),
        (["{folder}", "--undo", "--for", "sm90"], UsageError, "leave out --for"),
        (["{folder}", "--for", "sm90", "-o", "elsewhere"], UsageError, "in place"),
        (["no-such-distribution", "--for", "sm90"], UsageError, "nor a distribution"),
    ],
)
def test_wrong_requests(
    wheel: Path, tmp_path: Path, words: list[str], error: type[StokerError], match: str
) -> None:
    (tmp_path / "text.so").write_text("text")
    (tmp_path / "broken.whl").write_text("no zip file")
    (tmp_path / "empty").mkdir()
    names = {
        "text": tmp_path / "text.so",
        "broken": tmp_path / "broken.whl",
        "wheel": wheel,
        "folder": tmp_path / "empty",
    }
    with pytest.raises(error, match=match):
        slim(*(word.format_map(names) for word in words))


# -- NVIDIA's own --------------------------------------------------------------------------------


def test_a_wheel_of_nvidia_is_refused(
    members: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = "nvidia/cublas/lib/libcublasLt.so.13"
    wheel = make_wheel(tmp_path, {name: members[CUDA]}, name="nvidia_cublas", version="13.1")
    with pytest.raises(UsageError, match="licence forbids") as raised:
        slim(wheel, "--for", "sm90")
    assert "--nvidia" in raised.value.hints[0]
    report = slim_json(capsys, wheel, "--for", "sm90", "-o", tmp_path / "out", "--nvidia")
    assert "do not redistribute" in report["notes"][0]
    (made,) = (tmp_path / "out").iterdir()
    contents = unpacked(made)
    dist_info = "nvidia_cublas-13.1+sm90.dist-info"
    assert b"\nClassifier: Private :: Do Not Upload\n" in contents[f"{dist_info}/METADATA"]
    assert json.loads(contents[f"{dist_info}/stoker-slim.json"])["private"] is True


def test_libraries_of_nvidia_in_another_wheel_are_left(
    members: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = "torch/lib/libcublasLt-0a1b2c3d.so.13"
    wheel = make_wheel(tmp_path, {**members, theirs: members[CUDA]})
    report = slim_json(capsys, wheel, "--for", "sm90", "-o", tmp_path / "out")
    row = next(row for row in report["libraries"] if row["path"] == theirs)
    assert "licence" in row["skipped_because"]
    (made,) = (tmp_path / "out").iterdir()
    assert unpacked(made)[theirs] == members[CUDA]
    assert b"Private" not in unpacked(made)["torch-2.0+cu130.sm90.dist-info/METADATA"]


# -- one library, a folder -----------------------------------------------------------------------


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


@given(damage=st.lists(st.tuples(st.floats(0, 1), st.binary(min_size=1, max_size=8)), min_size=1))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damaged_libraries(
    library: Path, members: dict[str, bytes], damage: list[tuple[float, bytes]]
) -> None:
    """Slimmed, left as it is, or refused in words: whatever the bytes are."""
    content = bytearray(members[CUDA])
    for place, data in damage:
        # The headers at both ends are where damage matters.
        start = int(place * 8192) - 4096
        content[start % len(content) : start % len(content) + len(data)] = data
    library.write_bytes(content)
    with suppress(StokerError):
        slim(library, "--for", "sm90", "--dry-run")
    with suppress(StokerError):
        slim(library.parent, "--for", "sm90", "--discard")


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


# -- an environment ------------------------------------------------------------------------------


def venv_with(wheel: Path, folder: Path) -> Path:
    """Without a pip of its own, which takes long to install."""
    venv.create(folder)
    pip(folder, "install", str(wheel))
    return folder


def pip(environment: Path, command: str, *words: str) -> None:
    ours = ["-m", "pip", "--python", str(environment / "bin" / "python"), command, "--quiet"]
    more = ["--no-index", "--no-deps"] if command == "install" else ["--yes"]
    done = subprocess.run([sys.executable, *ours, *more, *words], check=False, timeout=240)
    assert done.returncode == 0


def run(environment: Path, *words: str) -> str:
    done = subprocess.run(
        [str(environment / "bin" / "python"), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        cwd=environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


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


def test_an_installed_distribution(environment: Path) -> None:
    site = site_of(environment)
    assert slim("torch", "--for", "sm90") == 0
    assert run(environment, "-c", "import torch; print(torch.flags, torch.answer)") == "sm_90 42\n"
    assert listed(site / CUDA) == [["sm_90"], ["sm_90"]]
    assert len(listed(site / "nvidia/cu13/lib/libcublas.so.13")[0]) == 3
    rows = (site / "torch-2.0+cu130.dist-info" / "RECORD").read_text().splitlines()
    content = (site / CUDA).read_bytes()
    assert f"{CUDA},{digest(content)},{len(content)}" in rows
    pip(environment, "uninstall", "torch")
    assert [path.name for path in site.iterdir() if "torch" in path.name] == []


def test_an_installed_distribution_and_back(environment: Path) -> None:
    site = site_of(environment)
    before = {path: path.read_bytes() for path in site.rglob("*") if path.is_file()}
    slim("torch", "--for", "sm90")
    assert slim("torch", "--undo") == 0
    assert {path: path.read_bytes() for path in site.rglob("*") if path.is_file()} == before


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


def test_without_originals(environment: Path) -> None:
    site = site_of(environment)
    assert slim("torch", "--for", "sm90", "--discard") == 0
    assert not list(site.rglob("*originals*"))
    pip(environment, "uninstall", "torch")
    assert [path.name for path in site.iterdir() if "torch" in path.name] == []


def test_originals_deleted_later(environment: Path) -> None:
    site = site_of(environment)
    slim("torch", "--for", "sm90")
    assert slim("torch", "--discard") == 0
    record = (site / "torch-2.0+cu130.dist-info" / "RECORD").read_text()
    assert "originals" not in record
    pip(environment, "uninstall", "torch")
    assert [path.name for path in site.iterdir() if "torch" in path.name] == []


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


def test_what_was_installed_again_is_not_overwritten(environment: Path, wheel: Path) -> None:
    slim("torch", "--for", "sm90")
    site = site_of(environment)
    (site / CUDA).write_bytes(b"another")
    with pytest.raises(UsageError, match="was changed or installed again"):
        slim("torch", "--undo")
    pip(environment, "install", "--force-reinstall", str(wheel))
    assert len(listed(site / CUDA)[0]) == 3
    assert not list(site.rglob("*originals*"))


def test_one_without_a_list_of_its_files(environment: Path) -> None:
    (site_of(environment) / "torch-2.0+cu130.dist-info" / "RECORD").unlink()
    with pytest.raises(UsageError, match="has no RECORD") as raised:
        slim("torch", "--for", "sm90")
    assert "folder" in raised.value.hints[0]


def test_native_without_a_gpu(wheel: Path, stoker: Stoker) -> None:
    done = stoker("slim", str(wheel), "--for", "native", "--dry-run")
    if done.returncode == 0:
        missing("a machine without a GPU of NVIDIA")
    assert done.returncode == ExitStatus.USAGE
    assert "this machine has no NVIDIA GPU" in done.stderr


# -- verified ------------------------------------------------------------------------------------


def test_verify_understands_it(wheel: Path, tmp_path: Path, stoker: Stoker) -> None:
    slim(wheel, "--for", "rtx4090", "-o", tmp_path / "out")
    (made,) = (tmp_path / "out").iterdir()
    for words in ((), ("--variant", "cu130-sm89")):
        done = stoker("verify", str(made), *words, "--json")
        findings = {one["name"]: one for one in json.loads(done.stdout)["findings"]}
        assert findings["slimmed"]["severity"] == "ok"
        assert not {"missing-architecture", "extra-architecture"} & findings.keys()
    done = stoker("verify", str(made), "--variant", "cu130-sm90", "--json")
    findings = {one["name"]: one for one in json.loads(done.stdout)["findings"]}
    assert findings["missing-architecture"]["evidence"] == "9.0"
    assert done.returncode == ExitStatus.FAILED
