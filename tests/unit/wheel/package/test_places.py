"""Folders and wheels that libraries are taken from, the wheel that takes them, licence texts."""

import os
import shutil
from pathlib import Path

import pytest

from built_libraries import build
from conftest import Need
from stoker.model.artifact import LibraryFacts
from stoker.model.errors import ArtifactError, MissingError, UsageError
from stoker.wheel.package.built_wheel import BuiltWheel, read_built_wheel
from stoker.wheel.package.licences import find_licences
from stoker.wheel.package.packaging import find_tool
from stoker.wheel.package.places import FoundLibrary, SearchPlaces, find_search_places
from stoker.wheel.package.sources import LibrarySource, open_sources
from stoker.wheel.zip import open_wheel
from wheel_files import DIST_INFO, METADATA, WHEEL, make_wheel, wheel_bytes

MACHINE = os.uname().machine


@pytest.fixture
def mill(need: Need, tmp_path: Path) -> Path:
    return build(need, tmp_path, "-Wl,-soname,libmill.so")


def wheel(folder: Path, members: dict[str, bytes], metadata: bytes = METADATA) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    both = {f"{DIST_INFO}/METADATA": metadata, f"{DIST_INFO}/WHEEL": WHEEL}
    return make_wheel(folder, wheel_bytes({**members, **both}))


def given(*paths: Path, environment: dict[str, str] | None = None) -> SearchPlaces:
    return find_search_places(map(str, paths), (), MACHINE, environment or {})


@pytest.mark.parametrize(
    "place",
    [
        ".",
        "lib64",
        "targets/sbsa-linux/lib",
        "extras/CUPTI/lib64",
        "nvidia/cublas/lib",
        "nvidia/cu13/lib",
        "cusparselt/lib",
    ],
)
def test_a_folder_a_toolkit_and_site_packages(mill: Path, tmp_path: Path, place: str) -> None:
    folder = tmp_path / "given" / place
    folder.mkdir(parents=True)
    shutil.copy(mill, folder / "libgiven.so.1")
    found = given(tmp_path / "given").find("libgiven.so.1")
    assert found is not None
    assert Path(found.source.file) == folder.resolve() / "libgiven.so.1"
    assert found.facts.soname == "libmill.so"


def test_stubs_of_the_driver_are_no_place_to_take_from(mill: Path, tmp_path: Path) -> None:
    folder = tmp_path / "cuda/lib64/stubs"
    folder.mkdir(parents=True)
    shutil.copy(mill, folder / "libgiven.so.1")
    assert given(tmp_path / "cuda").find("libgiven.so.1") is None


def test_wheels_and_folders_of_wheels(mill: Path, tmp_path: Path) -> None:
    path = wheel(tmp_path / "wheels", {"nvidia/lib/libgiven.so.1": mill.read_bytes()})
    for place in (path, path.parent):
        places = given(place)
        found = places.find("libgiven.so.1")
        assert found is not None
        assert found.source == LibrarySource(file=str(path), member="nvidia/lib/libgiven.so.1")
        assert found.facts.soname == "libmill.so"
        assert places.matching("libgiven*.so.*") == ("libgiven.so.1",)
        assert places.find("METADATA") is None
        with open_sources() as sources:
            assert b"".join(sources.content(found.source).chunks()) == mill.read_bytes()


def test_links_are_followed(mill: Path, tmp_path: Path) -> None:
    folder = tmp_path / "given"
    folder.mkdir()
    shutil.copy(mill, folder / "libgiven.so.1.2")
    (folder / "libgiven.so.1").symlink_to("libgiven.so.1.2")
    (folder / "libgone.so.1").symlink_to("nowhere")
    places = given(folder)
    found = places.find("libgiven.so.1")
    assert found is not None
    assert found.source.file.endswith("libgiven.so.1.2")
    assert places.find("libgone.so.1") is None


def test_the_environment_names_places(mill: Path, tmp_path: Path) -> None:
    packages = tmp_path / "venv/lib/python3.12/site-packages/nvidia/cublas/lib"
    for folder in (tmp_path / "cuda/lib64", tmp_path / "told", packages):
        folder.mkdir(parents=True)
        shutil.copy(mill, folder / f"lib{folder.parent.name}.so.1")
    environment = {
        "CUDA_HOME": str(tmp_path / "cuda"),
        "LD_LIBRARY_PATH": f"{tmp_path / 'told'}:relative:",
        "VIRTUAL_ENV": str(tmp_path / "venv"),
    }
    places = given(environment=environment)
    names = ("libcuda.so.1", f"lib{tmp_path.name}.so.1", "libcublas.so.1")
    assert all(places.find(name) for name in names)
    assert not any(given().find(name) for name in names)


def test_where_a_library_was_linked(mill: Path) -> None:
    facts = LibraryFacts(
        path="x.so", size_bytes=1, runpath=("$ORIGIN", str(mill.parent), "/nowhere")
    )
    assert find_search_places((), (facts,), MACHINE, {}).find("libmill.so")


def test_the_system_has_its_own(need: Need) -> None:
    need("gcc")
    found = given().find("libc.so.6")
    assert found is not None
    assert found.facts.machine == MACHINE


@pytest.mark.parametrize(
    ("name", "message"), [("nowhere", "no file or folder"), ("file", "neither")]
)
def test_places_that_are_none(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=message):
        given(tmp_path / name)


def built(path: Path) -> BuiltWheel:
    with open_wheel(path) as opened:
        return read_built_wheel(opened)


def test_what_a_wheel_is(mill: Path, tmp_path: Path) -> None:
    version = b"cuda: Optional[str] = '12.8'\nhip: Optional[str] = None\n"
    members = {"torch/lib/libc10.so": mill.read_bytes(), "torch/version.py": version}
    metadata = METADATA.replace(b"mill", b"Torch")
    found = built(wheel(tmp_path / "made", members, metadata))
    assert found.is_torch
    assert found.cuda == "12.8"
    assert found.machine == MACHINE
    assert {"libc10.so", "libmill.so"} < found.own
    assert not found.is_extension


def test_pytorch_for_the_cpu_says_so(mill: Path, tmp_path: Path) -> None:
    members = {"torch/_C.so": mill.read_bytes(), "torch/version.py": b"cuda = None\n"}
    assert built(wheel(tmp_path / "made", members)).cuda is None


def test_a_wheel_without_libraries(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="holds no Linux library or program"):
        built(wheel(tmp_path, {"mill/__init__.py": b"x = 1\n"}))


def test_what_is_no_wheel(tmp_path: Path) -> None:
    (tmp_path / "some.whl").write_text("not a zip file")
    with pytest.raises(ArtifactError):
        built(tmp_path / "some.whl")
    with pytest.raises(UsageError):
        built(tmp_path / "nowhere.whl")


def test_a_broken_library(mill: Path, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError, match="mill/libmill"):
        built(wheel(tmp_path / "made", {"mill/libmill.so": mill.read_bytes()[:100]}))


def test_libraries_for_two_machines(mill: Path, tmp_path: Path) -> None:
    other = bytearray(mill.read_bytes())
    other[18:20] = (243).to_bytes(2, "little")
    members = {"mill/a.so": mill.read_bytes(), "mill/b.so": bytes(other)}
    both = ", ".join(sorted([MACHINE, "riscv64"]))
    with pytest.raises(UsageError, match=f"several machines: {both}"):
        built(wheel(tmp_path / "made", members))


def found(source: LibrarySource) -> FoundLibrary:
    return FoundLibrary(
        name="libgiven.so", source=source, facts=LibraryFacts(path="libgiven.so", size_bytes=1)
    )


def texts(path: Path, member: str | None = None) -> list[str]:
    licences, notes = find_licences([found(LibrarySource(file=str(path), member=member))])
    assert bool(notes) != bool(licences)
    return [text.path for text in licences]


def test_licences_of_a_wheel(tmp_path: Path) -> None:
    members = {
        "nvidia/lib/libgiven.so": b"",
        f"{DIST_INFO}/licenses/License.txt": b"terms",
        "nvidia/License.txt": b"of something else",
    }
    path = wheel(tmp_path, members)
    assert texts(path, "nvidia/lib/libgiven.so") == ["mill-1.2/License.txt"]


@pytest.mark.parametrize("inside", ["", "dist-info"])
def test_licences_of_an_installed_package(tmp_path: Path, inside: str) -> None:
    library = tmp_path / "nvidia/cublas/lib/libgiven.so"
    library.parent.mkdir(parents=True)
    library.write_text("")
    for name, listed in (("nvidia_cublas-1", "nvidia/cublas/lib/libgiven.so"), ("other-1", "x")):
        information = tmp_path / inside / f"{name}.dist-info"
        (information / "licenses").mkdir(parents=True)
        (information / "licenses/LICENSE").write_text("terms")
        (information / "RECORD").write_text(f"{listed},sha256=x,1\n")
    assert texts(library) == ["nvidia_cublas-1/LICENSE"]


def test_licences_of_a_toolkit(tmp_path: Path) -> None:
    library = tmp_path / "cuda-13.0/targets/sbsa-linux/lib/libgiven.so"
    library.parent.mkdir(parents=True)
    library.write_text("")
    (tmp_path / "cuda-13.0/EULA.txt").write_text("terms")
    assert texts(library) == ["cuda-13.0/EULA.txt"]


def test_a_library_without_licence_is_said(tmp_path: Path) -> None:
    library = tmp_path / "a/b/c/d/libgiven.so"
    library.parent.mkdir(parents=True)
    library.write_text("")
    assert texts(library) == []


def test_licences_of_the_system(need: Need) -> None:
    need("dpkg-query")
    places = given()
    library = places.find("libstdc++.so.6")
    if library is None or not Path("/usr/share/doc/libstdc++6/copyright").exists():
        pytest.skip("no libstdc++ with its documents")
    licences, notes = find_licences([library])
    assert [text.path for text in licences] == ["libstdc++6/copyright"]
    assert notes == ()


def test_stripping_without_a_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(MissingError, match="objcopy"):
        find_tool()
