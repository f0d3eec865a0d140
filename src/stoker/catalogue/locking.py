"""Lock files that repeat an installation exactly, and lines for the pyproject.toml of a project.

A lock is a `pylock.toml` (PEP 751), which uv and pip read as well: every file with its address and
SHA-256.
"""

import tomllib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace
from packaging.markers import InvalidMarker, Marker, UndefinedEnvironmentName
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from stoker import __version__
from stoker.catalogue.choosing import marker_environment
from stoker.catalogue.finding import Found
from stoker.catalogue.judging import Place
from stoker.catalogue.values import Digest, Host, Line, VersionText
from stoker.machine.installers import Installer, InstallReport, Resolved, install_failure
from stoker.model.distribution import read_version, read_wheel_name
from stoker.model.errors import ArtifactError, UsageError, unreadable
from stoker.model.file_name import file_name, named_by
from stoker.model.value import UNDECODABLE, Value, checked_toml, minor_release, prepared, toml_value
from stoker.outside import process
from stoker.outside.address import without_credentials
from stoker.outside.files import read_json, write_whole
from stoker.outside.web import Web

_Name = Annotated[str, Meta(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\Z")]
_Url = Annotated[str, Meta(pattern=r"^(https?|file)://[^\s\x00-\x1f#]+\Z", max_length=10_000)]
_TIMEOUT_S = 1800.0  # pip may download wheels whose index has no metadata apart from them


class _Hashes(Value, frozen=True, kw_only=True):
    sha256: Digest


class _LockedFile(Value, frozen=True, kw_only=True):
    """A wheel. ValueError if its address names another file, such as a source, which would run."""

    name: Line
    url: _Url
    hashes: _Hashes

    def __post_init__(self) -> None:
        if named_by(self.url) != file_name(self.name):
            raise ValueError(f"the address of {self.name} leads to another file")


class LockedPackage(Value, frozen=True, kw_only=True, rename="kebab"):
    """One package of a lock, which names exactly one file of it."""

    name: _Name
    version: VersionText
    marker: Line | None = None
    requires_python: Line | None = None
    wheels: Annotated[tuple[_LockedFile, ...], Meta(min_length=1, max_length=1)]

    def __post_init__(self) -> None:
        (file,) = self.wheels
        project, version, _ = read_wheel_name(file.name)
        if (project, version) != (canonicalize_name(self.name), read_version(self.version)):
            raise ValueError(f"{file.name} is not a wheel of {self.name} {self.version}")

    @property
    def bare(self) -> "LockedPackage":
        """The same without the credentials in its address."""
        (file,) = self.wheels
        return replace(self, wheels=(replace(file, url=without_credentials(file.url)),))

    @property
    def reference(self) -> str:
        (file,) = self.wheels
        return f"{self.name} @ {file.url}#sha256={file.hashes.sha256}"


class Lock(Value, frozen=True, kw_only=True, rename="kebab"):
    """The part of a `pylock.toml` that is used."""

    lock_version: Literal["1.0"]
    requires_python: Line | None = None
    packages: tuple[LockedPackage, ...]


def resolved_lock(found: Sequence[Found], place: Place, installer: Installer, work: Path) -> Lock:
    """Return the lock of what pip would install for these wheels and the PyTorch that is here."""
    requirements = [one.reference for one in found]
    if place.torch:
        requirements.append(f"torch=={place.torch.build.release}")
    report = work / "report.json"
    done = process.run(installer.resolve(report, requirements), timeout=_TIMEOUT_S)
    if not done.ok:
        raise install_failure(done.stdout + done.stderr, "what is to be locked")
    answer = read_json(report, InstallReport)
    if answer is None:
        raise ArtifactError("pip has not said what it would install", file=report.name)
    packages = sorted(map(_locked, answer.install), key=lambda one: one.name.lower())
    minor = minor_release(place.host.python)
    return Lock(lock_version="1.0", requires_python=f"=={minor}.*", packages=tuple(packages))


def _locked(one: Resolved) -> LockedPackage:
    url = without_credentials(one.url.partition("#")[0])
    name = named_by(url)
    digest = one.download_info.archive_info.hashes.get("sha256")
    if not name.endswith(".whl"):
        raise UsageError(
            f"{one.metadata.name} {one.metadata.version} has no wheel here, so it cannot be locked",
            hints=[
                f"name it as well, so that stoker builds it: stoker install {one.metadata.name}"
            ],
        )
    if not digest:
        raise UsageError(f"the index does not tell the SHA-256 of {name}, so it cannot be locked")
    package = {
        "name": one.metadata.name,
        "version": one.metadata.version,
        "wheels": [{"name": name, "url": url, "hashes": {"sha256": digest}}],
    }
    try:
        return msgspec.convert(package, prepared(LockedPackage))
    except msgspec.ValidationError as error:
        raise ArtifactError(f"this cannot be locked: {error}", file=name) from None


def write_lock(lock: Lock, path: Path) -> None:
    write_whole(path, ("\n".join(_lock_lines(lock)) + "\n").encode())


def _lock_lines(lock: Lock) -> Iterator[str]:
    yield f"lock-version = {toml_value(lock.lock_version)}"
    yield f"created-by = {toml_value(f'stoker {__version__}')}"
    if lock.requires_python:
        yield f"requires-python = {toml_value(lock.requires_python)}"
    for package in lock.packages:
        (file,) = package.wheels
        yield ""
        yield "[[packages]]"
        yield f"name = {toml_value(package.name)}"
        yield f"version = {toml_value(package.version)}"
        yield "[[packages.wheels]]"
        yield f"name = {toml_value(file.name)}"
        yield f"url = {toml_value(file.url)}"
        yield f"hashes = {toml_value({'sha256': file.hashes.sha256})}"


def read_lock(path: Path) -> tuple[Lock, Web]:
    """Read a lock, and the credentials in its addresses apart from it; raise UsageError if one of
    its packages is not one wheel with its hash.
    """
    try:
        content = tomllib.loads(checked_toml(path.read_text(encoding="utf-8")))
        lock = msgspec.convert(content, prepared(Lock))
        web = Web().with_logins(one.wheels[0].url for one in lock.packages)
        return replace(lock, packages=tuple(one.bare for one in lock.packages)), web
    except OSError as error:
        raise unreadable(path, error) from error
    except UNDECODABLE as error:
        hints = ["`stoker install PACKAGE --lock FILE` writes one"]
        raise UsageError(f"not a lock of stoker: {error}", where=str(path), hints=hints) from None


def locked_install(lock: Lock, installer: Installer, host: Host, path: Path) -> list[str]:
    """Return the command that installs exactly what is locked, and nothing else. No code of a
    package runs.
    """
    environment = dict(marker_environment(host))
    try:
        taken = [one for one in lock.packages if _holds(one.marker, environment)]
        for named in (lock.requires_python, *(one.requires_python for one in taken)):
            if not SpecifierSet(named or "").contains(host.python, prereleases=True):
                message = f"it is for Python {named}, and this is Python {host.python}"
                hints = ["--python names another one, and --lock writes a file for this one"]
                raise UsageError(message, where=str(path), hints=hints)
    except (InvalidSpecifier, InvalidMarker, UndefinedEnvironmentName) as error:
        raise UsageError(f"not a lock of stoker: {error}", where=str(path)) from None
    return installer.install(
        ["--no-deps", "--only-binary", ":all:", *(one.reference for one in taken)]
    )


def _holds(marker: str | None, environment: dict[str, str]) -> bool:
    return marker is None or Marker(marker).evaluate(environment)


def pyproject_lines(found: Iterable[Found]) -> Iterator[str]:
    """Yield lines for a pyproject.toml: direct references for pip and uv, and for uv alone where it
    finds the wheels and what they require.
    """
    chosen = [one for one in found if one.best]
    yield "[project]"
    yield "dependencies = ["
    yield from (f"    {toml_value(one.reference)}," for one in chosen)
    yield "]"
    places = [place for one in chosen if (place := _listing_of(one))]
    yield ""
    yield "[tool.uv]"
    if places:
        yield f"find-links = {toml_value(places)}"
    yield "dependency-metadata = ["
    yield from (f"    {_metadata_of(one)}," for one in chosen)
    yield "]"


def _listing_of(found: Found) -> str | None:
    """Return the page or the folder that lists a wheel of a catalogue; an index needs none."""
    assert found.best is not None
    wheel, url = found.best.wheel, found.best.url
    if not url.endswith(f"/{wheel.path}"):
        return None
    if url.startswith("file://"):
        return url.removesuffix(f"/{wheel.file}")
    return f"{url.removesuffix(wheel.path)}{wheel.variant}/{wheel.project}/"


def _metadata_of(found: Found) -> str:
    assert found.best is not None
    wheel = found.best.wheel
    table = {"name": wheel.project, "version": wheel.version, "requires-dist": wheel.requires}
    return toml_value(table | {"requires-python": wheel.requires_python})
