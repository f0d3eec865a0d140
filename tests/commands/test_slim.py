"""`stoker slim` on wheels: what it writes, refuses and reports."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from built_libraries import build
from conftest import Need, Stoker, missing
from slim_libraries import build_library, cubins, listed
from slim_wheels import CUDA, LISTING, MACHINE, ask_torch, make_wheel, slim, slim_json, venv_with
from stoker.model.errors import ArtifactError, ExitStatus, StokerError, StorageError, UsageError
from stoker.wheel.zip import Content, Edit, open_wheel, rewrite
from wheel_files import unpacked

GONE = 'extern "C" int gone() { return 7; }'


def in_wheel(wheel: Path, member: str, folder: Path) -> Path:
    path = folder / Path(member).name
    path.write_bytes(unpacked(wheel)[member])
    return path


def test_a_wheel(wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = wheel.read_bytes()
    report = slim_json(capsys, wheel, "--for", "sm90", "-o", tmp_path / "out")
    (made,) = (tmp_path / "out").iterdir()
    assert made.name == f"torch-2.0+cu130.sm90-py3-none-linux_{MACHINE}.whl"
    assert report["output"] == str(made)
    assert (report["before_bytes"], report["after_bytes"]) == (len(before), made.stat().st_size)
    assert report["after_bytes"] < 0.5 * report["before_bytes"]
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
    assert note == {"targets": ["9.0"], "label": "sm90", "private": False, "inherited": {}}
    with open_wheel(made) as opened:
        assert list(opened.mismatches()) == []
        assert list(opened.wrong_hashes()) == []
        assert opened.members[CUDA].mode == 0o755


def test_slimming_imports_neither_plans_nor_programs(
    wheel: Path, tmp_path: Path, stoker: Stoker
) -> None:
    done = stoker("slim", wheel, "--for", "h100", "-o", tmp_path, PYTHONPROFILEIMPORTTIME="1")
    loaded = set(re.findall(r"^import time:.*\| +(stoker\S*)$", done.stderr, re.MULTILINE))
    needless = r"stoker\.(plan|settings|source|machine|govern|model\.plan|outside\.process)\b"
    assert "stoker.wheel.slim.wheel" in loaded
    assert [module for module in loaded if re.match(needless, module)] == []
    assert len(loaded) <= 72  # with the entry point


def test_what_torch_lists_is_what_is_left(wheel: Path, tmp_path: Path) -> None:
    assert slim(wheel, "--for", "rtx4090", "-o", tmp_path / "out") == 0
    (made,) = (tmp_path / "out").iterdir()
    assert ask_torch(venv_with(made, tmp_path / "env")) == "sm_86 42\n"


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
    assert library[-2:] == ["2", "4"]
    assert lines[0][1:3] == ["MiB", "->"]  # the result comes first
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
    assert odd["before_bytes"] == odd["after_bytes"] == len(broken)
    assert "at byte" in odd["skipped_because"]
    (made,) = (tmp_path / "out").iterdir()
    assert unpacked(made)["torch/lib/libodd.so"] == broken
    assert listed(in_wheel(made, CUDA, tmp_path)) == [["sm_90"], ["sm_90"]]


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


def test_native_without_a_gpu(wheel: Path, stoker: Stoker) -> None:
    done = stoker("slim", str(wheel), "--for", "native", "--dry-run")
    if done.returncode == 0:
        missing("a machine without a GPU of NVIDIA")
    assert done.returncode == ExitStatus.USAGE
    assert "this machine has no NVIDIA GPU" in done.stderr


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


def test_what_was_wrong_before_is_told_apart(
    need: Need, members: dict[str, bytes], tmp_path: Path, stoker: Stoker
) -> None:
    """The official torch 2.9.1 has such a path and such a library; slimming is not to blame."""
    (tmp_path / "linked").mkdir()
    build(need, tmp_path / "linked", "-Wl,-soname,libgone.so.7", source=GONE, name="libgone.so.7")
    for name, flags in {
        "libpath.so": ("-Wl,-rpath,/opt/builder",),
        "libother.so": ("-Wl,-rpath,/opt/builder",),
        "libneeds.so": ("-Wl,-rpath,/opt/gone", "-Wl,--no-as-needed", "-L.", "-l:libgone.so.7"),
    }.items():
        library = build(need, tmp_path / "linked", *flags, source=GONE, name=name)
        members[f"torch/lib/{name}"] = library.read_bytes()
    original = make_wheel(tmp_path, members)
    before = stoker("verify", str(original), "--json")
    assert before.returncode == ExitStatus.FAILED
    wrong = {one["name"]: one for one in json.loads(before.stdout)["findings"]}
    assert wrong["absolute-rpath"]["severity"] == wrong["missing-library"]["severity"] == "error"
    assert "$ORIGIN" not in wrong["rpath-origin"]["title"], (
        "the same paths were said to start there"
    )
    report = stoker("slim", str(original), "--for", "sm90", "-o", str(tmp_path / "out"))
    (note,) = [line for line in report.stderr.splitlines() if "no longer" in line]
    assert note == (
        "note: torch/lib/libother.so, torch/lib/libpath.so no longer search folders of the machine "
        "that built them: /opt/builder"
    )
    (made,) = (tmp_path / "out").iterdir()
    after = stoker("verify", str(made), "--json")
    assert after.returncode == 0, after.stdout
    found = {one["name"]: one for one in json.loads(after.stdout)["findings"]}
    assert found["absolute-rpath"]["severity"] == "warning"
    assert found["absolute-rpath"]["evidence"] == "torch/lib/libneeds.so: /opt/gone"
    assert "as in the wheel that was slimmed" in found["missing-library"]["title"]
    done = stoker("catalogue", "publish", str(made), "--to", str(tmp_path / "catalogue"))
    assert done.returncode == 0, done.stderr


def test_a_wheel_with_another_tag_inside_can_be_published(
    need: Need, members: dict[str, bytes], tmp_path: Path, stoker: Stoker
) -> None:
    """cupy is called manylinux2014 and says linux in WHEEL. Its symbols are too new for
    manylinux2014, and that was blamed on the slimming, which corrects the tag.
    """
    source = '#include <sys/stat.h>\nextern "C" int f() { struct stat s; return stat("", &s); }'
    library = build(need, tmp_path, source=source, name="libnew.so")
    members["torch/lib/libnew.so"] = library.read_bytes()
    plain = make_wheel(tmp_path, members)
    original = plain.rename(tmp_path / plain.name.replace("-linux_", "-manylinux2014_"))
    slim(original, "--for", "sm90", "-o", tmp_path / "out")
    (made,) = (tmp_path / "out").iterdir()
    done = stoker("verify", str(made), "--json")
    assert done.returncode == 0, done.stdout
    found = {one["name"]: one for one in json.loads(done.stdout)["findings"]}
    assert "as in the wheel that was slimmed" in found["too-new-symbols"]["title"]
    done = stoker("catalogue", "publish", str(made), "--to", str(tmp_path / "catalogue"))
    assert done.returncode == 0, done.stderr


def test_libraries_without_code_for_the_gpu_are_named(
    need: Need, members: dict[str, bytes], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """They kept code of another GPU without a word, because a region may not be empty."""
    (tmp_path / "old").mkdir()
    members["torch/lib/libold.so"] = build_library(
        need, tmp_path / "old", [cubins(1, 80)]
    ).read_bytes()
    report = slim_json(capsys, make_wheel(tmp_path, members), "--for", "sm90", "--dry-run")
    (note,) = report["notes"]
    assert "nothing in 1 file runs on these GPUs" in note
    assert "torch/lib/libold.so" in note


def test_a_fault_that_is_new_is_an_error(
    wheel: Path, tmp_path: Path, stoker: Stoker, need: Need
) -> None:
    slim(wheel, "--for", "sm90", "-o", tmp_path / "out")
    (made,) = (tmp_path / "out").iterdir()
    library = build(need, tmp_path, "-Wl,-rpath,/opt/builder", name="libnew.so")
    content = Content.of_file(library)
    with open_wheel(made) as opened:
        edit = Edit(contents={"torch/lib/libnew.so": content})
        spoilt = rewrite(opened, edit, tmp_path)
    done = stoker("verify", str(spoilt), "--json")
    assert done.returncode == ExitStatus.FAILED
    findings = json.loads(done.stdout)["findings"]
    assert [one["name"] for one in findings if one["severity"] == "error"] == ["absolute-rpath"]
