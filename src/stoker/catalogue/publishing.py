"""Publishes wheels to a catalogue and removes them: all checks first, then one change."""

import hashlib
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import ThreadingHTTPServer
from pathlib import Path

import msgspec
from packaging.requirements import InvalidRequirement, Requirement

from stoker.catalogue import index
from stoker.catalogue.entry import FileIdentity, RecordedOrigin, make_entry, variant_name
from stoker.catalogue.index import Pruned, Upload
from stoker.catalogue.serving import make_server
from stoker.catalogue.signing import signer
from stoker.catalogue.store import FolderStore, open_store
from stoker.catalogue.values import WHEEL_VARIANTS, PublishedCatalogue, PublishedWheel
from stoker.catalogue.wheel_variants import (
    NAMESPACES,
    VARIANT_MEMBER,
    label_of,
    properties_of,
    variant_json,
)
from stoker.model.distribution import read_version
from stoker.model.errors import ArtifactError, UsageError, unknown
from stoker.model.finding import Severity
from stoker.model.value import Value
from stoker.outside import folders
from stoker.outside.files import folder_of_process, sha256_of
from stoker.outside.long_work import Say, stage
from stoker.wheel.slim.files import LICENCE, PRIVATE, is_nvidia_distribution
from stoker.wheel.verify.tested import Verification, WheelUnderTest
from stoker.wheel.verify.verifying import read_and_verify
from stoker.wheel.zip import Content, Edit, open_wheel, rewrite
from stoker.wheel.zip.metadata import Headers

_MOST_HINTS = 3
_ASIDE = ".stoker-publish-"


class PublishOptions(Value, frozen=True, kw_only=True):
    """``force``: also what `verify` rejects. ``replace``: also in place of another wheel.

    ``wheel_variants``: also as wheel variants of the draft standards, in an index of their own.
    ``torch`` and ``source``: what the wheel was built with and from, if that is known.
    """

    variant: str | None = None
    torch: str | None = None
    source: str | None = None
    key: Path | None = None  # that signs the catalogue
    wheel_variants: bool = False
    variant_providers: tuple[str, ...] = ()  # NAMESPACE=REQUIREMENT
    force: bool = False
    replace: bool = False
    dry_run: bool = False


class PublishReport(Value, frozen=True, kw_only=True):
    """``added`` are new; the others were there already, byte for byte."""

    place: str
    wheels: tuple[PublishedWheel, ...]
    added: tuple[PublishedWheel, ...]
    notes: tuple[str, ...] = ()


def publish(
    words: Sequence[str], place: str, options: PublishOptions, *, say: Say
) -> PublishReport:
    """Check every wheel, then publish all of them."""
    store = open_store(place)
    wished = variant_name(options.variant) if options.variant else None
    providers = read_providers(options.variant_providers)
    uploads, notes = [], []
    for path in _files(words):
        say(f"verifying {path.name}")
        with stage(f"verifying {path.name}"):
            upload, verification = _prepare(path, wished, options)
        if not verification.ok:
            _check_forced(path, verification, force=options.force)
            notes.append(f"{path.name} is published although `stoker verify` finds errors in it")
        uploads.append(upload)
    _check_apart(uploads)
    with folder_of_process(folders.cache() / "publish", _ASIDE) as work:
        if options.wheel_variants:
            uploads += _wheel_variants(uploads, work, notes, providers)
        wheels = tuple(upload.wheel for upload in uploads)
        added = wheels
        if not options.dry_run:
            sign = signer(options.key) if options.key else None
            added = index.add_wheels(store, uploads, replace=options.replace, say=say, sign=sign)
    return PublishReport(place=place, wheels=wheels, added=added, notes=tuple(notes))


def read_providers(words: Sequence[str]) -> dict[str, str]:
    """Return the requirements of ``NAMESPACE=REQUIREMENT`` words."""
    found: dict[str, str] = {}
    for word in words:
        namespace, _, requirement = word.partition("=")
        if namespace not in NAMESPACES:
            raise unknown("namespace", namespace, NAMESPACES, where="--variant-provider")
        try:
            found[namespace] = str(Requirement(requirement))
        except InvalidRequirement as error:
            hints = ["for example: --variant-provider 'amd=amd-variant-provider @ https://...'"]
            raise UsageError(f"'{requirement}' is not a requirement", hints=hints) from error
    return found


def _wheel_variants(
    uploads: Sequence[Upload], work: Path, notes: list[str], providers: dict[str, str]
) -> list[Upload]:
    """Return the wheels again, as copies in ``work`` that have a variant label in place of the
    version label; add a note for each that cannot have one.
    """
    made: list[Upload] = []
    for upload in uploads:
        properties = properties_of(upload.wheel, providers)
        if properties is None:
            notes.append(f"{upload.wheel.file} has no wheel variant: see docs/how-to/publish.md")
        else:
            used = {line.partition(" ")[0] for line in properties}
            own = {name: line for name, line in providers.items() if name in used}
            made.append(_wheel_variant(upload, properties, work, own))
    return made


def _wheel_variant(
    upload: Upload, properties: tuple[str, ...], work: Path, providers: dict[str, str]
) -> Upload:
    wheel = upload.wheel
    label = label_of(wheel.variant, properties)
    version = str(read_version(wheel.version).public)
    headers = Headers(upload.metadata)
    headers.replace("Version", [version])
    metadata = bytes(headers)
    with open_wheel(upload.source) as opened:
        contents = {
            f"{opened.dist_info}/METADATA": Content.of_bytes(metadata),
            f"{opened.dist_info}/{VARIANT_MEMBER}": Content.of_bytes(
                variant_json([(label, properties)], providers)
            ),
        }
        written = rewrite(opened, Edit(contents=contents), work)
    path = written.rename(written.with_name(f"{written.stem}-{label}.whl"))
    entry = msgspec.structs.replace(
        wheel,
        file=path.name,
        sha256=sha256_of(path),
        size_bytes=path.stat().st_size,
        metadata_sha256=hashlib.sha256(metadata).hexdigest(),
        version=version,
        variant=WHEEL_VARIANTS,
        properties=properties,
        providers=tuple(sorted(providers.items())),
    )
    return Upload(wheel=entry, source=path, metadata=metadata)


def unpublish(
    place: str, names: Collection[str], variant: str | None, *, key: Path | None, say: Say
) -> tuple[PublishedWheel, ...]:
    sign = signer(key) if key else None
    return index.remove_wheels(open_store(place), names, variant, say=say, sign=sign)


def prune(place: str, *, keep: int | None, dry_run: bool, key: Path | None, say: Say) -> Pruned:
    sign = signer(key) if key else None
    store = open_store(place)
    return index.remove_older(store, keep=keep, dry_run=dry_run, say=say, sign=sign)


@contextmanager
def serving(
    place: str, *, host: str, port: int, log: Say
) -> Iterator[tuple[ThreadingHTTPServer, str, PublishedCatalogue]]:
    """Yield a listening server of a catalogue, its address and what it has now."""
    store = open_store(place)
    index.check_is_catalogue(store)
    catalogue, _ = index.read_catalogue(store)
    if not isinstance(store, FolderStore):
        raise UsageError(
            f"{place} has a server of its own", hints=["name the folder of a catalogue"]
        )
    with make_server(store.root, host=host, port=port, log=log) as server:
        name = f"[{host}]" if ":" in host else host
        yield server, f"http://{name}:{server.server_address[1]}/", catalogue


def _files(words: Sequence[str]) -> list[Path]:
    """Return the named wheels, and the wheels in named folders."""
    found: list[Path] = []
    for word in words:
        path = Path(word)
        if path.is_dir():
            inside = sorted(path.glob("*.whl"))
            if not inside:
                raise UsageError(f"there is no wheel in {path}")
            found += inside
        elif path.exists():
            found.append(path)
        else:
            raise UsageError(f"there is no file or folder at '{word}'")
    return list(dict.fromkeys(found))


def _prepare(
    path: Path, variant: str | None, options: PublishOptions
) -> tuple[Upload, Verification]:
    """Read and check one wheel. What may not be passed on is refused whatever is asked for."""
    tested, verification = read_and_verify(path)
    with open_wheel(path) as wheel:
        metadata = wheel.read(f"{wheel.dist_info}/METADATA")
    _check_licence(path, tested, Headers(metadata))
    status = path.stat()
    with stage(f"hashing {path.name}"):
        digest = sha256_of(path)
    identity = FileIdentity(
        file=path.name,
        sha256=digest,
        size=status.st_size,
        metadata_sha256=hashlib.sha256(metadata).hexdigest(),
        built=_moment(datetime.fromtimestamp(status.st_mtime, UTC)),
    )
    recorded = RecordedOrigin(
        plan=tested.plan.variant if tested.plan else None,
        slim=tested.slim.record if tested.slim else None,
        variant=variant,
        torch=options.torch,
        source=options.source,
        verified=verification.ok,
    )
    entry = msgspec.structs.replace(
        make_entry(identity, tested.facts, recorded), published=_moment(datetime.now(UTC))
    )
    return Upload(wheel=entry, source=path, metadata=metadata), verification


def _moment(time: datetime) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ")


def _check_licence(path: Path, tested: WheelUnderTest, headers: Headers) -> None:
    if tested.slim and tested.slim.problem:
        raise ArtifactError(
            f"its slim record cannot be read: {tested.slim.problem}", file=path.name
        )
    record = tested.slim.record if tested.slim else None
    changed = record and (record.private or is_nvidia_distribution(tested.metadata.name))
    if changed or PRIVATE in headers.values("Classifier"):
        raise UsageError(
            f"{path.name} holds changed libraries of NVIDIA: {LICENCE}",
            hints=[
                "publish a wheel that was slimmed without --nvidia",
                "`stoker install torch --slim` slims NVIDIA's packages where they are used",
            ],
        )


def _check_forced(path: Path, verification: Verification, *, force: bool) -> None:
    if force:
        return
    errors = [found for found in verification.findings if found.severity is Severity.ERROR]
    lines = [f"{found.name}: {found.title}" for found in errors[:_MOST_HINTS]]
    raise UsageError(
        f"{path.name} does not pass `stoker verify`",
        hints=[*lines, "--force publishes it all the same, marked as unverified"],
    )


def _check_apart(uploads: Sequence[Upload]) -> None:
    """Refuse two wheels of one name and one variant: an installer could not distinguish them."""
    seen: dict[tuple[str, str], Upload] = {}
    for upload in uploads:
        other = seen.setdefault(upload.wheel.key, upload)
        if other.wheel.sha256 != upload.wheel.sha256:
            raise UsageError(
                f"{other.source} and {upload.source} have one name and differ",
                hints=["publish them separately, each with its own --variant"],
            )
