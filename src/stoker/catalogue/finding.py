"""Finds the wheel of a project that fits this machine and its PyTorch, among all that catalogues,
indexes and other places list.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from packaging.requirements import Requirement

from stoker.catalogue.candidates import SourceDistribution, Supply, candidates
from stoker.catalogue.host import host_of
from stoker.catalogue.judging import Place
from stoker.catalogue.opening import Judge, Judged
from stoker.catalogue.ranking import rank
from stoker.catalogue.values import Fit
from stoker.knowledge.projects import projects, wheel_sources
from stoker.machine.python import Probe, ask_interpreter
from stoker.model.errors import StokerError, nearest
from stoker.model.value import Value, counted, size
from stoker.outside import folders
from stoker.outside.files import folder_of_process
from stoker.outside.long_work import Say
from stoker.outside.web_connections import WebConnections
from stoker.wheel.inspect.torch_builds import LIBRARIES, read_torch

_TIMEOUT_S = 60.0
_ASIDE = ".stoker-find-"
_SEARCHED = "`pip config list` shows the indexes that were searched; --catalogue adds a place"
_NO_SOURCE = "it cannot be built: no place has a source of it"


class Found(Value, frozen=True, kw_only=True):
    """The wheel that fits best, all that were judged, and the source to build if none fits."""

    wanted: str
    best: Judged | None
    judged: tuple[Judged, ...]
    source: SourceDistribution | None = None
    newest: str | None = None  # the newest version that any place has

    @property
    def downloaded_bytes(self) -> int:
        return sum(one.downloaded_bytes for one in self.judged)

    @property
    def reference(self) -> str:
        """Return a requirement that names only the best wheel, by its address and hash. A wheel
        that every installer chooses well is required as the user wrote it, so that requirements
        of other packages count.
        """
        assert self.best is not None
        if self.best.plain:
            return self.wanted
        wanted, digest = Requirement(self.wanted), self.best.sha256
        extras = f"[{','.join(sorted(wanted.extras))}]" if wanted.extras else ""
        fragment = f"#sha256={digest}" if digest else ""
        return f"{self.best.choice.wheel.project}{extras} @ {self.best.url}{fragment}"


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


def find(wanted: Requirement, place: Place, supply: Supply, *, say: Say) -> Found:
    """Judge the wheels of a project, the newest version first, until a version has one that fits.
    Each refusal is told with its reason. Wheels of an index are not opened if a catalogue has one
    of the same version that fits.
    """
    listed = candidates(wanted, place, supply, say=say)
    judged: list[Judged] = []
    fitting: list[Judged] = []
    refusals = _Refusals(say)
    with (
        folder_of_process(folders.cache() / "install", _ASIDE) as work,
        WebConnections() as connections,
    ):
        judge = Judge(place, supply.index, connections, work)
        for _, version in groupby(listed.wheels, key=lambda one: one.version.public):
            for _, group in groupby(version, key=lambda one: one.entry is None):
                found = [judge(candidate) for candidate in group]
                judged += found
                fitting += refusals.without_refused(found)
                if any(one.choice.fit is not Fit.PTX for one in fitting):
                    break
            if fitting:
                break
    refusals.tell_others()
    best: Judged | None = None
    if fitting:
        first = rank(place.host, [one.choice.wheel for one in fitting])[0].wheel
        best = next(one for one in fitting if one.choice.wheel == first)
    return Found(
        wanted=str(wanted),
        best=best,
        judged=tuple(judged),
        source=listed.source,
        newest=listed.newest,
    )


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

    def without_refused(self, judged: Iterable[Judged]) -> Iterator[Judged]:
        for one in judged:
            if one.choice.runs:
                yield one
                continue
            reason = one.choice.reason
            if not one.downloaded_bytes:
                self._times[reason] += 1
            if self._times[reason] < 2:
                self._say(f"{one.choice.wheel.file}: {reason}")


def nothing_fits(found: Found) -> NothingFitsError:
    """Return the error for a project of which no wheel fits."""
    count = len(found.judged)
    source = found.source
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


def _similar(name: str) -> tuple[str, ...]:
    """Return the known project that a name may be meant for."""
    known = {one for recipe in projects().values() for one in recipe.packages}
    known |= {one for source in wheel_sources() for one in source.projects}
    return nearest(name, known, count=1, cutoff=0.8)
