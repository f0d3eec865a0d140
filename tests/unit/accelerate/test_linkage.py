"""Files of different linkers are equivalent if the loader sees the same."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import Need
from stoker.accelerate.linkage import Linkage, differences, read_linkage
from stoker.model.errors import ArtifactError

SOURCE = """
int old_f(void) { return 1; }
int new_f(void) { return 2; }
__asm__(".symver old_f,f@V1");
__asm__(".symver new_f,f@@V2");
int counted[7];
__attribute__((weak)) int weak(void) { return 3; }
__attribute__((constructor)) static void begin(void) { counted[0]++; }
int inner(void) { return counted[0]; }
"""
SCRIPT = "V1 { global: f; weak; counted; local: *; };\nV2 { global: f; } V1;\n"
USUAL = ("-Wl,--version-script=v.map", "-Wl,-soname,liba.so.1", "-Wl,-rpath,$ORIGIN/lib")


@pytest.fixture
def link(tmp_path: Path, need: Need) -> Callable[..., Linkage]:
    gcc = need("gcc")
    (tmp_path / "a.c").write_text(SOURCE)
    (tmp_path / "v.map").write_text(SCRIPT)
    subprocess.run([gcc, "-fPIC", "-c", "a.c"], cwd=tmp_path, check=True)

    def linked(*words: str) -> Linkage:
        subprocess.run([gcc, "-shared", "-o", "a.so", "a.o", *words], cwd=tmp_path, check=True)
        return read_linkage(tmp_path / "a.so")

    return linked


def test_another_linker_makes_an_equivalent_file(link: Callable[..., Linkage], need: Need) -> None:
    need("ld.gold")
    before = link(*USUAL)
    assert differences(before, link(*USUAL, "-fuse-ld=gold")) == ()
    assert {line.partition(" ")[0] for line in before.exported} == {
        "f@V1",
        "f@@V2",
        "weak@@V1",
        "counted@@V1",
    }
    assert "counted@@V1 (global, type 1, default of 28 bytes)" in before.exported
    assert before.facts["soname"] == "liba.so.1"
    assert before.facts["runpath"] == "$ORIGIN/lib"


@pytest.mark.parametrize(
    ("words", "difference"),
    [
        (("-Wl,-soname,libb.so", *USUAL[::2]), "soname: libb.so, not liba.so.1"),
        (USUAL[:2], "runpath: none, not $ORIGIN/lib"),
        ((*USUAL, "-Wl,--no-as-needed", "-lm"), "needed: libm.so.6"),
        ((*USUAL, "-Wl,-z,now"), "flags: bind now, not none"),
        ((*USUAL, "-Wl,-z,execstack"), "executable stack: yes, not no"),
        ((*USUAL, "-Wl,--defsym=more=weak,--version-script=more.map"), "also exports more@@V3"),
    ],
)
def test_what_the_loader_sees_differently_is_named(
    link: Callable[..., Linkage], tmp_path: Path, words: tuple[str, ...], difference: str
) -> None:
    (tmp_path / "more.map").write_text("V3 { global: more; };\n")
    found = differences(link(*USUAL), link(*words))
    assert any(difference in text for text in found), found


def test_an_object_is_not_a_linked_file(tmp_path: Path) -> None:
    (tmp_path / "a.so").write_bytes(b"no ELF file")
    with pytest.raises(ArtifactError):
        read_linkage(tmp_path / "a.so")
