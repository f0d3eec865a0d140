"""Finds the wheel of a project that fits this machine and its PyTorch, among all that catalogues,
indexes and other places list.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from urllib.parse import unquote, urlsplit

from msgspec.structs import replace
from packaging.requirements import Requirement

from stoker.catalogue.candidates import SourceDistribution, Supply, candidates
from stoker.catalogue.choosing import TORCH
from stoker.catalogue.host import host_of
from stoker.catalogue.judging import Place, required_torch
from stoker.catalogue.opening import Judge
from stoker.catalogue.ranking import ordered
from stoker.catalogue.values import Candidate, Fit
from stoker.knowledge.projects import projects, wheel_sources
from stoker.machine.python import Probe, ask_interpreter
from stoker.model.distribution import read_version
from stoker.model.errors import ArtifactError, StokerError, nearest
from stoker.model.value import Value, counted, size
from stoker.outside import folders
from stoker.outside.files import folder_of_process, sha256_of
from stoker.outside.long_work import Say
from stoker.outside.package_index import File, download
from stoker.wheel.inspect.torch_builds import LIBRARIES, read_torch
from stoker.wheel.zip.remote import Allowance, SpentError

_TIMEOUT_S = 60.0
DRY_BYTES, DRY_SECONDS = 50 << 20, 30  # that a dry run reads of the wheels of a project
_ASIDE = ".stoker-find-"
_SEARCHED = "`pip config list` shows the indexes that were searched; --catalogue adds a place"
_NO_SOURCE = "it cannot be built: no place has a source of it"


class NeededTorch(Value, frozen=True, kw_only=True):
    """The PyTorch that a project needs and that is not here; the reason is of its newest wheel."""

    by: str
    requirement: str
    reason: str
    with_cuda: bool = False  # the installed one is for CPUs


class Found(Value, frozen=True, kw_only=True):
    """The wheel that fits best, all that were judged, and the source to build if none fits."""

    wanted: str
    best: Candidate | None
    judged: tuple[Candidate, ...]
    source: SourceDistribution | None = None
    newest: str | None = None  # the newest version that any place has
    left_out: tuple[str, ...] = ()  # what may not be taken, which pip would take
    torch: NeededTorch | None = None  # if nothing fits because of PyTorch

    @property
    def downloaded_bytes(self) -> int:
        return sum(one.downloaded_bytes for one in self.judged)

    @property
    def reference(self) -> str:
        """Return a requirement that names only the best wheel, by its address and hash. A wheel
        that every installer chooses well is required as the user wrote it, so that requirements
        of other packages count; but not if something was left out that it would take.
        """
        assert self.best is not None
        if self.best.plain and not self.left_out:
            return self.wanted
        wanted, digest = Requirement(self.wanted), self.best.sha256
        extras = f"[{','.join(sorted(wanted.extras))}]" if wanted.extras else ""
        fragment = f"#sha256={digest}" if digest else ""
        return f"{self.best.wheel.project}{extras} @ {self.best.url}{fragment}"


class NothingFitsError(StokerError):
    """Wheels of the project were found, but none of them fits."""


def read_place(python: str, wished: str | None = None) -> Place:
    """Return the machine with the PyTorch that an interpreter has."""
    asked = ask_interpreter(python, Probe(environment=os.environ, timeout_s=_TIMEOUT_S))
    torch = next((path for path in asked.search_path if (Path(path) / LIBRARIES).is_dir()), None)
    return Place(host=host_of(asked, wished), torch=read_torch(torch) if torch else None)


def is_place(word: str) -> bool:
    """Return whether a word is the address or the folder of a catalogue, and no requirement."""
    return "/" in word.partition("@")[0] or Path(word).is_dir()


def find(
    wanted: Requirement,
    place: Place,
    supply: Supply,
    *,
    say: Say,
    allowance: Allowance | None = None,
) -> Found:
    """Judge the wheels of a project, the newest version first, until a version has one that fits,
    all have a reason against them that older ones share, or what may be read is spent. Each refusal
    is told with its reason. Wheels of an index are not opened if a catalogue has one of the same
    version that fits.
    """
    listed = candidates(wanted, place, supply, say=say)
    judged: list[Candidate] = []
    fitting: list[Candidate] = []
    spent = False
    refusals = _Refusals(say)
    with folder_of_process(folders.cache() / "install", _ASIDE) as work:
        judge = Judge(place, supply.index, work, allowance)
        for _, version in groupby(listed.wheels, key=lambda one: one[0].public):
            before = len(judged)
            for _, group in groupby(version, key=lambda one: one[1].in_catalogue):
                try:
                    for _, candidate in group:
                        judged.append(judge(candidate))
                        fitting += refusals.without_refused(judged[-1:])
                except SpentError:
                    spent = True
                if spent or any(one.fit is not Fit.PTX for one in fitting):
                    break
            if fitting or spent or any(one.shared for one in judged[before:]):
                break
    refusals.tell_others()
    if spent:
        left = counted(len(listed.wheels) - len(judged), "wheel")
        say(
            f"{left} of {wanted} were not looked at: a dry run reads {size(DRY_BYTES)} in "
            f"{DRY_SECONDS} s at most"
        )
    best: Candidate | None = None
    if fitting:
        best = ordered(place.host, fitting)[0]
    return Found(
        wanted=str(wanted),
        best=best,
        judged=tuple(judged),
        source=listed.source,
        newest=listed.newest,
        left_out=listed.left_out,
        torch=None if best else _torch_of_newest(judged, place),
    )


def _torch_of_newest(judged: Iterable[Candidate], place: Place) -> NeededTorch | None:
    """Return the PyTorch that the newest version needs, unless one of its wheels allows the one
    that is installed.
    """
    read = [one for one in judged if required_torch(place, one.wheel)]
    if not read:
        return None
    newest = read[0]
    public = read_version(newest.wheel.version).public
    for one in read:
        needed = Requirement(required_torch(place, one.wheel) or TORCH)
        release = place.torch.build.release if place.torch and not one.shared else None
        if read_version(one.wheel.version).public != public or release is None:
            continue
        if needed.specifier.contains(release, prereleases=True):
            return None
    return NeededTorch(
        by=f"{newest.wheel.project} {newest.wheel.version}",
        requirement=required_torch(place, newest.wheel) or TORCH,
        reason=newest.reason,
        with_cuda=place.torch is not None and newest.shared,
    )


def pinned(found: Found, place: Place, supply: Supply, *, say: Say) -> Found:
    """Return the result with the hash of the best wheel. If its place gives none, the wheel is
    received whole and judged again: a server may send others something else.
    """
    best = found.best
    if best is None or best.sha256 or (best.plain and not found.left_out):
        return found
    with folder_of_process(folders.cache() / "install", _ASIDE) as work:
        parts = urlsplit(best.url)
        if parts.scheme == "file":
            path = Path(unquote(parts.path))
        else:
            path = download(File(url=best.url), work, supply.index, say=say)
        digest = sha256_of(path)
        here = replace(best, url=path.as_uri(), sha256=digest)
        again = Judge(place, supply.index, work)(here)
    if not again.runs:
        raise ArtifactError(
            f"it differs from what was judged: {again.reason}", file=best.wheel.file
        )
    return replace(found, best=replace(best, sha256=digest))


def find_source(wanted: Requirement, place: Place, supply: Supply, *, say: Say) -> Found:
    """Find only the newest source of a project."""
    listed = candidates(wanted, place, supply, say=say)
    return Found(
        wanted=str(wanted), best=None, judged=(), source=listed.source, newest=listed.newest
    )


class _Refusals:
    """Tells each refusal. A project may have hundreds of wheels for other machines: of those that
    their names alone refuse, the first of each reason is told, and at the end how many others.
    """

    def __init__(self, say: Say):
        self._say = say
        self._times: Counter[str] = Counter()

    def tell_others(self) -> None:
        for reason, times in self._times.items():
            if times > 1:
                self._say(f"{counted(times - 1, 'more wheel')} for the same reason: {reason}")

    def without_refused(self, judged: Iterable[Candidate]) -> Iterator[Candidate]:
        for one in judged:
            if one.runs:
                yield one
                continue
            reason = one.reason
            if not one.downloaded_bytes:
                self._times[reason] += 1
            if self._times[reason] < 2:
                self._say(f"{one.wheel.file}: {reason}")


def nothing_fits(found: Found) -> NothingFitsError:
    """Return the error for a project of which no wheel fits."""
    count = len(found.judged)
    source = found.source
    if found.torch:
        return _wrong_torch(found, found.torch)
    if not count and not source:
        near = () if found.newest else _similar(Requirement(found.wanted).name)
        hints = [f"the newest version is {found.newest}"] if found.newest else []
        hints += [*(f"did you mean {name}?" for name in near), _SEARCHED]
        return NothingFitsError(f"no place has a wheel or a source of {found.wanted}", hints=hints)
    hints = [f"without --no-build, {source.requirement} is built for it" if source else _NO_SOURCE]
    if not count:
        return NothingFitsError(f"no place has a wheel of {found.wanted}", hints=hints)
    read = f" ({size(found.downloaded_bytes)} of them were read)" if found.downloaded_bytes else ""
    wheels = f"none of the {count} wheels" if count > 1 else "the only wheel"
    does = "fits" if count > 1 else "does not fit"
    message = f"{wheels} of {found.wanted} {does} this machine{read}"
    return NothingFitsError(message, hints=hints)


def _wrong_torch(found: Found, torch: NeededTorch) -> NothingFitsError:
    """Return the error for a project whose newest version needs another PyTorch than this one."""
    which = "a PyTorch for CUDA" if torch.with_cuda else "it"
    hints = [f"install {which} first: stoker install '{torch.requirement}'"]
    if found.source:
        hints.append(f"--only-build builds {found.source.requirement} for what is here")
    read = size(found.downloaded_bytes)
    return NothingFitsError(
        f"no wheel of {found.wanted} fits ({read} read), because of {torch.by}: {torch.reason}",
        hints=hints,
    )


def _similar(name: str) -> tuple[str, ...]:
    """Return the known project that a name may be meant for."""
    known = {one for recipe in projects().values() for one in recipe.packages}
    known |= {one for source in wheel_sources() for one in source.projects}
    return nearest(name, known, count=1, cutoff=0.8)
