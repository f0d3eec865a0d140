"""Opens wheels on their servers to judge them, and reads no further than the first reason against
each: its directory, its metadata, then its libraries.

Only a server without range requests has to send a wheel whole. What the libraries of a wheel show
is kept, because those of PyTorch are nearly all of its 900 MB.
"""

import hashlib
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace

import stoker.wheel
from stoker.catalogue.candidates import Candidate
from stoker.catalogue.choosing import TORCH
from stoker.catalogue.entry import FileIdentity, RecordedOrigin, make_entry
from stoker.catalogue.foreign_wheels import foreign_entry
from stoker.catalogue.judging import Place, judge, judge_metadata, judge_name
from stoker.catalogue.values import Choice, PublishedWheel
from stoker.model.artifact import ArtifactFacts, Symbols
from stoker.model.errors import ArtifactError, MissingError
from stoker.model.value import Value
from stoker.outside.deleting import remove_file
from stoker.outside.kept_values import KeptValues, name_of, tree_digest
from stoker.outside.long_work import stage
from stoker.outside.package_index import File, PackageIndex, download
from stoker.outside.web import AbsentError, NoRangesError, UnreachableError, opened
from stoker.wheel.elf.elf import Elf
from stoker.wheel.elf.tables import dynamic_symbols
from stoker.wheel.inspect.facts import open_member, read_member, wheel_facts
from stoker.wheel.inspect.inspecting import wheel_artifact
from stoker.wheel.inspect.loads_with import TorchNeeds, loads_with, torch_needs
from stoker.wheel.reader import Reader, open_file
from stoker.wheel.zip.archive import dist_info_of
from stoker.wheel.zip.directory import ZipLimits, member_of, read_listed
from stoker.wheel.zip.headers import DirectoryEntry
from stoker.wheel.zip.remote import Allowance, SpentError, open_remote

_UNKNOWN = "0" * 64  # in place of a hash that an index does not tell
_LARGEST_METADATA = 16 << 20
_LIBRARY = re.compile(r"\.so(\.\d[^/]*)?$")  # not algorithm.sort_heap.h


class Judged(Value, frozen=True, kw_only=True):
    """A candidate, where it lies, and how many bytes were received to judge it.

    ``plain``: it is of an index and needs neither PyTorch nor a GPU, so any installer chooses well.
    """

    choice: Choice
    url: str
    sha256: str | None = None
    downloaded_bytes: int = 0
    plain: bool = False


class _ReadWheel(Value, frozen=True, kw_only=True):
    """A wheel whose libraries have been read. ``needs`` is what they need from PyTorch."""

    metadata_sha256: str
    artifact: ArtifactFacts
    needs: TorchNeeds | None


_READ_WHEELS = KeptValues("wheels", _ReadWheel, most=1024)


class Judge:
    """Judges wheels for one place. ``work`` receives those whose servers send no parts."""

    def __init__(
        self, place: Place, index: PackageIndex, work: Path, allowance: Allowance | None = None
    ):
        self._place = place
        self._index = index
        self._work = work
        self._allowance = allowance or Allowance()
        self._reader = tree_digest(Path(stoker.wheel.__file__).parent)

    def __call__(self, candidate: Candidate) -> Judged:
        """Judge one wheel by as little of it as is needed."""
        file = candidate.file
        named = candidate.entry or foreign_entry(file.name, file.sha256 or "", file.size or 0, {})
        assert named is not None  # its name has been parsed
        judged = Judged(choice=judge_name(self._place, named), url=file.url, sha256=file.sha256)
        if not judged.choice.runs:
            return judged
        received = 0
        try:
            # Without a hash, nothing says whether it is still the same wheel.
            kept = name_of(self._reader, file.url, file.sha256) if file.sha256 else None
            if kept and (known := _READ_WHEELS.recall(kept)):
                return self._judge_read(candidate, judged, known)
            if told := self._told_metadata(file):
                received = len(told)
                early = self._judge_told(named, told)
                if not early.runs:
                    return replace(judged, choice=early, downloaded_bytes=received)
            with stage(f"reading {file.name}"), self._opened(file) as reader:
                try:
                    judged, read = self._judge_opened(reader, candidate, judged)
                finally:
                    received += getattr(reader, "downloaded", reader.size)
            if kept and read:
                _READ_WHEELS.keep(kept, read)
        except ArtifactError as error:
            problem = str(error).removeprefix(file.name).lstrip(": ")
            refusal = Choice.refused(named, f"it is damaged: {problem}")
            judged = replace(judged, choice=refusal)
        except SpentError:
            raise
        except MissingError as error:
            refusal = Choice.refused(named, f"it cannot be read: {error.message}")
            judged = replace(judged, choice=refusal)
        return replace(judged, downloaded_bytes=received)

    def _told_metadata(self, file: File) -> bytes | None:
        """Return the metadata that an index has beside a wheel (PEP 658), if it has them."""
        if file.metadata_sha256 is None or file.url.startswith("file:"):
            return None
        try:
            self._allowance.take(0)
            with opened(f"{file.url}.metadata", self._index.web) as answer:
                content = answer.whole(_LARGEST_METADATA)
        except (AbsentError, UnreachableError):
            return None
        self._allowance.take(len(content))
        if file.metadata_sha256 not in ("", hashlib.sha256(content).hexdigest()):
            raise ArtifactError("its metadata differ from what the index says", file=file.name)
        return content

    def _judge_told(self, named: PublishedWheel, metadata: bytes) -> Choice:
        """Judge a wheel by the metadata beside it; whether they are its own is checked later."""
        facts = wheel_facts(metadata, b"", members=0, unpacked=0)
        told = replace(named, requires=facts.requires, requires_python=facts.requires_python)
        return judge_metadata(self._place, told)

    @contextmanager
    def _opened(self, file: File) -> Iterator[Reader]:
        """Open a wheel where it lies; if its server sends no parts of it, download it."""
        if urlsplit(file.url).scheme == "file":
            with open_file(Path(unquote(urlsplit(file.url).path))) as reader:
                yield reader
            return
        with open_remote(
            file.url,
            self._index.web,
            self._work,
            size=file.size,
            name=file.name,
            allowance=self._allowance,
        ) as remote:
            try:
                remote.read_at(max(0, remote.size - 1), 1)
            except NoRangesError:
                self._allowance.take(remote.size)
                path = download(file, self._work, self._index, say=lambda _: None)
            else:
                yield remote
                return
        with open_file(path, file.name) as reader:
            yield reader
        remove_file(path)

    def _judge_opened(
        self, reader: Reader, candidate: Candidate, judged: Judged
    ) -> tuple[Judged, _ReadWheel | None]:
        """Judge a wheel, and return what its libraries show unless its metadata refuse it."""
        file, place = candidate.file, self._place
        listed = read_listed(reader, ZipLimits())
        dist_info = dist_info_of(listed, Path(file.name))
        metadata = _text(reader, listed, f"{dist_info}/METADATA")
        metadata_sha256 = hashlib.sha256(metadata).hexdigest()
        wheel = wheel_facts(
            metadata,
            _text(reader, listed, f"{dist_info}/WHEEL"),
            members=len(listed),
            unpacked=sum(entry.sizes.unpacked for entry in listed.values()),
        )
        artifact = wheel_artifact(Path(file.name), wheel, (), tuple(listed), size=reader.size)
        entry = _entry(file, metadata_sha256, artifact)
        # Whether the release in the label counts is known from the symbols: not for the stable ABI.
        early = judge_metadata(place, replace(entry, torch=None))
        if not early.runs:
            return replace(judged, choice=early), None
        symbols: list[Symbols] = []

        def also(library: Elf) -> None:
            symbols.append(dynamic_symbols(library))

        libraries = tuple(
            read_member(reader, member_of(reader, listed[name]), also)
            for name in listed
            if _LIBRARY.search(name)
        )
        artifact = wheel_artifact(
            Path(file.name), wheel, libraries, tuple(listed), size=reader.size
        )
        needs = torch_needs(symbols)
        if needs:
            artifact = replace(artifact, loads_with=loads_with(needs))
        read = _ReadWheel(metadata_sha256=metadata_sha256, artifact=artifact, needs=needs)
        return self._judge_read(candidate, judged, read), read

    def _judge_read(self, candidate: Candidate, judged: Judged, read: _ReadWheel) -> Judged:
        # A catalogue knows more than the wheel shows, such as the CPU that it was built for.
        entry = candidate.entry or _entry(candidate.file, read.metadata_sha256, read.artifact)
        # Whether no other wheel of the version could be for another machine. PyTorch has wheels
        # for CPUs and GPUs under one name, and a label says what a wheel is for.
        for_all = not entry.regions and "+" not in entry.version and entry.project != TORCH
        return replace(
            judged,
            choice=judge(self._place, entry, read.artifact, read.needs),
            plain=candidate.entry is None and read.needs is None and for_all,
        )


def _text(reader: Reader, listed: dict[str, DirectoryEntry], name: str) -> bytes:
    if name not in listed:
        raise ArtifactError("the wheel has no such member", file=reader.file, member=name)
    member = member_of(reader, listed[name])
    if member.size > _LARGEST_METADATA:
        raise ArtifactError(f"{member.size} bytes of metadata", file=reader.file, member=name)
    return open_member(reader, member).read(0, member.size)


def _entry(file: File, metadata_sha256: str, artifact: ArtifactFacts) -> PublishedWheel:
    identity = FileIdentity(
        file=file.name,
        sha256=file.sha256 or _UNKNOWN,
        size=artifact.size_bytes,
        metadata_sha256=metadata_sha256,
        built="",
    )
    return make_entry(identity, artifact, RecordedOrigin())
