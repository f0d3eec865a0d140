"""Applies a plan: strips, changes and bundles libraries, and writes the new wheel."""

import hashlib
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path, PurePosixPath
from threading import Lock

import msgspec

from stoker.model.artifact import PACKAGE_MEMBER, PackageRecord
from stoker.model.errors import CommandError, MissingError, StorageError, UsageError
from stoker.outside import files, process
from stoker.outside.process import threads
from stoker.wheel.elf import Elf
from stoker.wheel.elf_edit import ElfEdit, make_patch
from stoker.wheel.engine import Content, Edit, Wheel, open_wheel, rewrite
from stoker.wheel.engine.zip_records import STORED
from stoker.wheel.metadata import edited_metadata, edited_wheel
from stoker.wheel.package.built_wheel import (
    LibraryChange,
    LibrarySource,
    Licence,
    Packaged,
    PackagePlan,
)
from stoker.wheel.package.search import FoundLibrary
from stoker.wheel.reader import InflatedReader, Reader, open_file

# -- stripping -------------------------------------------------------------------------------------
# Moves debug information out of a library into a separate file, which the library refers to.


_TOOLS = ("objcopy", "llvm-objcopy")
_STRIP_TIMEOUT_S = 600.0
DEBUG_SUFFIX = ".debug"


def find_tool() -> str:
    for name in _TOOLS:
        if tool := shutil.which(name):
            return tool
    raise MissingError(
        f"--strip needs {' or '.join(_TOOLS)}, and neither was found",
        hints=["run apt-get install binutils, or leave out --strip"],
    )


def split(library: Path, debug: Path, *, tool: str) -> None:
    """Strip a library in place; write the debug information to ``debug``."""
    stripped = library.with_name(f"{library.name}.stripped")
    try:
        process.check([tool, "--only-keep-debug", library, debug], timeout=_STRIP_TIMEOUT_S)
        process.check(
            [tool, "--strip-unneeded", f"--add-gnu-debuglink={debug}", library, stripped],
            timeout=_STRIP_TIMEOUT_S,
        )
    except CommandError as error:
        raise CommandError(
            f"{library.name} cannot be stripped: {error.message}",
            output=error.output,
            hints=["install llvm-objcopy: objcopy of binutils handles one architecture only"],
        ) from None
    stripped.replace(library)


# -- sources ---------------------------------------------------------------------------------------
# Reads files and members of wheels by their ``LibrarySource``: whole, at any offset, or edited.


class OpenSources:
    """Keeps wheels open while their contents are needed. Safe to use from several threads."""

    def __init__(self, stack: ExitStack):
        self._stack = stack
        self._lock = Lock()
        self._wheels: dict[str, Wheel] = {}

    def content(self, source: LibrarySource) -> Content:
        if source.member is None:
            return Content.of_file(Path(source.file))
        return self._wheel(source.file).content(source.member)

    def digest(self, source: LibrarySource) -> str:
        digest = hashlib.sha256()
        for chunk in self.content(source).chunks():
            digest.update(chunk)
        return digest.hexdigest()

    def edited(self, source: LibrarySource, edit: ElfEdit) -> Content:
        content = self.content(source)
        if edit == ElfEdit():
            return content
        with self._reader(source) as reader:
            patch = make_patch(Elf(reader), edit)
        return Content(size=patch.size, chunks=lambda: patch.applied(content.chunks()))

    def unpack(self, source: LibrarySource, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as stream:
                stream.writelines(self.content(source).chunks())
        except OSError as error:
            raise StorageError(f"cannot write {path}: {error.strerror}") from error

    @contextmanager
    def _reader(self, source: LibrarySource) -> Iterator[Reader]:
        with open_file(Path(source.file)) as file:
            if source.member is None:
                yield file
                return
            member = self._wheel(source.file).member(source.member)
            packed = file.part(start=member.data, size=member.compressed_size, member=member.name)
            if member.method == STORED:
                yield packed
            else:
                yield InflatedReader(packed, size=member.size, crc=member.crc)

    def _wheel(self, file: str) -> Wheel:
        with self._lock:
            if file not in self._wheels:
                self._wheels[file] = self._stack.enter_context(open_wheel(Path(file)))
            return self._wheels[file]


@contextmanager
def open_sources() -> Iterator[OpenSources]:
    with ExitStack() as stack:
        yield OpenSources(stack)


# -- licences --------------------------------------------------------------------------------------
# Finds the licence texts of bundled libraries: in their package, folder or system package.
#
# It does not check whether a licence allows redistribution.


_TEXT = re.compile(r"(licen[cs]e|copying|copyright|eula|notice)", re.IGNORECASE)
_HEIGHT = 4  # parent folders that may belong to the same package
_SHARED = {Path("/"), Path("/usr"), Path("/usr/local"), Path("/opt")}  # belong to no package
_DOCUMENTS = Path("/usr/share/doc")
_LICENCE_TIMEOUT_S = 60.0


def find_licences(found: Iterable[FoundLibrary]) -> tuple[tuple[Licence, ...], tuple[str, ...]]:
    """Return the texts, and a note for each library without one."""
    licences: dict[str, Licence] = {}
    notes = []
    for library in found:
        texts = list(_licences(library.source))
        licences |= {text.path: text for text in texts}
        if not texts:
            notes.append(f"no licence text was found for {library.name} ({library.source})")
    return tuple(licences[path] for path in sorted(licences)), tuple(notes)


def _licences(source: LibrarySource) -> Iterator[Licence]:
    path = Path(source.file)
    if source.member:
        yield from _of_wheel(path)
        return
    for texts in (_of_distribution(path), _of_folder(path), _of_system(path)):
        found = list(texts)
        yield from found
        if found:
            return


def _of_wheel(path: Path) -> Iterator[Licence]:
    with open_wheel(path) as wheel:
        owner = wheel.dist_info.removesuffix(".dist-info")
        for member in wheel.members:
            inside = member.startswith(f"{wheel.dist_info}/")
            if inside and _TEXT.match(PurePosixPath(member).name):
                yield _licence(owner, member, LibrarySource(file=str(path), member=member))


def _of_distribution(library: Path) -> Iterator[Licence]:
    """Search the distribution whose RECORD lists the library, in a parent folder."""
    for information in _informations(library):
        record = information / "RECORD"
        names = record.read_text(errors="replace") if record.is_file() else ""
        if re.search(rf"(^|/){re.escape(library.name)},", names, re.MULTILINE):
            owner = information.name.removesuffix(".dist-info")
            for path in sorted(information.rglob("*")):
                if path.is_file() and _TEXT.match(path.name):
                    yield _licence(owner, path.name, LibrarySource(file=str(path)))
            return


def _informations(library: Path) -> Iterator[Path]:
    for folder in _above(library):
        yield from sorted(folder.glob("*.dist-info"))
        yield from sorted(folder.glob("dist-info/*.dist-info"))  # in a toolchain of stoker


def _of_folder(library: Path) -> Iterator[Licence]:
    """Search the nearest parent folder that has licence texts."""
    for folder in _above(library):
        texts = [path for path in sorted(folder.iterdir()) if _TEXT.match(path.name)]
        yield from (
            _licence(folder.name, p.name, LibrarySource(file=str(p))) for p in texts if p.is_file()
        )
        if texts:
            return


def _above(library: Path) -> list[Path]:
    return [folder for folder in library.parents[:_HEIGHT] if folder not in _SHARED]


def _of_system(library: Path) -> Iterator[Licence]:
    """Search the system package that dpkg or rpm names."""
    if package := _first_word(["dpkg-query", "--search", library]):
        text = _DOCUMENTS / package.partition(":")[0] / "copyright"
        if text.is_file():
            yield _licence(text.parent.name, text.name, LibrarySource(file=str(text.resolve())))
    for line in _answer(["rpm", "--query", "--licensefiles", "--file", library]).splitlines():
        if Path(line).is_file():
            yield _licence(Path(line).parent.name, Path(line).name, LibrarySource(file=line))


def _first_word(command: list[str | Path]) -> str:
    return next(iter(_answer(command).split()), "")


def _answer(command: list[str | Path]) -> str:
    try:
        outcome = process.run(command, timeout=_LICENCE_TIMEOUT_S)
    except MissingError:
        return ""
    return outcome.stdout if outcome.ok else ""


def _licence(owner: str, name: str, source: LibrarySource) -> Licence:
    return Licence(path=f"{owner}/{PurePosixPath(name).name}", source=source)


# -- applying --------------------------------------------------------------------------------------
# Applies a plan in one pass: libraries are edited while they are streamed into the new wheel.


_MODE = 0o755
_WORK = ".work"


def apply(
    plan: PackagePlan,
    wheel: Wheel,
    into: Path,
    *,
    force: bool = False,
    notes: Mapping[str, bytes] = {},
) -> Packaged:
    """Write the packaged wheel to the folder ``into``, where it appears when it is complete.
    ``notes`` are files that are added to its dist-info.
    """
    debug = into / f"{plan.file_name.removesuffix('.whl')}{DEBUG_SUFFIX}"
    stripped = [change.path for change in plan.changed if change.strip]
    _check_free(wheel.path, into / plan.file_name, debug if stripped else None, force=force)
    with open_sources() as sources:
        if not stripped:
            return _packaged(_write(plan, wheel, sources, {}, notes, into))
        if debug.exists():
            files.remove_whole(debug)
        with files.folder_made_whole(debug) as aside:
            copies = _strip(stripped, wheel, sources, aside)
            path = _write(plan, wheel, sources, copies, notes, into)
            shutil.rmtree(aside / _WORK)
        return _packaged(path, debug)


def _check_free(wheel: Path, target: Path, debug: Path | None, *, force: bool) -> None:
    if target.exists() and target.samefile(wheel):
        raise UsageError(
            f"{target} is the wheel to package, and it would be overwritten",
            hints=["choose another folder with --out, or another version with --label"],
        )
    there = [path for path in (target, debug) if path is not None and path.exists()]
    if there and not force:
        raise UsageError(f"{there[0]} already exists", hints=["replace it with --force"])


def _packaged(path: Path, debug: Path | None = None) -> Packaged:
    taken_out = sorted(debug.rglob(f"*{DEBUG_SUFFIX}")) if debug else []
    return Packaged(
        path=str(path),
        size_bytes=path.stat().st_size,
        debug_files=tuple(str(file) for file in taken_out if file.is_file()),
    )


def _strip(
    members: Sequence[str], wheel: Wheel, sources: OpenSources, aside: Path
) -> dict[str, LibrarySource]:
    """Return stripped copies of members by name; the debug information stays in ``aside``."""
    tool = find_tool()

    def strip(member: str) -> LibrarySource:
        library = aside / _WORK / member
        sources.unpack(LibrarySource(file=str(wheel.path), member=member), library)
        debug = aside / f"{member}{DEBUG_SUFFIX}"
        debug.parent.mkdir(parents=True, exist_ok=True)
        split(library, debug, tool=tool)
        return LibrarySource(file=str(library))

    with ThreadPoolExecutor(threads()) as pool:
        return dict(zip(members, pool.map(strip, members), strict=True))


def _write(
    plan: PackagePlan,
    wheel: Wheel,
    sources: OpenSources,
    stripped: Mapping[str, LibrarySource],
    notes: Mapping[str, bytes],
    into: Path,
) -> Path:
    licences = f"{wheel.dist_info}/licenses"
    contents = _libraries(plan, wheel, sources, stripped)
    contents |= {f"{licences}/{text.path}": sources.content(text.source) for text in plan.licences}
    contents |= _metadata(plan, wheel)
    contents |= {f"{wheel.dist_info}/{name}": Content.of_bytes(n) for name, n in notes.items()}
    return rewrite(wheel, Edit(contents=contents, compress=True), into)


def _libraries(
    plan: PackagePlan, wheel: Wheel, sources: OpenSources, stripped: Mapping[str, LibrarySource]
) -> dict[str, Content]:
    def content(change: LibraryChange) -> Content:
        own = LibrarySource(file=str(wheel.path), member=change.path)
        source = change.source or stripped.get(change.path, own)
        edit = ElfEdit(
            rpath=change.rpath,
            as_runpath=change.as_runpath,
            needed=change.needed,
            soname=change.soname,
        )
        edited = sources.edited(source, edit)
        return msgspec.structs.replace(edited, mode=_MODE if change.source else None)

    changes = (*plan.changed, *plan.added)
    with ThreadPoolExecutor(threads()) as pool:
        made = pool.map(content, changes)
        return {change.path: each for change, each in zip(changes, made, strict=True)}


def _metadata(plan: PackagePlan, wheel: Wheel) -> dict[str, Content]:
    metadata, kind = f"{wheel.dist_info}/METADATA", f"{wheel.dist_info}/WHEEL"
    edited = edited_metadata(
        wheel.read(metadata),
        version=plan.version,
        drop=plan.requires_dropped,
        requires=plan.requires_added,
        licences=[text.path for text in plan.licences],
    )
    texts = {metadata: edited, kind: edited_wheel(wheel.read(kind), plan.tags)}
    if plan.excluded:
        record = PackageRecord(excluded=plan.excluded)
        texts[f"{wheel.dist_info}/{PACKAGE_MEMBER}"] = msgspec.json.encode(record) + b"\n"
    return {name: Content.of_bytes(text) for name, text in texts.items()}
