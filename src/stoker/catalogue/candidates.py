"""The wheels of a project that come into question: those of catalogues, of pip's indexes, and of
other places that stoker knows or that the user names.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatchcase

import msgspec
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from stoker.catalogue.access import LocatedCatalogue
from stoker.catalogue.foreign_wheels import foreign_entry
from stoker.catalogue.judging import Place
from stoker.catalogue.values import Candidate, PublishedWheel
from stoker.model.distribution import read_version, read_wheel_name
from stoker.model.errors import MissingError
from stoker.model.value import UNDECODABLE, Bytes, Value, counted, prepared
from stoker.model.wheel_source import WheelSource
from stoker.outside.long_work import Say
from stoker.outside.package_index import (
    File,
    Listing,
    PackageIndex,
    files_at,
    listings_of,
    page_of,
)
from stoker.outside.web import UnreachableError, Web, opened

_GITHUB = "https://api.github.com/repos/{}/releases?per_page=100"
_MOST_RELEASES = 64 << 20  # bytes


class Supply(Value, frozen=True, kw_only=True):
    """All places where wheels are searched."""

    index: PackageIndex
    catalogues: tuple[LocatedCatalogue, ...] = ()
    sources: tuple[WheelSource, ...] = ()


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

    wheels: tuple[tuple[Version, Candidate], ...]
    source: SourceDistribution | None
    newest: str | None = None  # of all versions, also if another one is wanted
    left_out: tuple[str, ...] = ()


def candidates(wanted: Requirement, place: Place, supply: Supply, *, say: Say) -> Listed:
    """Return what all places have of a project. A place that does not answer is told and passed
    over, unless nothing is left.
    """
    project = canonicalize_name(wanted.name)
    own = [one for located in supply.catalogues for one in _of_catalogue(located, wanted)]
    listings = [*listings_of(project, supply.index), *_of_sources(project, place, supply)]
    problems = [listing.problem for listing in listings if listing.problem]
    if problems and not own and not any(listing.files for listing in listings):
        raise problems[0]
    for problem in problems:
        say(f"not searched: {problem.message}")
    files, left_out = _trusted(listings, wanted, _newest_of(supply.catalogues, wanted))
    for what in left_out:
        say(f"left out: {what}")
    listed: list[tuple[Version, Candidate]] = []
    for file in files:
        with suppress(ValueError):  # not a wheel, or not named like one
            name, of_wheel, _ = read_wheel_name(file.name)
            if name == project:
                listed.append((of_wheel, _candidate(file)))
    sources = {version: file for file in files if (version := file.version_of(project))}
    # This leaves pre-releases out, unless they are named or there is nothing else.
    versions = [*(version for version, _ in (*own, *listed)), *sources]
    fitting = {*wanted.specifier.filter(versions)}
    sources = {version: file for version, file in sources.items() if version in fitting}
    digests = {str(version): file.sha256 for version, file in sources.items()}
    found: dict[str, tuple[Version, Candidate]] = {}
    for version, one in listed:
        if version in fitting:
            found.setdefault(one.file, (version, one))
    wheels: list[tuple[Version, Candidate]] = []
    for version, one in own:
        if version in fitting and _is_of(one.wheel, digests.get(version.public)):
            wheels.append((version, one))
        elif version in fitting:
            say(f"{one.file}: it was built from another source than the index has")
    wheels += found.values()
    source = None
    if newest := max(sources, default=None):
        digest = sources[newest].sha256
        source = SourceDistribution(project=project, version=str(newest), sha256=digest)
    return Listed(
        wheels=tuple(sorted(wheels, key=lambda one: Version(one[0].public), reverse=True)),
        source=source,
        newest=str(max(versions)) if versions else None,
        left_out=tuple(left_out),
    )


def _of_catalogue(
    located: LocatedCatalogue, wanted: Requirement
) -> Iterator[tuple[Version, Candidate]]:
    project = canonicalize_name(wanted.name)
    for wheel in located.catalogue.wheels:
        version = read_version(wheel.version)
        if wheel.project == project and wanted.specifier.contains(version, prereleases=True):
            url, digest = located.wheel_url(wheel), wheel.sha256
            yield (
                version,
                Candidate(
                    wheel=wheel,
                    url=url,
                    sha256=digest,
                    size_bytes=wheel.size_bytes,
                    in_catalogue=True,
                ),
            )


def _candidate(file: File) -> Candidate:
    """Return a wheel of an index, of which only the name is known; ValueError if it has none."""
    named = foreign_entry(file.name, file.sha256 or "", file.size or 0, {})
    if named is None:
        raise ValueError(f"{file.name} is not the name of a wheel")
    return Candidate(
        wheel=named,
        url=file.url,
        sha256=file.sha256,
        metadata_sha256=file.metadata_sha256,
        size_bytes=file.size,
    )


def _is_of(wheel: PublishedWheel, listed: str | None) -> bool:
    """Return whether a wheel was built from the source that the index has of its version."""
    return wheel.source is None or listed is None or wheel.source == listed


def _of_sources(project: str, place: Place, supply: Supply) -> Iterator[Listing]:
    for source in supply.sources:
        if source.serves(project) and (address := _filled(source.place, place)):
            try:
                yield Listing(address, _of_source(project, source, address, supply.index.web))
            except MissingError as error:
                yield Listing(address, problem=error)


def _newest_of(catalogues: Iterable[LocatedCatalogue], wanted: Requirement) -> Version | None:
    """Return the newest version that the catalogues of the user have."""
    named = (
        one
        for located in catalogues
        if not located.is_kept
        for one in _of_catalogue(located, wanted)
    )
    return max((Version(version.public) for version, _ in named), default=None)


def _trusted(
    listings: Iterable[Listing], wanted: Requirement, newest: Version | None
) -> tuple[list[File], list[str]]:
    """Return the files that may be taken, and what is left out in words.

    The first place that has a project decides how new it is: anyone may offer a newer one of the
    same name at another place. Places that were named for the project are as good as the first one.
    A version that its publisher has yanked has to be named.
    """
    exact = any(
        one.operator in ("==", "===") and "*" not in one.version for one in wanted.specifier
    )
    project = canonicalize_name(wanted.name)
    taken: list[File] = []
    left_out: list[str] = []
    for listing in listings:
        files = [file for file in listing.files if exact or not file.yanked]
        if yanked := len(listing.files) - len(files):
            left_out.append(f"{counted(yanked, 'file')} of {project} that its publisher has yanked")
        if not listing.is_index:
            taken += files
            continue
        versions = {file: _version_of(file, project) for file in files}
        fitting = {*wanted.specifier.filter(found for found in versions.values() if found)}
        newer = {one for one in fitting if newest and Version(one.public) > newest}
        if newer:
            left_out.append(
                f"{project} {max(newer)} of {listing.place}, because the first place that has "
                f"{project} ends at {newest}; {project}=={max(newer)} takes it"
            )
        taken += [file for file, found in versions.items() if found not in newer]
        newest = newest or max((Version(one.public) for one in fitting), default=None)
    return taken, left_out


def _version_of(file: File, project: str) -> Version | None:
    """Return the version of a wheel or a source of a project."""
    with suppress(ValueError):
        name, version, _ = read_wheel_name(file.name)
        return version if name == project else None
    return file.version_of(project)


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
    files = []
    for asset in (asset for release in releases for asset in release.assets):
        if asset.browser_download_url.startswith(("http://", "https://")):
            digest = asset.digest.removeprefix("sha256:") if asset.digest else None
            with suppress(ValueError):  # its address names no file
                files.append(File(url=asset.browser_download_url, size=asset.size, sha256=digest))
    return files
