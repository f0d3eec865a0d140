"""Edited libraries and programs are loaded by the real loader, and read back by our own reader."""

import os
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from built_libraries import BytesReader
from conftest import Need
from stoker.model.artifact import LibraryFacts
from stoker.model.errors import ArtifactError
from stoker.wheel.elf import elf
from stoker.wheel.elf.edit import ElfEdit, Patch, make_patch
from stoker.wheel.elf.elf import Elf
from stoker.wheel.inspect.facts import read_library_file
from stoker.wheel.reader import open_file

Build = Callable[..., Path]

LEAF = "int leaf(void) { return 41; }"
VERSIONS = "LEAF_1 { global: leaf; local: *; };"
# Thread-local and zeroed data make the layout of the segments a realistic one.
TREE = """
extern int leaf(void);
static __thread int one = 1;
static int zeros[100000];
int tree(void) { return leaf() + one + zeros[77777]; }
"""
PROGRAM = "extern int tree(void); int main(void) { return tree(); }"


@pytest.fixture
def build(tmp_path: Path, need: Need) -> Build:
    """``build("libleaf.so.1", LEAF, ...)``: what gcc makes of a source."""
    compiler = need("gcc")

    def run(name: str, source: str, *flags: str) -> Path:
        made = tmp_path / name
        code = made.with_suffix(".c")
        code.write_text(source)
        subprocess.run([compiler, "-o", made, code, *flags], check=True, cwd=tmp_path)
        return made

    return run


@pytest.fixture
def leaf(build: Build, tmp_path: Path) -> Path:
    (tmp_path / "versions").write_text(VERSIONS)
    shared = ("-shared", "-fPIC", "-Wl,-soname,libleaf.so.1", "-Wl,--version-script=versions")
    return build("libleaf.so.1", LEAF, *shared)


@pytest.fixture
def tree(build: Build, leaf: Path) -> Path:
    return build("libtree.so", TREE, "-shared", "-fPIC", "-g", str(leaf))


def edited(path: Path, edit: ElfEdit, made: Path) -> Patch:
    with open_file(path) as reader:
        patch = make_patch(Elf(reader), edit)
    data = path.read_bytes()
    made.parent.mkdir(parents=True, exist_ok=True)
    made.write_bytes(b"".join(patch.applied([data])))
    made.chmod(0o755)
    assert made.stat().st_size == patch.size
    return patch


def facts(path: Path) -> LibraryFacts:
    found = read_library_file(path, path.name)
    assert found is not None
    assert found.problem is None
    return found


def answer(library: Path) -> int:
    """What ``tree()`` gives in a process of its own, with the loader's own search path."""
    code = f"import ctypes; print(ctypes.CDLL({str(library)!r}).tree())"
    env = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
    python = [sys.executable, "-c", code]
    done = subprocess.run(python, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


@pytest.mark.parametrize("spare", [0, 5])
@pytest.mark.parametrize("before", ["", "-Wl,-rpath,/nowhere", "-Wl,--disable-new-dtags,-rpath,/n"])
def test_everything_at_once(
    build: Build, leaf: Path, tmp_path: Path, spare: int, before: str
) -> None:
    """With and without room in the dynamic section, with and without a path to replace."""
    flags = ["-shared", "-fPIC", f"-Wl,--spare-dynamic-tags={spare}", str(leaf)]
    tree = build("libtree.so", TREE, *flags, *filter(None, [before]))
    renamed = "libleaf-0123abcd.so.1"
    edited(leaf, ElfEdit(soname=renamed, rpath="$ORIGIN"), tmp_path / "made/libs" / renamed)
    edit = ElfEdit(rpath="$ORIGIN/libs", needed={"libleaf.so.1": renamed}, soname="libtree-x.so")
    made = tmp_path / "made/libtree.so"
    edited(tree, edit, made)
    leaf.unlink()
    found = facts(made)
    assert found.rpath == ("$ORIGIN/libs",)
    assert found.runpath == ()
    assert renamed in found.needed
    assert "libleaf.so.1" not in found.needed
    assert facts(tmp_path / "made/libs" / renamed).soname == renamed
    assert answer(made) == 42


def test_nothing_else_changes(tree: Path, tmp_path: Path) -> None:
    before = facts(tree)
    edited(tree, ElfEdit(rpath="$ORIGIN"), tmp_path / "made.so")
    after = facts(tmp_path / "made.so")
    assert (after.needed, after.soname, after.versions) == (
        before.needed,
        before.soname,
        before.versions,
    )
    assert after.build_id == before.build_id
    assert after.sections.keys() == before.sections.keys()


def test_edits_can_follow_edits(tree: Path, tmp_path: Path) -> None:
    made = tmp_path / "made"
    edited(tree, ElfEdit(rpath="/first"), made / "one.so")
    edited(made / "one.so", ElfEdit(rpath="/the/second"), made / "two.so")
    edited(made / "two.so", ElfEdit(rpath=f"{tmp_path}"), made / "three.so")
    assert facts(made / "three.so").rpath == (str(tmp_path),)
    assert answer(made / "three.so") == 42


def test_a_path_is_removed_in_place(build: Build, tmp_path: Path) -> None:
    library = build("libone.so", LEAF, "-shared", "-fPIC", "-Wl,-rpath,/nowhere")
    assert facts(library).runpath == ("/nowhere",)
    patch = edited(library, ElfEdit(rpath=""), tmp_path / "made.so")
    assert (facts(tmp_path / "made.so").rpath, facts(tmp_path / "made.so").runpath) == ((), ())
    assert patch.size == library.stat().st_size


def test_a_string_that_is_there_is_used(build: Build, tmp_path: Path) -> None:
    """So DT_RUNPATH becomes DT_RPATH without a tail."""
    library = build("libone.so", LEAF, "-shared", "-fPIC", "-Wl,-rpath,$ORIGIN")
    patch = edited(library, ElfEdit(rpath="$ORIGIN"), tmp_path / "made.so")
    assert facts(tmp_path / "made.so").rpath == ("$ORIGIN",)
    assert patch.tail == b""


def test_the_old_strings_are_emptied(tree: Path, tmp_path: Path) -> None:
    """They would make every packed library larger."""
    edited(tree, ElfEdit(rpath="/somewhere/else"), tmp_path / "made.so")
    assert tree.read_bytes().count(b"\0leaf\0") == 2  # of the loader, and of the debugger
    assert (tmp_path / "made.so").read_bytes().count(b"\0leaf\0") == 2


@pytest.mark.parametrize("kind", ["-pie", "-no-pie"])
def test_a_program_runs(build: Build, leaf: Path, tree: Path, tmp_path: Path, kind: str) -> None:
    program = build("program", PROGRAM, kind, str(tree), f"-Wl,-rpath-link,{leaf.parent}")
    made = tmp_path / "made/program"
    edited(program, ElfEdit(rpath="$ORIGIN/.."), made)
    edited(tree, ElfEdit(rpath="$ORIGIN"), tmp_path / "made/libtree.so")
    (tmp_path / "made/libtree.so").replace(tree)
    assert subprocess.run([made], check=False).returncode == 42


def test_stripping_afterwards_does_no_harm(tree: Path, tmp_path: Path, need: Need) -> None:
    made = tmp_path / "made.so"
    edited(tree, ElfEdit(rpath=f"{tmp_path}/with/../with/.."), made)
    (tmp_path / "with").mkdir()
    subprocess.run([need("strip"), "--strip-unneeded", made], check=True, capture_output=True)
    assert facts(made).stripped
    assert answer(made) == 42


@pytest.mark.parametrize(("machine", "page"), [(62, 0x1000), (183, 0x10000)])
def test_segments_start_on_the_largest_page_of_the_machine(
    tree: Path, tmp_path: Path, machine: int, page: int
) -> None:
    data = bytearray(tree.read_bytes())
    data[18:20] = machine.to_bytes(2, "little")
    tree.write_bytes(data)
    edited(tree, ElfEdit(rpath="/a/new/path"), tmp_path / "made.so")
    with open_file(tmp_path / "made.so") as reader:
        new = Elf(reader).segments_of(elf.LOAD)[-1]
    assert (new.offset % page, new.address % page, new.alignment) == (0, 0, page)


def test_what_cannot_be_edited(build: Build, tmp_path: Path) -> None:
    unlinked = build("one.o", LEAF, "-c")
    with pytest.raises(ArtifactError, match="no dynamic section"):
        edited(unlinked, ElfEdit(rpath=""), tmp_path / "made.o")
    library = build("libone.so", LEAF, "-shared", "-fPIC")
    with open_file(library) as reader:
        file = Elf(reader)
        file.is_64_bit = False
        with pytest.raises(ArtifactError, match="64-bit"):
            make_patch(file, ElfEdit(rpath=""))


@given(
    content=st.binary(max_size=64),
    pieces=st.lists(st.tuples(st.integers(0, 70), st.binary(max_size=20)), max_size=5),
    cuts=st.lists(st.integers(0, 64)),
)
def test_a_patch_does_not_care_how_content_is_cut(
    content: bytes, pieces: list[tuple[int, bytes]], cuts: list[int]
) -> None:
    patch = Patch(size=len(content) + 4, overwritten=tuple(pieces), tail=b"tail")
    places = sorted({0, len(content), *(cut for cut in cuts if cut < len(content))})
    chunks = [content[a:b] for a, b in pairwise(places)]
    expected = bytearray(content)
    for offset, data in pieces:
        for position, byte in enumerate(data, offset):
            if position < len(content):
                expected[position] = byte
    assert b"".join(patch.applied(chunks)) == bytes(expected) + b"tail"


@pytest.mark.parametrize("kind", ["library", "program"])
def test_broken_files_are_refused_or_edited_never_a_crash(
    build: Build, leaf: Path, tree: Path, kind: str
) -> None:
    """Every byte of the headers and of the dynamic section, set to its extremes."""
    program = build("program", PROGRAM, str(tree), f"-Wl,-rpath-link,{leaf.parent}")
    whole = (tree if kind == "library" else program).read_bytes()
    dynamic = Elf(BytesReader(whole)).segments_of(elf.DYNAMIC)[0]
    places = [*range(16, 600), *range(dynamic.offset, dynamic.offset + dynamic.file_size, 3)]
    edit = ElfEdit(rpath="/else", needed={"libleaf.so.1": "libother.so"})
    refused = 0
    for place in places:
        for value in (0, 0x7F, 0xFF):
            broken = whole[:place] + bytes([value]) + whole[place + 1 :]
            try:
                patch = make_patch(Elf(BytesReader(broken)), edit)
                assert sum(map(len, patch.applied([broken]))) == patch.size
            except ArtifactError:
                refused += 1
    assert 0 < refused < 3 * len(places)
