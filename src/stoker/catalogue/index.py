"""Changes a catalogue safely: several publishers may work at once, and any of them may be killed.

Order is what keeps readers safe. A wheel is uploaded before a page lists it, and every page lists
it before `catalogue.json` does; on removal it is the other way round. So what `catalogue.json`
lists can always be installed, and every link of a page leads to a file. A marker names the pages
of a change until it is complete: the next publisher repairs those of a killed one.
"""

import secrets
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec
from packaging.utils import canonicalize_name

from stoker.catalogue import document, pages
from stoker.catalogue.document import CATALOGUE
from stoker.catalogue.pages import PEOPLE, WheelGroup
from stoker.catalogue.people_page import people_page
from stoker.catalogue.signing import SIGNATURES, Sign, signature_path
from stoker.catalogue.store import OWN, ConflictError, Store
from stoker.catalogue.values import WHEEL_VARIANTS, PublishedCatalogue, PublishedWheel
from stoker.model.distribution import read_version
from stoker.model.errors import StokerError, UsageError, unknown
from stoker.model.value import UNDECODABLE, Value, prepared
from stoker.outside.long_work import Say

_MARKERS = f"{OWN}/pending/"
_MOST_ATTEMPTS = 100

Change = Callable[[PublishedCatalogue], PublishedCatalogue]


class Upload(Value, frozen=True, kw_only=True):
    """A wheel to publish: its entry, its file and the text of its METADATA."""

    wheel: PublishedWheel
    source: Path
    metadata: bytes


class Pruned(Value, frozen=True, kw_only=True):
    """What a catalogue no longer lists, and the files that nothing refers to, with their bytes."""

    wheels: tuple[PublishedWheel, ...]
    files: tuple[str, ...]
    freed_bytes: int


def read_catalogue(store: Store) -> tuple[PublishedCatalogue, str | None]:
    """Return the catalogue and the version of its file; empty if there is none yet."""
    found = store.read(CATALOGUE)
    if found is None:
        return PublishedCatalogue(), None
    return document.decoded(found[0], f"{store.name}/{CATALOGUE}"), found[1]


def check_is_catalogue(store: Store) -> None:
    if store.read(CATALOGUE) is None:
        raise UsageError(
            f"{store.name} is not a catalogue: it has no {CATALOGUE}",
            hints=["`stoker catalogue publish WHEELS --to INDEX` makes one"],
        )


def _check_place(store: Store) -> None:
    """Raise UsageError if the place holds something else than a catalogue. Nothing is written here:
    another publisher may have the lock.
    """
    if store.read(CATALOGUE) is not None:
        return
    strangers = any(not path.startswith(f"{OWN}/") for path, _ in store.below(""))
    # Another publisher may have begun the catalogue in the meantime.
    if strangers and store.read(CATALOGUE) is None:
        raise UsageError(
            f"{store.name} is not a catalogue: it holds other files and no {CATALOGUE}",
            hints=["name a new folder, or one that `stoker catalogue publish` has made"],
        )


def _begin(store: Store) -> None:
    """Make an empty catalogue unless there is one, so that a publisher that is killed while it
    uploads leaves a place that the next one recognizes.
    """
    if store.read(CATALOGUE) is None:
        with suppress(ConflictError):  # another publisher has just done the same
            store.write_expected(CATALOGUE, document.encoded(PublishedCatalogue()), None)


def add_wheels(
    store: Store, uploads: Collection[Upload], *, replace: bool, say: Say, sign: Sign | None = None
) -> tuple[PublishedWheel, ...]:
    """Add wheels; return those that were new. The same wheel again changes nothing, but ``replace``
    writes its file again, which may have been damaged.
    """
    added: dict[tuple[str, str], PublishedWheel] = {}

    def change(catalogue: PublishedCatalogue) -> PublishedCatalogue:
        there = {wheel.key: wheel.sha256 for wheel in catalogue.wheels}
        new = [one.wheel for one in uploads if there.get(one.wheel.key) != one.wheel.sha256]
        for wheel in new:
            if wheel.key in there and not replace:
                raise UsageError(
                    f"{wheel.variant} already has another {wheel.file}",
                    hints=[
                        "--replace publishes this one instead",
                        "--variant NAME publishes it beside",
                    ],
                )
        added.clear()
        added.update({wheel.key: wheel for wheel in new})
        return document.with_wheels(catalogue, new)

    def upload() -> None:
        for one in uploads:
            if replace or one.wheel.key in added:
                path = one.wheel.path
                store.write(f"{path}.metadata", one.metadata)
                if replace or not store.has(path, one.wheel.size_bytes):
                    say(f"uploading {one.wheel.file}")
                    store.upload(path, one.source)

    _check_place(store)
    with store.exclusive(say):
        _begin(store)
        _update(store, change, before=upload, sign=sign)
    return tuple(added.values())


def remove_wheels(
    store: Store, names: Collection[str], variant: str | None, *, say: Say, sign: Sign | None = None
) -> tuple[PublishedWheel, ...]:
    """Remove wheels from all pages. Their files stay until `stoker catalogue prune`, because
    downloads may be in progress.
    """
    gone: list[PublishedWheel] = []

    def change(catalogue: PublishedCatalogue) -> PublishedCatalogue:
        gone[:] = [wheel for name in names for wheel in _named(catalogue, name, variant)]
        return document.without_wheels(catalogue, {wheel.key for wheel in gone})

    check_is_catalogue(store)
    with store.exclusive(say):
        _update(store, change, sign=sign)
    return tuple(gone)


def _named(catalogue: PublishedCatalogue, name: str, variant: str | None) -> list[PublishedWheel]:
    """Return the wheels with a file name, a project, or a project and version as
    ``torch==2.9.1``.
    """
    project, _, version = name.partition("==")
    found = [
        wheel
        for wheel in catalogue.wheels
        if variant in (None, wheel.variant)
        and (
            wheel.file == name
            or (
                wheel.project == canonicalize_name(project)
                and version in ("", wheel.version, str(read_version(wheel.version).public))
            )
        )
    ]
    if not found:
        known = {*catalogue.projects, *(wheel.file for wheel in catalogue.wheels)}
        raise unknown("wheel", name, known, where=variant)
    return found


def remove_older(
    store: Store, *, keep: int | None, dry_run: bool, say: Say, sign: Sign | None = None
) -> Pruned:
    """Remove all but the newest ``keep`` versions of each project, then what nothing refers to."""
    gone: list[PublishedWheel] = []

    def change(catalogue: PublishedCatalogue) -> PublishedCatalogue:
        gone[:] = [] if keep is None else _older(catalogue, keep)
        return document.without_wheels(catalogue, {wheel.key for wheel in gone})

    check_is_catalogue(store)
    with store.exclusive(say):
        left = change(read_catalogue(store)[0]) if dry_run else _update(store, change, sign=sign)
        referred = {
            name for wheel in left.wheels for name in (wheel.path, f"{wheel.path}.metadata")
        }
        referred |= set(pages.index_pages(left, pages.groups_of(left.wheels)))
        referred.add(signature_path(document.encoded(left)))
        places = ("files/", f"{WHEEL_VARIANTS}/", f"{SIGNATURES}/")
        there = [row for place in places for row in store.abandoned(place)]
        unused = [row for row in there if row[0] not in referred]
        for path, _ in () if dry_run else unused:
            store.delete(path)
    return Pruned(
        wheels=tuple(gone),
        files=tuple(path for path, _ in unused),
        freed_bytes=sum(size for _, size in unused),
    )


def _older(catalogue: PublishedCatalogue, keep: int) -> Iterator[PublishedWheel]:
    """Return all but the newest versions of each project in each variant."""
    versions: dict[tuple[str, str], set[str]] = {}
    for wheel in catalogue.wheels:
        versions.setdefault((wheel.variant, wheel.project), set()).add(wheel.version)
    kept = {
        key: set(sorted(found, key=read_version, reverse=True)[:keep])
        for key, found in versions.items()
    }
    for wheel in catalogue.wheels:
        if wheel.version not in kept[wheel.variant, wheel.project]:
            yield wheel


def _update(
    store: Store,
    change: Change,
    *,
    before: Callable[[], None] = lambda: None,
    sign: Sign | None = None,
) -> PublishedCatalogue:
    """Apply a change and bring every page up to date with it, those of killed publishers too. A
    catalogue that is signed has to be signed again.
    """
    abandoned = [path for path, _ in store.abandoned(_MARKERS)]
    repair = frozenset(group for path in abandoned for group in _marked(store, path))
    for _ in range(_MOST_ATTEMPTS):
        current, version = read_catalogue(store)
        new = change(current)
        begins_signing = sign is not None and not current.serial
        if new == current and version is not None and not abandoned and not begins_signing:
            before()
            return current
        if sign:
            new = msgspec.structs.replace(new, serial=current.serial + 1)
        elif current.serial:
            raise UsageError(
                f"{store.name} is signed, so a change must be signed as well", hints=["--key FILE"]
            )
        groups = pages.changed_groups(current, new) | repair
        with _marker(store, groups):
            before()
            both = document.with_wheels(current, new.wheels)
            written = pages.index_pages(both, pages.changed_groups(current, both))
            _write(store, written)
            content = document.encoded(new)
            if sign:
                store.write(signature_path(content), sign(content))
            try:
                store.write_expected(CATALOGUE, content, version)
            except ConflictError:
                continue
            # Without turns, another publisher may have written an older page since.
            _settle(store, groups, written if store.takes_turns else {})
        for path in abandoned:
            store.delete(path)
        return new
    raise StokerError(f"other publishers change {store.name} all the time", hints=["try again"])


def _settle(
    store: Store, groups: Collection[WheelGroup], written: Mapping[str, bytes | None]
) -> None:
    """Write the pages as the catalogue now is; again if another publisher changed it meanwhile."""
    while True:
        catalogue, version = read_catalogue(store)
        wanted = pages.index_pages(catalogue, groups)
        _write(
            store, {path: page for path, page in wanted.items() if written.get(path, b"") != page}
        )
        store.write(PEOPLE, people_page(catalogue))
        latest = store.read(CATALOGUE)
        if latest is None or latest[1] == version:
            return
        written = {}


def _write(store: Store, content: Mapping[str, bytes | None]) -> None:
    for path, page in content.items():
        if page is None:
            store.delete(path)
        else:
            store.write(path, page)


@contextmanager
def _marker(store: Store, groups: Iterable[WheelGroup]) -> Iterator[None]:
    """Write a marker that is kept if anything fails, so that the next publisher repairs
    the pages.
    """
    path = f"{_MARKERS}{secrets.token_hex(8)}.json"
    store.write(path, msgspec.json.encode(sorted(groups)))
    yield
    store.delete(path)


def _marked(store: Store, path: str) -> tuple[WheelGroup, ...]:
    found = store.read(path)
    try:
        return msgspec.json.decode(found[0], type=prepared(tuple[WheelGroup, ...])) if found else ()
    except UNDECODABLE:
        return ()
