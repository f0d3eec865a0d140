"""Finds the wheel of a project that fits this machine, among all that the user's indexes list.

A candidate is opened on its server: its directory, its metadata, then its libraries, and no further
than the first reason against it. Only a server without range requests has to send it whole.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from stoker.catalogue.entry import FileIdentity, RecordedOrigin, foreign_entry, make_entry
from stoker.catalogue.host import read_host
from stoker.catalogue.judging import Place, judge, judge_metadata, judge_name
from stoker.catalogue.ranking import rank
from stoker.catalogue.store import Say
from stoker.catalogue.values import Choice, Fit, PublishedWheel
from stoker.machine.python import Probe, ask_interpreter
from stoker.model.artifact import ArtifactFacts, Symbols
from stoker.model.errors import ArtifactError, MissingError, StokerError
from stoker.model.value import Value
from stoker.outside import folders
from stoker.outside.deleting import remove_file
from stoker.outside.files import folder_of_process
from stoker.outside.package_index import File, PackageIndex, download, files_of
from stoker.outside.web import NoRangesError
from stoker.wheel.elf import Elf
from stoker.wheel.engine.archive import dist_info_of
from stoker.wheel.engine.directory import Limits, member_of, read_listed
from stoker.wheel.engine.zip_records import DirectoryEntry
from stoker.wheel.facts import open_member, read_member, wheel_facts
from stoker.wheel.inspecting import wheel_artifact
from stoker.wheel.loads_with import loads_with, torch_needs
from stoker.wheel.reader import Reader, open_file
from stoker.wheel.remote import RemoteReader
from stoker.wheel.symbols import dynamic_symbols
from stoker.wheel.torch_builds import LIBRARIES, read_torch

_UNKNOWN = "0" * 64  # in place of a hash that an index does not tell
_LARGEST_METADATA = 16 << 20
_TIMEOUT_S = 60.0
_ASIDE = ".stoker-find-"


class Judged(Value, frozen=True, kw_only=True):
    """A candidate, where it lies, and how many bytes were received to judge it."""

    choice: Choice
    url: str
    sha256: str | None = None
    downloaded_bytes: int = 0

    @property
    def reference(self) -> str:
        """Return a requirement that names only this wheel, by its address and hash."""
        digest = f"#sha256={self.sha256}" if self.sha256 else ""
        return f"{self.choice.wheel.project} @ {self.url}{digest}"


class Found(Value, frozen=True, kw_only=True):
    """The wheel that fits best, and all that were judged, in that order; ``best`` may be none."""

    best: Judged | None
    judged: tuple[Judged, ...]

    @property
    def downloaded_bytes(self) -> int:
        return sum(one.downloaded_bytes for one in self.judged)


class NothingFitsError(StokerError):
    """An index has the project, but no wheel of it fits."""


def read_place(python: str, wished: str | None = None) -> Place:
    """Return the machine with the PyTorch that an interpreter has."""
    asked = ask_interpreter(python, Probe(environment=os.environ, timeout_s=_TIMEOUT_S))
    torch = next((path for path in asked.search_path if (Path(path) / LIBRARIES).is_dir()), None)
    return Place(host=read_host(python, wished), torch=read_torch(torch) if torch else None)


def is_place(word: str) -> bool:
    """Return whether a word is the address or the folder of a catalogue, and no requirement."""
    return "/" in word.partition("@")[0] or Path(word).is_dir()


def find(wanted: Requirement, place: Place, index: PackageIndex, *, say: Say) -> Found:
    """Judge the wheels of a project, the newest version first, until a version has one that fits.
    Each refusal is told with its reason.
    """
    judged: list[Judged] = []
    with folder_of_process(folders.cache() / "install", _ASIDE) as work:
        for _, files in groupby(_candidates(wanted, index), key=lambda pair: pair[0]):
            fitting = []
            for _, file in files:
                one = judge_file(file, place, index, work)
                judged.append(one)
                if one.choice.runs:
                    fitting.append(one)
                else:
                    say(f"{file.name}: {one.choice.reason}")
            if fitting:
                return Found(best=_best(fitting, place), judged=tuple(judged))
    return Found(best=None, judged=tuple(judged))


def _candidates(wanted: Requirement, index: PackageIndex) -> list[tuple[Version, File]]:
    """Return the wheels with a version that is wanted, the newest first."""
    project = canonicalize_name(wanted.name)
    found: dict[str, tuple[Version, File]] = {}
    for file in files_of(project, index):
        try:
            name, version, _, _ = parse_wheel_filename(file.name)
        except ValueError:  # not a wheel, or not named like one
            continue
        if name == project and wanted.specifier.contains(version):
            found.setdefault(file.name, (version, file))
    return sorted(found.values(), key=lambda pair: Version(pair[0].public), reverse=True)


def _best(fitting: Sequence[Judged], place: Place) -> Judged:
    first = rank(place.host, [one.choice.wheel for one in fitting])[0].wheel
    return next(one for one in fitting if one.choice.wheel == first)


def judge_file(file: File, place: Place, index: PackageIndex, work: Path) -> Judged:
    """Judge one wheel by as little of it as is needed."""
    named = foreign_entry(file.name, file.sha256 or "", file.size or 0, {})
    assert named is not None  # its name has been parsed
    choice = judge_name(place, named)
    if not choice.runs:
        return Judged(choice=choice, url=file.url, sha256=file.sha256)
    received = 0
    try:
        with _opened(file, index, work) as reader:
            try:
                choice = _judge_opened(reader, file, place)
            finally:
                received = getattr(reader, "downloaded", reader.size)
    except ArtifactError as error:
        choice = Choice(wheel=named, fit=Fit.NONE, reason=f"it is damaged: {error}")
    except MissingError as error:
        choice = Choice(wheel=named, fit=Fit.NONE, reason=f"it cannot be read: {error.message}")
    return Judged(choice=choice, url=file.url, sha256=file.sha256, downloaded_bytes=received)


@contextmanager
def _opened(file: File, index: PackageIndex, work: Path) -> Iterator[Reader]:
    """Open a wheel where it lies; if its server sends no parts of it, download it."""
    if urlsplit(file.url).scheme == "file":
        with open_file(Path(unquote(urlsplit(file.url).path))) as reader:
            yield reader
        return
    remote = RemoteReader(file.url, index.web, size=file.size, name=file.name)
    try:
        remote.read_at(max(0, remote.size - 1), 1)
    except NoRangesError:
        path = download(file, work, index, say=lambda _: None)
        with open_file(path, file.name) as reader:
            yield reader
        remove_file(path)
        return
    yield remote


def _judge_opened(reader: Reader, file: File, place: Place) -> Choice:
    listed = read_listed(reader, Limits())
    dist_info = dist_info_of(listed, Path(file.name))
    metadata = _text(reader, listed, f"{dist_info}/METADATA")
    wheel = wheel_facts(
        metadata,
        _text(reader, listed, f"{dist_info}/WHEEL"),
        members=len(listed),
        unpacked=sum(entry.sizes.unpacked for entry in listed.values()),
    )
    artifact = wheel_artifact(Path(file.name), wheel, (), tuple(listed), size=reader.size)
    entry = _entry(file, metadata, artifact)
    # Whether the release in the label counts is known from the symbols: not for the stable ABI.
    early = judge_metadata(place, msgspec.structs.replace(entry, torch=None))
    if not early.runs:
        return early
    symbols: list[Symbols] = []

    def also(library: Elf) -> None:
        symbols.append(dynamic_symbols(library))

    libraries = tuple(
        read_member(reader, member_of(reader, listed[name]), also)
        for name in listed
        if ".so" in name.rpartition("/")[2]
    )
    artifact = wheel_artifact(Path(file.name), wheel, libraries, tuple(listed), size=reader.size)
    needs = torch_needs(symbols)
    if needs:
        artifact = msgspec.structs.replace(artifact, loads_with=loads_with(needs))
    return judge(place, _entry(file, metadata, artifact), artifact, needs)


def _text(reader: Reader, listed: dict[str, DirectoryEntry], name: str) -> bytes:
    if name not in listed:
        raise ArtifactError("the wheel has no such member", file=reader.file, member=name)
    member = member_of(reader, listed[name])
    if member.size > _LARGEST_METADATA:
        raise ArtifactError(f"{member.size} bytes of metadata", file=reader.file, member=name)
    return open_member(reader, member).read(0, member.size)


def _entry(file: File, metadata: bytes, artifact: ArtifactFacts) -> PublishedWheel:
    identity = FileIdentity(
        file=file.name,
        sha256=file.sha256 or _UNKNOWN,
        size=artifact.size_bytes,
        metadata_sha256=hashlib.sha256(metadata).hexdigest(),
        built="",
    )
    return make_entry(identity, artifact, RecordedOrigin())


def nothing_fits(wanted: Requirement, judged: Iterable[Judged]) -> NothingFitsError:
    """Return the error for a project of which no wheel fits."""
    count = len(list(judged))
    if not count:
        return NothingFitsError(
            f"no index has a wheel of {wanted}", hints=[f"build it: stoker build {wanted}"]
        )
    return NothingFitsError(
        f"none of the {count} wheels of {wanted} fits this machine",
        hints=[f"build it for this machine: stoker build {wanted.name}"],
    )
