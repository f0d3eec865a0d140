"""Thirty wheels of one project on a server: the one that fits is found, each other one is refused
for the right reason, and little of them is downloaded.
"""

import hashlib
import platform
import zipfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from packaging.requirements import Requirement

from built_libraries import CUBIN, PTX, Need, entry, region
from ranged_server import Sent, served
from stoker.catalogue.access import LocatedCatalogue, locate
from stoker.catalogue.candidates import Supply
from stoker.catalogue.finding import Found, find, nothing_fits
from stoker.catalogue.judging import Place
from stoker.catalogue.publishing import PublishOptions, people_page, publish
from stoker.catalogue.values import Host, HostGpu
from stoker.knowledge.torch_symbols import TorchBuild
from stoker.model.wheel_source import WheelSource
from stoker.outside.package_index import PackageIndex
from stoker.outside.web import Web
from stoker.wheel.loads_with import ReadTorch
from torch_extensions import OLD_CHECK, WARN, extension
from wheel_files import record

MACHINE = platform.machine()
OTHER = "x86_64" if MACHINE == "aarch64" else "aarch64"
TAG = f"cp312-cp312-manylinux_2_28_{MACHINE}"
HOST = Host(
    os="linux",
    cpu_family=MACHINE,
    cpu=MACHINE,
    cpu_features=(),
    python="3.12.4",
    gpus=(HostGpu(name="H100", capability="9.0"),),
    driver="580.1",
    libc="glibc 2.36",
)
TORCH = ReadTorch(
    build=TorchBuild(
        release="2.13.0", machine=MACHINE, cuda="13", libraries=("libc10.so", "libc10_cuda.so")
    ),
    place="site",
    exported=frozenset({WARN}),
)
PLACE = Place(host=HOST, torch=TORCH)
PADDING = 2_000_000  # bytes in each wheel that need not be read


class Shelf:
    """The wheels on the server, with the reason why each is refused."""

    def __init__(self, folder: Path, libraries: dict[str, bytes]):
        self.folder = folder
        self.libraries = libraries
        self.reasons: dict[str, str] = {}

    def put(
        self,
        reason: str,
        *,
        version: str = "1.0",
        build: int = 0,
        tag: str = TAG,
        said_tag: str | None = None,
        said_version: str | None = None,
        python: str = ">=3.9",
        requires: str = "torch",
        library: str = "good",
        damage: str = "",
    ) -> str:
        file = f"mill-{version}{f'-{build}' if build else ''}-{tag}.whl"
        info = f"mill-{version}.dist-info"
        metadata = (
            f"Metadata-Version: 2.1\nName: mill\nVersion: {said_version or version}\n"
            f"Requires-Python: {python}\nRequires-Dist: {requires}\n\n"
        )
        wheel = f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {said_tag or tag}\n"
        contents = {
            "mill/padding.bin": b"\0" * PADDING,
            "mill/_C.so": self.libraries[library],
            f"{info}/METADATA": metadata.encode(),
            f"{info}/WHEEL": wheel.encode(),
        }
        if damage == "no metadata":
            del contents[f"{info}/METADATA"]
        path = self.folder / file
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
            for name, content in {**contents, f"{info}/RECORD": record(contents, info)}.items():
                archive.writestr(name, content)
        if damage == "cut":
            path.write_bytes(path.read_bytes()[:-1000])
        if damage == "page":
            path.write_bytes(b"<html>not found</html>" * 1000)
        self.reasons[file] = reason
        return file


@pytest.fixture
def shelf(need: Need, tmp_path: Path) -> Shelf:
    """Twenty-nine wheels that do not fit."""
    folder = tmp_path / "server" / "mill"
    folder.mkdir(parents=True)
    both = ("libc10.so", "libc10_cuda.so")
    made = {
        "good": [WARN],
        "old": [WARN, OLD_CHECK],
        "other": [WARN, "_ZN2at9elsewhereEv"],
    }
    sm90 = region([entry(CUBIN, 90, b"x" * 80)])
    libraries = {
        name: extension(need, tmp_path / name, names, *both, code=sm90)
        for name, names in made.items()
    }
    sm80 = region([entry(CUBIN, 80, b"x" * 80)])
    libraries["sm80"] = extension(need, tmp_path / "sm80", [WARN], *both, code=sm80)
    sm120 = region([entry(CUBIN, 120, b"x" * 80), entry(PTX, 120, b"x" * 80)])
    libraries["sm120"] = extension(need, tmp_path / "sm120", [WARN], *both, code=sm120)
    libraries["hip"] = extension(need, tmp_path / "hip", [WARN], "libc10_hip.so")
    libraries["plain"] = extension(need, tmp_path / "plain", [])
    libraries["broken"] = libraries["good"][:3000]
    shelf = Shelf(folder, libraries)
    for python in ("cp39", "cp310", "cp311", "cp313", "cp314"):
        tag = f"{python}-{python}-manylinux_2_28_{MACHINE}"
        shelf.put(f"it is for Python {python}, not 3.12.4", tag=tag)
    shelf.put("it is for Python cp312, not", tag=f"cp312-cp312t-manylinux_2_28_{MACHINE}")
    shelf.put("not linux", tag=f"cp312-cp312-manylinux_2_28_{OTHER}")
    shelf.put("not linux", tag="cp312-cp312-win_amd64")
    shelf.put("not linux", tag="cp312-cp312-macosx_11_0_arm64")
    shelf.put("it needs glibc 2.39", tag=f"cp312-cp312-manylinux_2_39_{MACHINE}")
    shelf.put("it needs", tag=f"cp312-cp312-musllinux_1_2_{MACHINE}")
    numbers = iter(range(1, 100))
    for requires in ("torch==2.9.1", "torch<2.10", "torch>=2.14", "torch==2.12.*"):
        shelf.put("not torch 2.13.0", build=next(numbers), requires=requires)
    shelf.put("it requires Python <3.12", build=next(numbers), python="<3.12")
    shelf.put("it requires Python >=3.13", build=next(numbers), python=">=3.13")
    shelf.put("does not export " + OLD_CHECK, build=next(numbers), library="old")
    shelf.put("does not export _ZN2at9elsewhereEv", build=next(numbers), library="other")
    shelf.put("it needs libc10_hip.so", build=next(numbers), library="hip")
    shelf.put("cannot run what it holds: sm_80", build=next(numbers), library="sm80")
    shelf.put("cannot run what it holds: compute_120, sm_120", build=next(numbers), library="sm120")
    shelf.put("it is damaged", build=next(numbers), damage="cut")
    shelf.put("it is damaged", build=next(numbers), damage="page")
    shelf.put("it is damaged", build=next(numbers), damage="no metadata")
    shelf.put("it is damaged", build=next(numbers), library="broken")
    shelf.put("the wheel itself mill 0.9", build=next(numbers), said_version="0.9")
    said = f"cp311-cp311-manylinux_2_28_{MACHINE}"
    shelf.put("it is for Python cp311", build=next(numbers), said_tag=said)
    shelf.put("it was built for torch 2.9", version="1.0+torch2.9")
    assert len(shelf.reasons) == 29
    return shelf


@pytest.fixture
def server(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Sent]]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with served(shelf.folder.parent) as found:
        yield found


def _find(shelf: Shelf, url: str, place: Place = PLACE) -> tuple[Found, dict[str, str]]:
    links = "".join(f'<a href="{path.name}">x</a>\n' for path in sorted(shelf.folder.iterdir()))
    (shelf.folder / "index.html").write_text(links)
    said: list[str] = []
    index = PackageIndex(roots=(url,), links=(), web=Web())
    found = find(Requirement("mill"), place, Supply(index=index), say=said.append)
    return found, dict(line.split(": ", 1) for line in said)


def test_the_one_that_fits(shelf: Shelf, server: tuple[str, Sent]) -> None:
    url, sent = server
    good = shelf.put("", build=99)
    found, refusals = _find(shelf, url)
    assert found.best is not None
    assert found.best.choice.wheel.file == good
    assert found.best.choice.reason == "native sm_90 code for H100 (9.0)"
    assert len(found.judged) == 30
    expected = {file: reason for file, reason in shelf.reasons.items() if reason}
    wrong = {
        file: (reason, refusals.get(file))
        for file, reason in expected.items()
        if reason not in refusals.get(file, "")
    }
    assert not wrong
    assert good not in refusals
    # Names cost nothing; of the others, the padding is not read. A library has some 70 kB.
    page = (shelf.folder / "index.html").stat().st_size
    assert sent.total == found.downloaded_bytes + page
    opened = [one for one in found.judged if one.downloaded_bytes]
    assert len(opened) == 19
    assert sent.connections <= 2  # one for the page, one for all ranges
    assert found.downloaded_bytes < 0.2 * len(opened) * PADDING


def test_none_fits(shelf: Shelf, server: tuple[str, Sent]) -> None:
    found, refusals = _find(shelf, server[0])
    assert found.best is None
    assert refusals.keys() == shelf.reasons.keys()
    error = nothing_fits(found)
    assert error.message == "none of the 29 wheels of mill fits this machine"
    assert error.hints == ()


def test_a_server_without_ranges(shelf: Shelf, server: tuple[str, Sent]) -> None:
    good = shelf.put("", build=99)
    found, _ = _find(shelf, f"{server[0]}/whole")
    assert found.best is not None
    assert found.best.choice.wheel.file == good


def test_without_pytorch(shelf: Shelf, server: tuple[str, Sent]) -> None:
    good = shelf.put("", build=99)
    found, refusals = _find(shelf, server[0], msgspec.structs.replace(PLACE, torch=None))
    assert found.best is None
    assert refusals[good] == "it needs PyTorch, which is not installed"


def test_an_older_version_if_the_newest_does_not_fit(
    shelf: Shelf, server: tuple[str, Sent]
) -> None:
    older = shelf.put("", version="0.8")
    shelf.put("never judged", version="0.7")
    found, refusals = _find(shelf, server[0])
    assert found.best is not None
    assert found.best.choice.wheel.file == older
    assert not any(file.startswith("mill-0.7") for file in refusals)


def _supply(url: str, *catalogues: LocatedCatalogue, source: WheelSource | None = None) -> Supply:
    return Supply(
        index=PackageIndex(roots=(url,), links=(), web=Web()),
        catalogues=catalogues,
        sources=(source,) if source else (),
    )


def _published(shelf: Shelf, file: str, folder: Path) -> LocatedCatalogue:
    publish(
        [str(shelf.folder / file)],
        str(folder),
        PublishOptions(force=True),
        people=people_page,
        say=lambda _: None,
    )
    return locate(str(folder))


def test_a_catalogue_comes_before_the_index(
    shelf: Shelf, server: tuple[str, Sent], tmp_path: Path
) -> None:
    url, sent = server
    good = shelf.put("", build=99)
    located = _published(shelf, good, tmp_path / "catalogue")
    _find(shelf, url)  # writes the page
    sent.total = 0
    found = find(Requirement("mill"), PLACE, _supply(url, located), say=lambda _: None)
    assert found.best is not None
    assert found.best.url.startswith("file://")
    assert len(found.judged) == 1
    assert sent.total == (shelf.folder / "index.html").stat().st_size
    assert found.reference.startswith("mill @ file://")
    assert "#sha256=" in found.reference


def test_a_catalogue_without_the_index(shelf: Shelf, tmp_path: Path) -> None:
    located = _published(shelf, shelf.put("", build=99), tmp_path / "catalogue")
    said: list[str] = []
    found = find(
        Requirement("mill"), PLACE, _supply("http://127.0.0.1:9", located), say=said.append
    )
    assert found.best is not None
    assert "cannot be reached" in said[0]


def test_a_wheel_of_another_source_than_the_index_has(
    shelf: Shelf, server: tuple[str, Sent], tmp_path: Path
) -> None:
    url, _ = server
    good = shelf.put("", build=99)
    located = _published(shelf, good, tmp_path / "catalogue")
    (shelf.folder / good).unlink()
    del shelf.reasons[good]
    (shelf.folder / "mill-1.0.tar.gz").write_bytes(b"source")
    digest = hashlib.sha256(b"source").hexdigest()
    links = f'<a href="mill-1.0.tar.gz#sha256={digest}">x</a>'
    (shelf.folder / "index.html").write_text(links)
    for source, is_taken in ((digest, True), ("0" * 64, False)):
        wheels = [msgspec.structs.replace(one, source=source) for one in located.catalogue.wheels]
        catalogue = msgspec.structs.replace(located.catalogue, wheels=tuple(wheels))
        supply = _supply(url, msgspec.structs.replace(located, catalogue=catalogue))
        said: list[str] = []
        found = find(Requirement("mill"), PLACE, supply, say=said.append)
        assert (found.best is not None) == is_taken
        assert any("another source" in line for line in said) != is_taken
        assert found.source
        assert found.source.requirement == "mill==1.0"
        assert found.source.sha256 == digest


@pytest.mark.parametrize("kind", ["releases", "links", "index"])
def test_sources_beside_the_index(shelf: Shelf, server: tuple[str, Sent], kind: str) -> None:
    url, _ = server
    good = shelf.put("", build=99)
    path = shelf.folder / good
    elsewhere = shelf.folder.parent / "releases" / "torch-2.13.0-cu130"
    (elsewhere / "mill").mkdir(parents=True)
    path.rename(elsewhere / "mill" / good)
    (shelf.folder / "index.html").write_text("")
    place = f"{url}/releases/torch-{{torch}}-{{cuda}}"
    address = f"{url}/releases/torch-2.13.0-cu130/mill/{good}"
    size = (elsewhere / "mill" / good).stat().st_size
    asset = {"browser_download_url": address, "name": good, "size": size}
    other = {"browser_download_url": f"{address}.sig", "name": f"{good}.sig", "size": 1}
    (elsewhere / "list.json").write_bytes(msgspec.json.encode([{"assets": [other, asset]}]))
    page = f'<a href="{address}">x</a>'
    (elsewhere / "mill" / "index.html").write_text(page)
    address_of = {"releases": f"{place}/list.json", "links": f"{place}/mill/", "index": place}
    source = WheelSource(projects=("mi*",), files="mill-*.whl", **{kind: address_of[kind]})
    torch = msgspec.structs.replace(TORCH, toolkit="13.0")
    at = msgspec.structs.replace(PLACE, torch=torch)
    found = find(Requirement("mill"), at, _supply(url, source=source), say=lambda _: None)
    assert found.best is not None
    assert found.best.url == address
    without = msgspec.structs.replace(PLACE, torch=None)
    assert not find(
        Requirement("mill"), without, _supply(url, source=source), say=lambda _: None
    ).judged


@pytest.mark.parametrize("version", ["1.1", "1.1+cpu"])
def test_what_any_installer_chooses_well(
    shelf: Shelf, server: tuple[str, Sent], version: str
) -> None:
    """A label means that the version has wheels for other machines as well."""
    file = shelf.put("", version=version, library="plain", requires="grain")
    found, _ = _find(shelf, server[0])
    assert found.best is not None
    assert found.best.choice.wheel.file == file
    assert found.reference == ("mill" if version == "1.1" else f"mill @ {found.best.url}")


def test_a_source_needs_one_address() -> None:
    with pytest.raises(ValueError, match="give one of"):
        WheelSource(projects=("mill",))
