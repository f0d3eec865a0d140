"""Reads catalogues and indexes with wheel variants, from a folder, a store or over the network."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from msgspec.structs import replace
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from stoker.catalogue import document
from stoker.catalogue.document import CATALOGUE
from stoker.catalogue.foreign_wheels import Properties, foreign_entry, read_variants, without_label
from stoker.catalogue.signing import check_serial, check_signature, signature_path
from stoker.catalogue.store import FolderStore, open_store
from stoker.catalogue.values import PublishedCatalogue, PublishedWheel
from stoker.model.distribution import read_version
from stoker.model.errors import ArtifactError, UsageError
from stoker.model.value import Value
from stoker.outside.address import read_address
from stoker.outside.package_index import File, PackageIndex, files_of
from stoker.outside.web import AbsentError, Web, opened

_LARGEST = 256 << 20  # bytes of catalogue.json
_MOST_VARIANTS = 64 << 20  # bytes of NAME-VERSION-variants.json
_VARIANTS_SUFFIX = "-variants.json"
_LARGEST_SIGNATURE = 64 << 10
_SHA256 = re.compile(r"[0-9a-f]{64}")


class LocatedCatalogue(Value, frozen=True, kw_only=True):
    """A catalogue, and the URL with a final slash under which installers read it, if they can.

    ``files`` are the wheels of a package index, by name, if the place is no catalogue of stoker.
    """

    catalogue: PublishedCatalogue
    place: str
    url: str | None
    files: Mapping[str, File] = {}
    note: str = ""  # about its signature
    is_kept: bool = False  # what was built here, of sources of all places
    web: Web = Web()

    def reference(self, wheel: PublishedWheel) -> str:
        """Return a requirement that names only this wheel, by its address and hash."""
        digest = f"#sha256={wheel.sha256}" if wheel.sha256 else ""
        return f"{wheel.project} @ {self.wheel_url(wheel)}{digest}"

    def wheel_url(self, wheel: PublishedWheel) -> str:
        if wheel.file in self.files:
            return self.files[wheel.file].url
        if self.url is None:
            raise UsageError(
                f"pip and uv cannot read {self.place}",
                hints=["name the http or https address under which the bucket is served"],
            )
        return self.url + quote(wheel.path)


def locate(
    place: str,
    web: Web | None = None,
    *,
    wanted: Sequence[Requirement] = (),
    keys: Sequence[str] = (),
) -> LocatedCatalogue:
    """Read a catalogue, or the wheels of ``wanted`` in a package index that is none. If there are
    keys, one of them must have signed the catalogue, and it may not be older than before. The
    credentials in an address are used and not kept.
    """
    web, place = (web or Web()).with_logins([place]), read_address(place).text
    served = place.startswith(("http://", "https://"))
    found = _served(place, web, keys) if served else _stored(place, keys)
    if found is None and keys:
        raise ArtifactError(
            f"stoker.toml has a key for it, and it has no {CATALOGUE}",
            file=place,
            hints=["an index without a signature is not used in its place"],
        )
    if found is None and (served or Path(place).is_dir()):
        found = _foreign(place, wanted, web)
    if found is None:
        named = " and ".join(canonicalize_name(one.name) for one in wanted)
        index = f", nor a package index with wheels of {named}" if wanted else ""
        raise UsageError(
            f"{place} is not a catalogue: it has no {CATALOGUE}{index}",
            hints=[
                "`stoker catalogue publish WHEELS --to INDEX` makes one",
                "name the root of an index, not the page of a project",
            ],
        )
    return replace(found, web=web)


def _own(
    place: str, url: str | None, keys: Sequence[str], read: Callable[[str, int], bytes | None]
) -> LocatedCatalogue | None:
    """Return the catalogue of stoker at a place, with a note if no signature was checked. It is
    decoded only after its signature has been checked. ``read`` returns a file of limited size.
    """
    content = read(CATALOGUE, _LARGEST)
    if content is None:
        return None
    if keys:
        signature = read(signature_path(content), _LARGEST_SIGNATURE)
        check_signature(content, signature, keys, place)
    catalogue, note = document.decoded(content, f"{place.rstrip('/')}/{CATALOGUE}"), ""
    if keys:
        check_serial(place, catalogue.serial)
    elif catalogue.serial:
        note = f"{place} is signed, but stoker.toml has no key to check it with"
    else:
        note = f"{place} is not signed"
    return LocatedCatalogue(catalogue=catalogue.own, place=place, url=url, note=note)


def _served(place: str, web: Web, keys: Sequence[str]) -> LocatedCatalogue | None:
    base = f"{place}/"

    def read(path: str, most: int) -> bytes | None:
        try:
            with opened(base + path, web) as answer:
                return answer.whole(most)
        except AbsentError:
            return None

    return _own(place, base, keys, read)


def _stored(place: str, keys: Sequence[str]) -> LocatedCatalogue | None:
    store, url = open_store(place), None
    if isinstance(store, FolderStore):
        url = store.root.absolute().as_uri().rstrip("/") + "/"

    def read(path: str, _: int) -> bytes | None:
        found = store.read(path)
        return found[0] if found else None

    return _own(place, url, keys, read)


def _foreign(place: str, wanted: Sequence[Requirement], web: Web) -> LocatedCatalogue | None:
    """Read the pages of the wanted projects, and what describes the labels of their wheels."""
    index = PackageIndex(roots=(place,), links=(), web=web)
    wheels: list[PublishedWheel] = []
    of_wheels: dict[str, File] = {}
    for requirement in wanted:
        files = files_of(canonicalize_name(requirement.name), index)
        listed = {str(file.name): file for file in files}
        found = [file for file in listed.values() if _suits(file, requirement)]
        needed = {_description(file.name) for file in found if without_label(file.name)[1]}
        described: dict[str, dict[str, Properties]] = {}
        for name in sorted(needed & listed.keys()):
            with opened(listed[name].url, web) as answer:
                described[name] = read_variants(answer.whole(_MOST_VARIANTS), listed[name].url)
        for file in found:
            labels = described.get(_description(file.name), {})
            # A file of this machine has no hash here: it is hashed when it is used.
            digest = file.sha256 if file.sha256 and _SHA256.fullmatch(file.sha256) else ""
            entry = foreign_entry(file.name, digest, file.size or 0, labels)
            if entry is not None:
                wheels.append(entry)
                of_wheels[file.name] = file
    if not wheels:
        return None
    catalogue = document.with_wheels(PublishedCatalogue(), wheels)
    return LocatedCatalogue(catalogue=catalogue, place=place, url=None, files=of_wheels)


def _suits(file: File, wanted: Requirement) -> bool:
    """Return whether a file is a wheel of the wanted project and version."""
    bare = without_label(file.name)[0]
    name, _, rest = bare.partition("-")
    if not bare.endswith(".whl") or canonicalize_name(name) != canonicalize_name(wanted.name):
        return False
    try:
        version = read_version(rest.partition("-")[0])
    except ValueError:
        return False
    return wanted.specifier.contains(version, prereleases=True)


def _description(wheel: str) -> str:
    """Return the name of the file that describes the labels of a version's wheels."""
    name, version = wheel.split("-")[:2]
    return f"{name}-{version}{_VARIANTS_SUFFIX}"
