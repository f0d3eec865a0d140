"""Finds the licence texts of bundled libraries: in their package, folder or system package.

It does not check whether a licence allows redistribution.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from stoker.model.errors import MissingError
from stoker.model.value import Value
from stoker.outside import process
from stoker.wheel.package.places import FoundLibrary
from stoker.wheel.package.sources import LibrarySource
from stoker.wheel.zip import open_wheel

_TEXT = re.compile(r"(licen[cs]e|copying|copyright|eula|notice)", re.IGNORECASE)
_HEIGHT = 4  # parent folders that may belong to the same package
_SHARED = {Path("/"), Path("/usr"), Path("/usr/local"), Path("/opt")}  # belong to no package
_DOCUMENTS = Path("/usr/share/doc")
_LICENCE_TIMEOUT_S = 60.0


class Licence(Value, frozen=True, kw_only=True):
    """A licence text of a bundled library. ``path`` is relative to dist-info/licenses."""

    path: str
    source: LibrarySource


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
        with open_wheel(path) as wheel:
            owner = wheel.dist_info.removesuffix(".dist-info")
            for member in wheel.members:
                inside = member.startswith(f"{wheel.dist_info}/")
                if inside and _TEXT.match(PurePosixPath(member).name):
                    yield _licence(owner, member, LibrarySource(file=str(path), member=member))
        return
    for texts in (_of_distribution(path), _of_folder(path), _of_system(path)):
        found = list(texts)
        yield from found
        if found:
            return


def _of_distribution(library: Path) -> Iterator[Licence]:
    """Search the distribution whose RECORD lists the library, in a parent folder."""
    kinds = ("*.dist-info", "dist-info/*.dist-info")  # the latter in a toolchain of stoker
    for information in (
        found for folder in _above(library) for kind in kinds for found in sorted(folder.glob(kind))
    ):
        record = information / "RECORD"
        names = record.read_text(errors="replace") if record.is_file() else ""
        if re.search(rf"(^|/){re.escape(library.name)},", names, re.MULTILINE):
            owner = information.name.removesuffix(".dist-info")
            for path in sorted(information.rglob("*")):
                if path.is_file() and _TEXT.match(path.name):
                    yield _licence(owner, path.name, LibrarySource(file=str(path)))
            return


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
    if package := next(iter(_answer(["dpkg-query", "--search", library]).split()), ""):
        text = _DOCUMENTS / package.partition(":")[0] / "copyright"
        if text.is_file():
            yield _licence(text.parent.name, text.name, LibrarySource(file=str(text.resolve())))
    for line in _answer(["rpm", "--query", "--licensefiles", "--file", library]).splitlines():
        if Path(line).is_file():
            yield _licence(Path(line).parent.name, Path(line).name, LibrarySource(file=line))


def _answer(command: list[str | Path]) -> str:
    try:
        outcome = process.run(command, timeout=_LICENCE_TIMEOUT_S)
    except MissingError:
        return ""
    return outcome.stdout if outcome.ok else ""


def _licence(owner: str, name: str, source: LibrarySource) -> Licence:
    return Licence(path=f"{owner}/{PurePosixPath(name).name}", source=source)
