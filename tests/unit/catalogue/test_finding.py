"""Thirty-one wheels of one project on a server: the one that fits is found, each other one is
refused for the right reason, and little of them is downloaded.
"""

import hashlib
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from packaging.requirements import Requirement

from conftest import Need
from ranged_server import Sent, served
from shelf import MACHINE, PADDING, Shelf, full_shelf
from stoker.catalogue.access import LocatedCatalogue, locate
from stoker.catalogue.candidates import Supply
from stoker.catalogue.finding import Found, find, nothing_fits, read_place
from stoker.catalogue.judging import Place
from stoker.catalogue.publishing import PublishOptions, publish
from stoker.catalogue.values import Host, HostGpu
from stoker.knowledge.torch_symbols import TorchBuild
from stoker.model.value import size
from stoker.model.wheel_source import WheelSource
from stoker.outside.files import sha256_of
from stoker.outside.package_index import PackageIndex
from stoker.outside.web import Web
from stoker.wheel.inspect.loads_with import ReadTorch
from stoker.wheel.zip.remote import Allowance
from torch_extensions import WARN

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


@pytest.fixture
def shelf(need: Need, tmp_path: Path) -> Shelf:
    """Thirty wheels that do not fit."""
    folder = tmp_path / "server" / "mill"
    return full_shelf(need, folder, python=HOST.python, torch="2.13.0")


@pytest.fixture
def server(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Sent]]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with served(shelf.folder.parent) as found:
        yield found


def _find(shelf: Shelf, url: str, place: Place = PLACE) -> tuple[Found, dict[str, str]]:
    shelf.write_page()
    said: list[str] = []
    index = PackageIndex(roots=(url,), links=(), web=Web())
    found = find(Requirement("mill"), place, Supply(index=index), say=said.append)
    return found, dict(line.split(": ", 1) for line in said)


def test_the_one_that_fits(shelf: Shelf, server: tuple[str, Sent]) -> None:
    url, sent = server
    good = shelf.put("", build=99)
    found, refusals = _find(shelf, url)
    assert found.best is not None
    assert found.best.wheel.file == good
    assert found.best.reason == "native sm_90 code for H100 (9.0)"
    assert len(found.judged) == 31
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
    assert len(opened) == 21
    assert sent.connections <= 2  # one for the page, one for all ranges
    assert found.downloaded_bytes < 0.2 * len(opened) * PADDING


def test_no_wheel_is_read_twice(shelf: Shelf, server: tuple[str, Sent]) -> None:
    url, sent = server
    good = shelf.put("", build=99)
    first, refusals = _find(shelf, url)
    read = {one.wheel.file for one in first.judged if one.downloaded_bytes}
    sent.total = 0
    second, again = _find(shelf, url)
    assert second.best is not None
    assert first.best is not None
    assert second.best == msgspec.structs.replace(first.best, downloaded_bytes=0)
    assert again == refusals
    # What is kept is what libraries show: metadata that refuse a wheel are read again.
    still = {one.wheel.file for one in second.judged if one.downloaded_bytes}
    libraries = ("does not export", "it needs libc10_hip.so", "cannot run what it holds")
    refused = {
        file for file, reason in refusals.items() if any(map(reason.__contains__, libraries))
    }
    assert read - still >= {good, *refused}
    assert len(refused) == 6


def test_a_wheel_under_the_same_name_is_read_again(shelf: Shelf, server: tuple[str, Sent]) -> None:
    good = shelf.put("", build=99)
    _find(shelf, server[0])
    content = (shelf.folder / good).read_bytes()
    (shelf.folder / good).write_bytes(content[:4096] + b"x" * 4096 + content[8192:])
    found, _ = _find(shelf, server[0])
    (one,) = (one for one in found.judged if one.wheel.file == good)
    assert one.downloaded_bytes > 0


def test_none_fits(shelf: Shelf, server: tuple[str, Sent]) -> None:
    found, refusals = _find(shelf, server[0])
    assert found.best is None
    assert refusals.keys() == shelf.reasons.keys()
    error = nothing_fits(found)
    read = f"({size(found.downloaded_bytes)} of them were read)"
    assert error.message == f"none of the 30 wheels of mill fits this machine {read}"
    assert error.hints == ("it cannot be built: no place has a source of it",)


def test_wheels_of_other_machines_are_told_once_and_counted(
    shelf: Shelf, server: tuple[str, Sent]
) -> None:
    for version in ("0.7", "0.8", "0.9"):
        shelf.put("it is for", version=version, tag=shelf.tag("win_amd64"))
    found, refusals = _find(shelf, server[0])
    assert len(found.judged) == 33
    (told,) = (file for file in refusals if "win_amd64" in file)
    assert told.startswith("mill-1.0-")  # the shelf has one already, which is newer
    assert refusals["3 more wheels for the same reason"] == refusals[told]


def test_a_server_without_ranges(shelf: Shelf, server: tuple[str, Sent]) -> None:
    good = shelf.put("", build=99)
    found, _ = _find(shelf, f"{server[0]}/whole")
    assert found.best is not None
    assert found.best.wheel.file == good


def _with_metadata(shelf: Shelf, server: tuple[str, Sent], *files: str) -> list[str]:
    """Put the metadata of wheels beside them (PEP 658); return what a page says of each."""
    links = []
    for file in files:
        with zipfile.ZipFile(shelf.folder / file) as wheel:
            (name,) = (one for one in wheel.namelist() if one.endswith("/METADATA"))
            content = wheel.read(name)
        (shelf.folder / f"{file}.metadata").write_bytes(content)
        told = f'data-core-metadata="sha256={hashlib.sha256(content).hexdigest()}"'
        links.append(f'<a href="{file}#sha256={sha256_of(shelf.folder / file)}" {told}>x</a>')
    (shelf.folder / "index.html").write_text("\n".join(links))
    server[1].total = 0
    return links


def test_a_reason_that_all_releases_share_ends_the_search(
    shelf: Shelf, server: tuple[str, Sent]
) -> None:
    """Without PyTorch, the metadata beside the newest wheel are enough."""
    newest = shelf.put("", version="3.0", requires="torch==2.13.0")
    _with_metadata(shelf, server, newest, shelf.put("", version="2.0"))
    page = (shelf.folder / "index.html").stat().st_size
    place = msgspec.structs.replace(PLACE, torch=None)
    found = find(Requirement("mill"), place, _supply(server[0]), say=lambda _: None)
    assert [one.wheel.file for one in found.judged] == [newest]
    metadata = (shelf.folder / f"{newest}.metadata").stat().st_size
    assert server[1].total == page + metadata == page + found.downloaded_bytes
    error = nothing_fits(found)
    assert "it needs PyTorch (torch==2.13.0), which is not installed" in error.message
    assert error.hints == ("install it first: stoker install 'torch==2.13.0'",)


def test_a_pytorch_for_cpus_ends_the_search(shelf: Shelf, server: tuple[str, Sent]) -> None:
    _with_metadata(shelf, server, shelf.put("", version="3.0"), shelf.put("", version="2.0"))
    build = msgspec.structs.replace(TORCH.build, cuda=None, libraries=("libc10.so",))
    place = msgspec.structs.replace(PLACE, torch=msgspec.structs.replace(TORCH, build=build))
    found = find(Requirement("mill"), place, _supply(server[0]), say=lambda _: None)
    (judged,) = found.judged
    assert "it needs libc10_cuda.so" in judged.reason
    assert nothing_fits(found).hints[0].startswith("install a PyTorch for CUDA first")


def test_another_pytorch_is_named_and_older_releases_are_judged(
    shelf: Shelf, server: tuple[str, Sent]
) -> None:
    newest = shelf.put("", version="3.0", requires="torch==9.9")
    older = shelf.put("", version="2.0")
    _with_metadata(shelf, server, newest)
    found = find(Requirement("mill"), PLACE, _supply(server[0]), say=lambda _: None)
    assert "it requires torch==9.9, not torch 2.13.0" in nothing_fits(found).message
    # Another wheel of this version allows the PyTorch that is here, so it is not the reason.
    other = shelf.put("", build=9, version="3.0", library="sm80")
    _with_metadata(shelf, server, newest, other)
    found = find(Requirement("mill"), PLACE, _supply(server[0]), say=lambda _: None)
    assert found.torch is None
    assert nothing_fits(found).message.startswith("none of the 2 wheels of mill fits")
    _with_metadata(shelf, server, newest, older)
    found = find(Requirement("mill"), PLACE, _supply(server[0]), say=lambda _: None)
    assert found.best
    assert found.best.wheel.file == older
    assert found.torch is None


def test_a_dry_run_reads_no_more_than_it_may(shelf: Shelf, server: tuple[str, Sent]) -> None:
    _with_metadata(shelf, server, shelf.put("", version="3.0"), shelf.put("", version="2.0"))
    page = (shelf.folder / "index.html").stat().st_size
    said: list[str] = []
    allowance = Allowance(most_bytes=30_000)
    found = find(
        Requirement("mill"), PLACE, _supply(server[0]), say=said.append, allowance=allowance
    )
    assert found.best is None
    assert server[1].total <= page + 30_000
    assert any("2 wheels of mill were not looked at" in line for line in said)


def test_metadata_that_differ_from_what_the_page_says(
    shelf: Shelf, server: tuple[str, Sent]
) -> None:
    file = shelf.put("", version="3.0")
    _with_metadata(shelf, server, file)
    (shelf.folder / f"{file}.metadata").write_bytes(b"Name: mill\n")
    found = find(Requirement("mill"), PLACE, _supply(server[0]), say=lambda _: None)
    assert found.best is None
    assert "its metadata differ" in found.judged[0].reason


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
    assert found.best.wheel.file == older
    assert not any(file.startswith("mill-0.7") for file in refusals)


def test_pre_releases_are_left_out_unless_they_are_wanted(
    shelf: Shelf, server: tuple[str, Sent]
) -> None:
    good, early = shelf.put("", build=99), shelf.put("", version="1.1rc1")
    found, refusals = _find(shelf, server[0])
    assert found.best is not None
    assert found.best.wheel.file == good
    assert early not in refusals
    asked = find(Requirement("mill>=1.1rc1"), PLACE, _supply(server[0]), say=lambda _: None)
    assert asked.best is not None
    assert asked.best.wheel.file == early


def _supply(url: str, *catalogues: LocatedCatalogue, source: WheelSource | None = None) -> Supply:
    return Supply(
        index=PackageIndex(roots=(url,), links=(), web=Web()),
        catalogues=catalogues,
        sources=(source,) if source else (),
    )


def _published(shelf: Shelf, file: str, folder: Path) -> LocatedCatalogue:
    publish([str(shelf.folder / file)], str(folder), PublishOptions(force=True), say=lambda _: None)
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
    assert found.best.wheel.file == file
    address = f"mill @ {found.best.url}#sha256={found.best.sha256}"
    assert found.reference == ("mill" if version == "1.1" else address)


def test_a_source_needs_one_address() -> None:
    with pytest.raises(ValueError, match="give one of"):
        WheelSource(projects=("mill",))


def test_the_python_that_is_installed_for_is_asked_once(tmp_path: Path) -> None:
    python, asked = tmp_path / "python3", tmp_path / "asked"
    python.write_text(f'#!/bin/sh\necho asked >> {asked}\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    place = read_place(str(python))
    assert place.host.python == ".".join(map(str, sys.version_info[:3]))
    assert asked.read_text().splitlines() == ["asked"]
