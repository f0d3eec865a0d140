"""Ninja files that consist of several: what we read is what ninja itself lists."""

import subprocess
from pathlib import Path

from conftest import Need
from stoker.source.ninja import read_graph

MAIN = """\
root = out
rule cc
  command = cc -c $in -o $out
include shared.ninja
subninja part/rules.ninja
build ${root}/main.o: cc main.c
default ${root}/main.o ${common}
"""
SHARED = "common = out/common.o\nbuild ${common}: cc common.c\n"
PART = "root = part/out\nbuild ${root}/a.o: cc part/a.c || ${common}\nsubninja part/deep.ninja\n"
DEEP = "build ${root}/deep.o: cc part/deep.c\n"


def test_included_files_are_read_as_ninja_reads_them(tmp_path: Path, need: Need) -> None:
    (tmp_path / "part").mkdir()
    files = {"build": MAIN, "shared": SHARED, "part/rules": PART, "part/deep": DEEP}
    for name, text in files.items():
        (tmp_path / f"{name}.ninja").write_text(text)
    graph = read_graph(tmp_path)
    words = [need("ninja"), "-C", str(tmp_path), "-t", "targets", "all"]
    listed = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    expected = {line.partition(":")[0] for line in listed.splitlines() if ": cc" in line}
    assert len(expected) == 4
    assert {edge.outputs[0] for edge in graph.edges} == expected
    assert graph.defaults == ("out/main.o", "out/common.o")
    (of_part,) = (edge for edge in graph.edges if edge.needs == ("part/a.c",))
    assert of_part.after == ("out/common.o",)


def test_files_that_include_each_other_or_are_missing_end(tmp_path: Path) -> None:
    (tmp_path / "build.ninja").write_text("include build.ninja\nsubninja b.ninja\nbuild a: cc b\n")
    (tmp_path / "b.ninja").write_text("subninja build.ninja\ninclude missing\nbuild c: cc d\n")
    assert {edge.outputs for edge in read_graph(tmp_path).edges} == {("a",), ("c",)}
