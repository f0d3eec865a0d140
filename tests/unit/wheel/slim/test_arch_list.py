"""The list of architectures that PyTorch shows: found, shortened in place, else left alone."""

from pathlib import Path

import pytest

from built_libraries import build
from conftest import Need
from stoker.model.errors import ArtifactError
from stoker.model.slimming import ArchSlim, LibrarySlim
from stoker.wheel.slim.arch_list import is_about, kept_words, write_words
from stoker.wheel.slim.selection import parse_targets

LIST = "sm_70 sm_75 sm_80 sm_86 sm_90 sm_100 sm_120 compute_120"


def library(need: Need, folder: Path, *strings: str) -> Path:
    functions = [
        f'const char* flags{number}() {{ return "{string}"; }}'
        for number, string in enumerate(strings)
    ]
    return build(need, folder, source="\n".join(functions), name="libtorch_python.so")


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ("sm90", "sm_90"),
        ("rtx4090", "sm_86"),
        ("sm80,sm90", "sm_80 sm_90"),
        ("sm120+ptx", "sm_120 compute_120"),
        ("sm121", "sm_120"),
    ],
)
def test_shortened(need: Need, tmp_path: Path, wanted: str, expected: str) -> None:
    path = library(need, tmp_path, LIST, "something else")
    words = kept_words(path, parse_targets(wanted))
    assert words == tuple(expected.split())
    before = path.read_bytes()
    write_words(path, words or ())
    after = path.read_bytes()
    assert len(after) == len(before)
    at = before.index(LIST.encode() + b"\0")
    assert (
        after == before[:at] + expected.encode().ljust(len(LIST), b"\0") + before[at + len(LIST) :]
    )
    assert kept_words(path, parse_targets(wanted)) is None


def after_constants(need: Need, folder: Path, text: str) -> Path:
    """The text follows constants without a zero byte, as in the official torch 2.9.1."""
    source = (
        "struct Pool { char before[16]; char text[72]; };\n"
        f'alignas(16) extern const Pool pool = {{"{"x" * 16}", "{text}"}};'.replace(
            f'"{"x" * 16}"', "{" + ", ".join("'x'" for _ in range(16)) + "}"
        )
    )
    return build(need, folder, source=source, name="libtorch_python.so")


def test_a_list_right_behind_constants(need: Need, tmp_path: Path) -> None:
    path = after_constants(need, tmp_path, LIST)
    words = kept_words(path, parse_targets("sm90"))
    assert words == ("sm_90",)
    write_words(path, words)
    assert b"xxxxsm_90\0" in path.read_bytes()
    assert kept_words(path, parse_targets("sm90")) is None


def test_the_end_of_a_sentence_is_not_the_list(need: Need, tmp_path: Path) -> None:
    path = library(need, tmp_path, "this kernel runs on sm_80 sm_90")
    assert kept_words(path, parse_targets("sm90")) is None


@pytest.mark.parametrize(
    "strings",
    [
        (),
        ("none",),
        (LIST, "sm_90"),  # which is it?
        ("sm_90",),  # as it should be
        ("sm_80 sm_75",),  # nothing of it serves
        ("sm_80 sm_90 and more",),
    ],
)
def test_left_alone(need: Need, tmp_path: Path, strings: tuple[str, ...]) -> None:
    path = library(need, tmp_path, *strings)
    assert kept_words(path, parse_targets("sm90")) is None


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "libtorch_python.so"
    path.write_bytes(b"\x7fELF" + b"\xff" * 60)
    assert kept_words(path, parse_targets("sm90")) is None
    with pytest.raises(ArtifactError, match="was not found"):
        write_words(path, ["sm_90"])


def summary(path: str, **changes: str) -> LibrarySlim:
    archs = (ArchSlim(arch="sm_90", kept=1),)
    return LibrarySlim(
        path=path, before_bytes=9, after_bytes=9, archs=archs, skipped_because=changes.get("why")
    )


@pytest.mark.parametrize(
    "name", ["libtorch_python.cpython-312-x86_64-linux-gnu.so", "libtorch_python.abi3.so"]
)
def test_the_name_may_have_an_abi_suffix(name: str) -> None:
    cuda = summary("torch/lib/libtorch_cuda.so")
    assert is_about(f"torch/lib/{name}", [cuda])
    assert not is_about(f"torch/lib/{name.removesuffix('.so')}.txt", [cuda])
    assert not is_about("torch/lib/libtorch_python_extra.so", [cuda])


def test_whose_list_it_is() -> None:
    name = "torch/lib/libtorch_python.so"
    assert is_about(name, [summary("torch/lib/libtorch_cuda.so")])
    assert not is_about(name, [])
    assert not is_about(name, [summary("other/lib/libtorch_cuda.so")])
    assert not is_about(name, [summary("torch/lib/libtorch_cuda.so", why="odd")])
    assert not is_about("torch/lib/libshm.so", [summary("torch/lib/libtorch_cuda.so")])
