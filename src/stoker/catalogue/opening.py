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
from stoker.catalogue.choosing import TORCH
from stoker.catalogue.entry import FileIdentity, RecordedOrigin, make_entry
from stoker.catalogue.judging import Place, judge, judge_metadata
from stoker.catalogue.ranking import judged
from stoker.catalogue.values import Candidate, PublishedWheel
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

    def __call__(self, candidate: Candidate) -> Candidate:
        """Judge one wheel by as little of it as is needed."""
        named = judged(self._place.host, candidate)
        if not named.runs:
            return named
        received = 0
        try:
            # Without a hash, nothing says whether it is still the same wheel.
            digest = candidate.sha256
            kept = name_of(self._reader, candidate.url, digest) if digest else None
            if kept and (known := _READ_WHEELS.recall(kept)):
                return self._judge_read(candidate, known)
            if told := self._told_metadata(candidate):
                received = len(told)
                early = self._judge_told(candidate, told)
                if not early.runs:
                    return replace(early, downloaded_bytes=received)
            with stage(f"reading {candidate.file}"), self._opened(candidate) as reader:
                try:
                    found, read = self._judge_opened(reader, candidate)
                finally:
                    received += getattr(reader, "downloaded", reader.size)
            if kept and read:
                _READ_WHEELS.keep(kept, read)
        except ArtifactError as error:
            problem = str(error).removeprefix(candidate.file).lstrip(": ")
            found = candidate.refused(f"it is damaged: {problem}")
        except SpentError:
            raise
        except MissingError as error:
            found = candidate.refused(f"it cannot be read: {error.message}")
        return replace(found, downloaded_bytes=received)

    def _told_metadata(self, file: Candidate) -> bytes | None:
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
            raise ArtifactError("its metadata differ from what the index says", file=file.file)
        return content

    def _judge_told(self, candidate: Candidate, metadata: bytes) -> Candidate:
        """Judge a wheel by the metadata beside it; whether they are its own is checked later."""
        facts, named = wheel_facts(metadata, b"", members=0, unpacked=0), candidate.wheel
        told = replace(named, requires=facts.requires, requires_python=facts.requires_python)
        return judge_metadata(self._place, replace(candidate, wheel=told))

    @contextmanager
    def _opened(self, file: Candidate) -> Iterator[Reader]:
        """Open a wheel where it lies; if its server sends no parts of it, download it."""
        if urlsplit(file.url).scheme == "file":
            with open_file(Path(unquote(urlsplit(file.url).path))) as reader:
                yield reader
            return
        with open_remote(
            file.url,
            self._index.web,
            self._work,
            size=file.size_bytes,
            name=file.file,
            allowance=self._allowance,
        ) as remote:
            try:
                remote.read_at(max(0, remote.size - 1), 1)
            except NoRangesError:
                self._allowance.take(remote.size)
                whole = File(url=file.url, sha256=file.sha256)
                path = download(whole, self._work, self._index, say=lambda _: None)
            else:
                yield remote
                return
        with open_file(path, file.file) as reader:
            yield reader
        remove_file(path)

    def _judge_opened(
        self, reader: Reader, candidate: Candidate
    ) -> tuple[Candidate, _ReadWheel | None]:
        """Judge a wheel, and return what its libraries show unless its metadata refuse it."""
        file = Path(candidate.file)
        listed = read_listed(reader, ZipLimits())
        dist_info = dist_info_of(listed, file)
        metadata = _text(reader, listed, f"{dist_info}/METADATA")
        metadata_sha256 = hashlib.sha256(metadata).hexdigest()
        wheel = wheel_facts(
            metadata,
            _text(reader, listed, f"{dist_info}/WHEEL"),
            members=len(listed),
            unpacked=sum(entry.sizes.unpacked for entry in listed.values()),
        )
        artifact = wheel_artifact(file, wheel, (), tuple(listed), size=reader.size)
        entry = _entry(candidate, metadata_sha256, artifact)
        # Whether the release in the label counts is known from the symbols: not for the stable ABI.
        early = judge_metadata(self._place, replace(candidate, wheel=replace(entry, torch=None)))
        if not early.runs:
            return early, None
        symbols: list[Symbols] = []

        def also(library: Elf) -> None:
            symbols.append(dynamic_symbols(library))

        libraries = tuple(
            read_member(reader, member_of(reader, listed[name]), also)
            for name in listed
            if _LIBRARY.search(name)
        )
        artifact = wheel_artifact(file, wheel, libraries, tuple(listed), size=reader.size)
        needs = torch_needs(symbols)
        if needs:
            artifact = replace(artifact, loads_with=loads_with(needs))
        read = _ReadWheel(metadata_sha256=metadata_sha256, artifact=artifact, needs=needs)
        return self._judge_read(candidate, read), read

    def _judge_read(self, candidate: Candidate, read: _ReadWheel) -> Candidate:
        # A catalogue knows more than the wheel shows, such as the CPU that it was built for.
        entry = candidate.wheel
        if not candidate.in_catalogue:
            entry = _entry(candidate, read.metadata_sha256, read.artifact)
        # Whether no other wheel of the version could be for another machine. PyTorch has wheels
        # for CPUs and GPUs under one name, and a label says what a wheel is for.
        for_all = not entry.regions and "+" not in entry.version and entry.project != TORCH
        known = replace(
            candidate,
            wheel=entry,
            plain=not candidate.in_catalogue and read.needs is None and for_all,
        )
        return judge(self._place, known, read.artifact, read.needs)


def _text(reader: Reader, listed: dict[str, DirectoryEntry], name: str) -> bytes:
    if name not in listed:
        raise ArtifactError("the wheel has no such member", file=reader.file, member=name)
    member = member_of(reader, listed[name])
    if member.size > _LARGEST_METADATA:
        raise ArtifactError(f"{member.size} bytes of metadata", file=reader.file, member=name)
    return open_member(reader, member).read(0, member.size)


def _entry(candidate: Candidate, metadata_sha256: str, artifact: ArtifactFacts) -> PublishedWheel:
    identity = FileIdentity(
        file=candidate.file,
        sha256=candidate.sha256 or _UNKNOWN,
        size=artifact.size_bytes,
        metadata_sha256=metadata_sha256,
        built="",
    )
    return make_entry(identity, artifact, RecordedOrigin())
