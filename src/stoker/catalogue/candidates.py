"""The wheels of a project that come into question: those of catalogues, of pip's indexes, and of
other places that stoker knows or that the user names.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from stoker.catalogue.access import LocatedCatalogue
from stoker.catalogue.judging import Place
from stoker.catalogue.values import PublishedWheel
from stoker.model.distribution import read_version
from stoker.model.errors import MissingError, StokerError
from stoker.model.value import UNDECODABLE, Bytes, Value, prepared
from stoker.model.wheel_source import WheelSource
from stoker.outside.long_work import Say
from stoker.outside.package_index import File, PackageIndex, files_at, files_of, page_of
from stoker.outside.web import UnreachableError, Web, opened

_GITHUB = "https://api.github.com/repos/{}/releases?per_page=100"
_MOST_RELEASES = 64 << 20  # bytes


class Supply(Value, frozen=True, kw_only=True):
    """All places where wheels are searched."""

    index: PackageIndex
    catalogues: tuple[LocatedCatalogue, ...] = ()
    sources: tuple[WheelSource, ...] = ()


class Candidate(Value, frozen=True, kw_only=True):
    """A wheel that its name does not exclude. ``entry`` is what a catalogue says of it."""

    version: Version
    file: File
    entry: PublishedWheel | None = None


class SourceDistribution(Value, frozen=True, kw_only=True):
    """The newest source of a project that is wanted."""

    project: str
    version: str
    sha256: str | None = None

    @property
    def requirement(self) -> str:
        return f"{self.project}=={self.version}"

    def is_newer_than(self, version: str) -> bool:
        return read_version(self.version) > Version(read_version(version).public)


class Listed(Value, frozen=True, kw_only=True):
    """The candidates, the newest version first and of each version those of catalogues first."""

    wheels: tuple[Candidate, ...]
    source: SourceDistribution | None
    newest: str | None = None  # of all versions, also if another one is wanted


def candidates(wanted: Requirement, place: Place, supply: Supply, *, say: Say) -> Listed:
    """Return what all places have of a project. A place that does not answer is told and passed
    over, unless nothing is left.
    """
    project = canonicalize_name(wanted.name)
    own = [one for located in supply.catalogues for one in _of_catalogue(located, wanted)]
    files: list[File] = []
    problems: list[StokerError] = []
    for listing in _listings(project, place, supply):
        try:
            files += listing()
        except MissingError as error:
            problems.append(error)
    if problems and not own and not files:
        raise problems[0]
    for problem in problems:
        say(f"not searched: {problem.message}")
    listed: list[Candidate] = []
    for file in files:
        with suppress(ValueError):  # not a wheel, or not named like one
            name, of_wheel, _, _ = parse_wheel_filename(file.name)
            if name == project:
                listed.append(Candidate(version=of_wheel, file=file))
    sources = {version: file for file in files if (version := file.version_of(project))}
    # This leaves pre-releases out, unless they are named or there is nothing else.
    versions = [*(one.version for one in (*own, *listed)), *sources]
    fitting = {*wanted.specifier.filter(versions)}
    sources = {version: file for version, file in sources.items() if version in fitting}
    digests = {str(version): file.sha256 for version, file in sources.items()}
    own = [one for one in own if one.version in fitting]
    found: dict[str, Candidate] = {}
    for one in listed:
        if one.version in fitting:
            found.setdefault(one.file.name, one)
    for one in own:
        if not _is_of(one, digests):
            say(f"{one.file.name}: it was built from another source than the index has")
    wheels = [*(one for one in own if _is_of(one, digests)), *found.values()]
    source = None
    if newest := max(sources, default=None):
        digest = sources[newest].sha256
        source = SourceDistribution(project=project, version=str(newest), sha256=digest)
    return Listed(
        wheels=tuple(sorted(wheels, key=lambda one: Version(one.version.public), reverse=True)),
        source=source,
        newest=str(max(versions)) if versions else None,
    )


def _of_catalogue(located: LocatedCatalogue, wanted: Requirement) -> Iterator[Candidate]:
    project = canonicalize_name(wanted.name)
    for wheel in located.catalogue.wheels:
        version = read_version(wheel.version)
        if wheel.project == project and wanted.specifier.contains(version, prereleases=True):
            url = located.wheel_url(wheel)
            file = File(url=url, sha256=wheel.sha256, size=wheel.size_bytes)
            yield Candidate(version=version, file=file, entry=wheel)


def _is_of(one: Candidate, digests: dict[str, str | None]) -> bool:
    """Return whether a wheel was built from the source that the index has of its version."""
    built_from = one.entry.source if one.entry else None
    listed = digests.get(one.version.public)
    return built_from is None or listed is None or built_from == listed


def _listings(project: str, place: Place, supply: Supply) -> Iterator[Callable[[], Sequence[File]]]:
    yield partial(files_of, project, supply.index)
    for source in supply.sources:
        if source.serves(project) and (address := _filled(source.place, place)):
            yield partial(_of_source, project, source, address, supply.index.web)


def _filled(template: str, place: Place) -> str | None:
    """Return an address for the installed PyTorch; ``None`` if it needs one and there is none."""
    if "{" not in template:
        return template
    if place.torch is None:
        return None
    toolkit = place.torch.toolkit
    release = place.torch.build.release.partition("+")[0]
    return template.replace("{torch}", release).replace(
        "{cuda}", f"cu{toolkit.replace('.', '')}" if toolkit else "cpu"
    )


def _of_source(project: str, source: WheelSource, address: str, web: Web) -> list[File]:
    if source.releases:
        found = _released(address if "://" in address else _GITHUB.format(address), web)
    else:
        found = files_at(page_of(project, address) if source.index else address, web)
    return [file for file in found if fnmatchcase(file.name, source.files)]


class _Asset(msgspec.Struct):
    browser_download_url: str
    size: Bytes
    digest: str | None = None


class _Release(msgspec.Struct):
    assets: list[_Asset]


def _released(url: str, web: Web) -> list[File]:
    """Return the files of the newest releases of a repository."""
    with opened(url, web, accept="application/vnd.github+json, application/json") as answer:
        content = answer.whole(_MOST_RELEASES)
    try:
        releases = msgspec.json.decode(content, type=prepared(list[_Release]))
    except UNDECODABLE as error:
        raise UnreachableError(f"{url} is not a list of releases: {error}") from error
    return [
        File(
            url=asset.browser_download_url,
            size=asset.size,
            sha256=asset.digest.removeprefix("sha256:") if asset.digest else None,
        )
        for release in releases
        for asset in release.assets
        if asset.browser_download_url.startswith(("http://", "https://"))
    ]
