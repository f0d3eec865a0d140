"""Stamps record the inputs of a stage and give the reason for repeating it."""

import os
import re
from contextlib import ExitStack
from pathlib import Path

import pytest

from stoker.builds.digests import digest, file_digest, file_lines, tree_state
from stoker.builds.work import Work, work_folder
from stoker.model.build import BuildStage
from stoker.outside.folders import builds as work_root
from stoker.outside.folders import work_folders
from stoker.plan.run_folder import RunFolder
from stoker.plan.run_folder import runs_folder as run_root


def test_a_stage_is_done_until_an_input_changes(tmp_path: Path) -> None:
    work = Work(tmp_path)
    made = tmp_path / "made"
    made.touch()
    inputs = {"tree": "1", "options": "2"}
    assert work.reason(BuildStage.WHEEL, inputs) == "not done before"
    work.done(BuildStage.WHEEL, inputs, (made,))
    assert work.reason(BuildStage.WHEEL, inputs) is None
    assert work.outputs(BuildStage.WHEEL) == (made,)
    assert work.reason(BuildStage.WHEEL, inputs | {"tree": "3"}) == "changed: tree"
    assert work.reason(BuildStage.WHEEL, {"tree": "1"}) == "changed: options"
    assert work.changed(BuildStage.WHEEL, "tree", "3")
    assert not work.changed(BuildStage.WHEEL, "tree", "1")
    made.unlink()
    assert work.reason(BuildStage.WHEEL, inputs) == f"{made} is gone"


def test_a_stage_that_was_begun_counts_as_not_done(tmp_path: Path) -> None:
    work = Work(tmp_path)
    work.done(BuildStage.WHEEL, {}, ())
    work.begin(BuildStage.WHEEL)
    assert work.reason(BuildStage.WHEEL, {}) == "not done before"


@pytest.mark.parametrize("content", [b"", b"{", b'{"inputs": 3}', b"\xff"])
def test_a_broken_stamp_is_none(tmp_path: Path, content: bytes) -> None:
    work = Work(tmp_path)
    work.done(BuildStage.WHEEL, {}, ())
    (stamp,) = (tmp_path / "stamps").iterdir()
    stamp.write_bytes(content)
    assert work.reason(BuildStage.WHEEL, {}) == "not done before"


def test_a_tree_is_known_by_names_sizes_times_and_modes(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "build").mkdir(parents=True)
    source, other = tree / "one.cpp", tree / "build" / "package.py"
    source.write_text("1")
    other.write_text("1")
    before = tree_state(tree)
    assert tree_state(tree) == before
    for name in ("x.pyc", ".git/HEAD", "torch.egg-info/PKG-INFO", "__pycache__/x"):
        (tree / name).parent.mkdir(exist_ok=True)
        (tree / name).touch()
    assert tree_state(tree) == before
    assert tree_state(tree, without=(tree / "build",)) != before
    os.utime(other, ns=(0, 0))
    assert tree_state(tree) != before
    now = tree_state(tree)
    source.chmod(0o755)
    assert tree_state(tree) != now
    assert tree_state(tree, names=("CMakeLists.txt",)) == tree_state(tree, names=(".cmake",))


def test_a_file_that_vanishes_while_its_folder_is_read_is_not_in_the_tree(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        (tmp_path / name).write_text(name)
    lines = file_lines(tmp_path)
    first = next(lines)
    (tmp_path / "b").unlink()
    rest = list(lines)
    assert [line.partition("\0")[0] for line in (first, *rest)] == ["./a", "./c"]


def test_digests() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest(["a", "b"]) != digest(["ab"])
    assert file_digest(Path("/no/such/file")) == ""


NAMES = [
    "../../..",
    "/etc/x",
    "..",
    ".",
    "",
    "a/../../b",
    "a\0b",
    "\n",
    "x" * 5000,
    "-rf",
    "\udcff",
    "é",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("variant", ["cpu", "../../x"])
def test_a_project_cannot_choose_where_its_folders_are(
    tmp_path: Path, name: str, variant: str
) -> None:
    path = work_folder(tmp_path, name=name, variant=variant, python="3.11")
    assert path.parent == work_root()
    assert not path.name.startswith((".", "-"))
    with RunFolder(f"{name}-{variant}") as folder:
        assert folder.path.resolve().parent == run_root().resolve()
    path.mkdir(parents=True)
    assert work_folders(tmp_path) == [path]


def test_long_variants_have_folders_of_their_own(tmp_path: Path) -> None:
    variants = ["v" * 200 + "1", "v" * 200 + "2", "v/1", "v-1"]
    paths = {work_folder(tmp_path, name="a", variant=v, python="3.11") for v in variants}
    assert len(paths) == len(variants)
    assert all(len(path.name) < 230 for path in paths)


def test_folders_have_short_names(tmp_path: Path) -> None:
    variant = "cpu-genericblas-nodistributed-nofbgemm-noitt-nokineto-nomkldnn-noqnnpack"
    others = (variant, f"{variant}-noxnnpack", "cpu")
    works = [work_folder(tmp_path, name="torch", variant=one, python="3.13") for one in others]
    assert len(set(works)) == 3
    for path in works:
        assert path.name.startswith("torch-cpu")
        assert len(path.name) <= 50
        path.mkdir(parents=True)
    assert work_folders(tmp_path) == sorted(works)


def test_runs_of_one_second_have_folders_of_their_own() -> None:
    variant = "cpu-genericblas-nodistributed-nofbgemm-noitt-nokineto-nomkldnn-noqnnpack"
    with ExitStack() as stack:
        names = [stack.enter_context(RunFolder(f"torch-{variant}")).path.name for _ in range(3)]
    assert len(set(names)) == 3
    assert all(re.fullmatch(r"\d{8}-\d{6}-torch-cpu-genericblas-\w{6}(-\d)?", one) for one in names)
