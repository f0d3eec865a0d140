"""From unpacked wheels to one folder."""

import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from stoker.builds.toolchains.assemble import assemble, link_sonames, merge_trees
from stoker.builds.toolchains.request import parse_request

NAMES = st.sampled_from(["a", "b", "c"])
PATHS = st.lists(NAMES, min_size=1, max_size=3).map("/".join)


def write(folder: Path, *paths: str) -> None:
    for path in paths:
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{folder.name}/{path}")


def contents(folder: Path) -> dict[str, str]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in found}


def clashes(path: str, others: list[str]) -> bool:
    """A folder where another is a file, or the other way round."""
    return any(path.startswith(f"{other}/") or other.startswith(f"{path}/") for other in others)


@st.composite
def trees(draw: st.DrawFn) -> list[str]:
    chosen: list[str] = []
    for path in draw(st.lists(PATHS, unique=True)):
        if not clashes(path, chosen):
            chosen.append(path)
    return chosen


@given(trees(), trees())
def test_merged_folders_hold_everything_and_the_first_stays(
    first: list[str], second: list[str]
) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write(folder / "one", *first)
        write(folder / "two", *second)
        for name in ("one", "two"):
            (folder / name).mkdir(exist_ok=True)
            merge_trees(folder / name, folder / "target")
        expected = {path: f"two/{path}" for path in second if not clashes(path, first)}
        expected |= {path: f"one/{path}" for path in first}
        assert contents(folder / "target") == expected


def test_libraries_get_the_name_a_linker_looks_for(tmp_path: Path) -> None:
    write(tmp_path, "libcudart.so.13", "libnvrtc-builtins.so.13.0", "libx.so.1", "libx.so", "y.a")
    link_sonames(tmp_path)
    assert (tmp_path / "libcudart.so").readlink() == Path("libcudart.so.13")
    assert (tmp_path / "libnvrtc-builtins.so").readlink() == Path("libnvrtc-builtins.so.13.0")
    assert not (tmp_path / "libx.so").is_symlink()
    assert len(list(tmp_path.iterdir())) == 7


def test_what_is_of_no_use_is_left_behind(tmp_path: Path) -> None:
    """Scripts of pip's making that start CMake through Python, say."""
    unpacked, home = tmp_path / "unpacked", tmp_path / "home"
    write(
        unpacked, "cmake/data/bin/cmake", "bin/cmake", "cmake/x.py", "cmake-4.0.dist-info/LICENSE"
    )
    assemble(unpacked, home, parse_request("cmake"))
    assert contents(home) == {
        "bin/cmake": "unpacked/cmake/data/bin/cmake",
        "share/dist-info/cmake-4.0.dist-info/LICENSE": "unpacked/cmake-4.0.dist-info/LICENSE",
    }


def test_the_program_comes_before_the_script_that_starts_it(tmp_path: Path) -> None:
    unpacked, home = tmp_path / "unpacked", tmp_path / "home"
    write(unpacked, "ninja/data/bin/ninja", "bin/ninja")
    assemble(unpacked, home, parse_request("ninja"))
    assert contents(home) == {"bin/ninja": "unpacked/ninja/data/bin/ninja"}


def test_links_stay_inside_so_that_the_folder_can_be_moved(tmp_path: Path) -> None:
    unpacked, home = tmp_path / "unpacked", tmp_path / "home"
    write(unpacked, "nvidia/cu13/lib/libcudart.so.13", "nvidia/cu13/nvvm/bin/cicc")
    assemble(unpacked, home, parse_request("cuda==13.0"))
    moved = home.rename(tmp_path / "moved")
    assert (moved / "lib64/libcudart.so").exists()
    assert (moved / "nvvm/lib64/libcudart.so").exists()
