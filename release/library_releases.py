"""Reads the names of releases of libraries: from tags of clones, wheels, and unpacked archives."""

import lzma
import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from posixpath import dirname, join, normpath
from typing import NamedTuple

import msgspec
from cxx_names import declared_names, words_in
from msgspec.structs import replace
from packaging.utils import parse_wheel_filename
from packaging.version import Version
from python_names import python_names

from stoker.model.errors import StokerError
from stoker.model.value import Value, version_numbers
from stoker.outside.package_index import File, PackageIndex, files_of, read_index
from stoker.wheel.inspect.facts import open_member
from stoker.wheel.zip.directory import ZipLimits, member_of, read_listed
from stoker.wheel.zip.remote import open_remote

MACHINES = ("none-any.whl", "manylinux2014_x86_64.whl", "x86_64.whl")
DEFAULT_PYTHON = (3, 12)  # for stubs that depend on it
_GUARD = re.compile(r"_(?:H|HPP|CUH|INC|INCLUDED|GUARD|HEADER_FILE)_{0,3}$")
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]([\w./+-]+)", re.MULTILINE)
_REQUIRED = re.compile(r"^Requires-Dist: ([\w-]+)==([\d.]*\d)", re.MULTILINE)


class Source(Value, frozen=True, kw_only=True):
    """A library of library_names.toml."""

    name: str
    begins: tuple[str, ...]  # how names in the table begin
    shown: tuple[str, ...] = ()  # what shows in a log that the library is there, beside its names
    git: tuple[str, ...] = ()  # repositories; all have the same versions
    tags: str = ""  # a pattern with the group of the version
    unpacked: bool = False  # each release is a folder
    package: str = ""  # of the package index
    toolkit: bool = False  # the package only requires others, which have the headers
    least: str = ""  # the oldest release
    parts: int = 2  # numbers of a version that a release is told by
    headers: str = ""  # a pattern of paths; its group is what is included
    modules: str = ""  # a pattern of paths below the root of a wheel
    wheels: dict[str, str] = {}  # versions of the package with the stubs of each Python
    namespaces: dict[str, str] = {}
    leave_out: str = "$^"  # names
    pip: str = ""  # the requirement that pins it
    plain: bool = False  # any word may be a name of it
    numbered: str = ""  # a pattern of other numbers of a release; its group is the number here


class _Header(NamedTuple):
    names: frozenset[str]
    included: frozenset[str]
    words: str


class ReadRelease(Value, frozen=True, kw_only=True):
    """The names of one release, the headers that declare them, which includes which, and the words
    of each.
    """

    version: str
    released: str  # year and month
    names: dict[str, tuple[str, ...]]
    includes: dict[str, tuple[str, ...]] = {}
    words: dict[str, str] = {}

    def has_word(self, word: str, headers: Iterable[str]) -> bool:
        """Return whether any of some headers has a word in its code."""
        return any(f" {word} " in self.words.get(header, "") for header in headers)


def read_releases(
    source: Source, folder: Path, clones: Path | None, unpacked: Path | None
) -> Iterator[ReadRelease]:
    """Read the releases that have no file in a folder yet, and leave one for each."""
    if source.git and clones:
        yield from _of_git(source, clones, folder)
    elif source.unpacked and unpacked:
        yield from _of_folders(source, unpacked / source.name.replace(" ", "-"), folder)
    elif source.package:
        yield from _of_index(source, read_index(), folder)


def kept_releases(source: Source, folder: Path) -> list[ReadRelease]:
    """Return the releases that were read, the oldest first."""
    found = [
        msgspec.json.decode(lzma.decompress(path.read_bytes()), type=ReadRelease)
        for path in (folder / source.name.replace(" ", "-")).glob("*.json.xz")
    ]
    return sorted(found, key=lambda one: version_numbers(one.version))


def _file_of(folder: Path, source: Source, version: str) -> Path:
    return folder / source.name.replace(" ", "-") / f"{version}.json.xz"


def _keep(folder: Path, source: Source, release: ReadRelease) -> ReadRelease:
    path = _file_of(folder, source, release.version)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(msgspec.json.encode(release, order="sorted"), preset=1))
    return release


def _first_of_each(versions: Iterable[str], source: Source) -> Iterator[tuple[str, str]]:
    """Yield each release, as its first numbers, with its oldest version."""
    oldest: dict[tuple[int, ...], str] = {}
    for version in sorted(versions, key=version_numbers):
        numbers = version_numbers(version)
        if numbers >= version_numbers(source.least or "0"):
            oldest.setdefault((*numbers, 0, 0)[: source.parts], version)
    for numbers, version in sorted(oldest.items()):
        yield ".".join(map(str, numbers)), version


def _of_git(source: Source, clones: Path, folder: Path) -> Iterator[ReadRelease]:
    """Yield the releases of which any repository has a tag; one without it counts with the tag
    before that.
    """
    tags = {clone: _tags(source, clone) for clone in _clones(source, clones)}
    known: dict[str, _Header] = {}
    for release, version in _first_of_each({one for of in tags.values() for one in of}, source):
        if _file_of(folder, source, release).exists():
            continue
        taken = {clone: _tag_of(version, of) for clone, of in tags.items()}
        files = (
            file
            for clone, tag in taken.items()
            for file in (_git_files(source, clone, tag) if tag else ())
        )
        read = _read_headers(source, files, known)
        dated = next(clone for clone, of in tags.items() if version in of)
        month = _git(dated, "log", "-1", "--format=%cs", taken[dated]).decode()[:7]
        yield _keep(folder, source, replace(read, version=release, released=month))


def _clones(source: Source, clones: Path) -> Iterator[Path]:
    for repository in source.git:
        clone = clones / repository.replace("/", "+")
        yield clone / "repo" if (clone / "repo").is_dir() else clone


def _tags(source: Source, clone: Path) -> dict[str, str]:
    """Return the tags of releases by version."""
    return {
        found[1].replace("_", ".").replace("-", "."): tag
        for tag in _git(clone, "tag").decode().split()
        if (found := re.fullmatch(source.tags, tag))
    }


def _tag_of(version: str, tags: Mapping[str, str]) -> str:
    before = [one for one in tags if version_numbers(one) <= version_numbers(version)]
    return tags[max(before, key=version_numbers)] if before else ""


def _git(clone: Path, *words: str, given: bytes = b"") -> bytes:
    return subprocess.run(
        ["git", "-C", clone, *words], input=given, capture_output=True, check=True
    ).stdout


def _git_files(source: Source, clone: Path, tag: str) -> Iterator[tuple[str, str, bytes]]:
    """Yield the included path, the digest and the content of each header of a tag."""
    wanted: list[tuple[str, str]] = []
    for line in _git(clone, "ls-tree", "-r", tag).decode(errors="replace").splitlines():
        described, _, path = line.partition("\t")
        if found := re.fullmatch(source.headers, path):
            wanted.append((next(filter(None, found.groups())), described.split()[2]))
    content = _git(clone, "cat-file", "--batch", given="\n".join(one for _, one in wanted).encode())
    at = 0
    for path, digest in wanted:
        end = content.index(b"\n", at)
        kind = content[at:end].split()
        if kind[1] == b"missing":  # a partial clone
            at = end + 1
            continue
        length = int(kind[2])
        yield path, digest, content[end + 1 : end + 1 + length]
        at = end + length + 2


def _read_headers(
    source: Source, files: Iterable[tuple[str, str, bytes]], known: dict[str, _Header]
) -> ReadRelease:
    """Return the names of headers, and the headers themselves, with those that declare them; and
    what the headers include. ``known`` is by digest.
    """
    found: dict[str, list[str]] = {}
    included: dict[str, frozenset[str]] = {}
    words_of: dict[str, str] = {}
    for path, digest, content in files:
        if digest not in known:
            text = content.decode(errors="replace")
            names = declared_names(text, source.namespaces)
            kept = frozenset(name for name in names if _is_kept(name, source))
            words = f" {' '.join(sorted(words_in(text)))} "
            known[digest] = _Header(kept, frozenset(_INCLUDE.findall(text)), words)
        found.setdefault(path, [])
        included[path] = known[digest].included
        words_of[path] = known[digest].words
        for name in known[digest].names:
            found.setdefault(name, []).append(path)
    includes = {
        path: tuple(sorted(one for one in _resolved(path, names) if one in included))
        for path, names in included.items()
    }
    declared = {name: tuple(sorted(headers)) for name, headers in found.items()}
    return ReadRelease(version="", released="", names=declared, includes=includes, words=words_of)


def _resolved(header: str, included: Iterable[str]) -> Iterator[str]:
    """Yield what a header may mean: a header below the root, or beside it."""
    for name in included:
        yield name
        yield normpath(join(dirname(header), name))


def _is_kept(name: str, source: Source) -> bool:
    space, _, own = name.rpartition("::")
    is_use = space and own.startswith(source.begins)  # of a macro, as in a class
    is_other = (
        is_use
        or re.search(r"[a-z]_$", own)
        or _GUARD.search(name)
        or re.search(source.leave_out, name)
    )
    return name.startswith(source.begins) and not is_other


def _of_index(source: Source, index: PackageIndex, folder: Path) -> Iterator[ReadRelease]:
    wheels: dict[str, File] = {}
    for file in files_of(source.package, index):
        version = _wheel_version(file)
        if version and not version.is_prerelease and not version.local:
            kept = wheels.get(version.public)
            if kept is None or _preference(file) < _preference(kept):
                wheels[version.public] = file
    known: dict[str, _Header] = {}
    for release, number in source.wheels.items() or _first_of_each(wheels, source):
        if _file_of(folder, source, release).exists():
            continue
        wheel = wheels[number]
        month = "" if source.wheels else wheel.uploaded[:7]
        try:
            files = _files_of(source, wheel, index, folder, version_numbers(release)[:2])
        except StokerError as error:
            print(f"{wheel.name}: {error}", flush=True)
            continue
        python = version_numbers(release)[:2] if source.wheels else DEFAULT_PYTHON
        read = _names_in(source, files, python, known)
        yield _keep(folder, source, replace(read, version=release, released=month))


def _files_of(
    source: Source, wheel: File, index: PackageIndex, folder: Path, release: tuple[int, ...]
) -> dict[str, bytes]:
    """Return the headers and modules of a release by their paths: those of a wheel, of all wheels
    that it requires, or the stubs for one Python that are in it.
    """
    if source.toolkit:
        return dict(_toolkit_files(source, wheel, index, folder))
    files = dict(_members(source, wheel, index, folder))
    return _stubs_of(files, release) if source.wheels else files


def _wheel_version(file: File) -> Version | None:
    try:
        return parse_wheel_filename(file.name)[1]
    except ValueError:
        return None


def _preference(file: File) -> tuple[int, str]:
    places = [at for at, end in enumerate(MACHINES) if file.name.endswith(end)]
    return (places[0] if places else len(MACHINES), file.name)


def _members(
    source: Source, wheel: File, index: PackageIndex, folder: Path
) -> Iterator[tuple[str, bytes]]:
    """Yield the headers and modules of a wheel that the library has, by their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    with open_remote(wheel.url, index.web, folder, name=wheel.name) as whole:
        listed = read_listed(whole, ZipLimits())
        for name, entry in sorted(listed.items(), key=lambda one: one[1].offset):
            if any(one and re.fullmatch(one, name) for one in (source.headers, source.modules)):
                reader = open_member(whole, member_of(whole, entry))
                yield name, b"".join(reader.chunks(0, reader.size))


def _names_in(
    source: Source,
    files: Mapping[str, bytes],
    python: tuple[int, ...],
    known: dict[str, _Header],
) -> ReadRelease:
    headers = [
        (next(filter(None, found.groups())), str(hash(content)), content)
        for path, content in files.items()
        if source.headers and (found := re.fullmatch(source.headers, path))
    ]
    read = _read_headers(source, headers, known)
    if source.modules:
        is_module = re.compile(r".*\.pyi" if source.wheels else source.modules).fullmatch
        modules = {path: one for path, one in files.items() if is_module(path)}
        for name in python_names(modules, python):
            if _is_kept(name, source):
                read.names.setdefault(name, ())
    return read


def _toolkit_files(
    source: Source, wheel: File, index: PackageIndex, folder: Path
) -> Iterator[tuple[str, bytes]]:
    """Yield the files of all packages that a release of a toolkit consists of."""
    described = Source(name="", begins=(), headers=r".*\.dist-info/METADATA()")
    metadata = next(content for _, content in _members(described, wheel, index, folder))
    for package, version in sorted(set(_REQUIRED.findall(metadata.decode()))):
        files = [one for one in files_of(package, index) if _wheel_version(one) == Version(version)]
        if files:
            yield from _members(source, min(files, key=_preference), index, folder)


def _stubs_of(files: Mapping[str, bytes], python: tuple[int, ...]) -> dict[str, bytes]:
    """Return the stubs of the standard library of one Python, by the list of those modules that
    came or went, without the folder that they are in.
    """
    listed = next(content for path, content in files.items() if path.endswith("stdlib/VERSIONS"))
    spans = re.findall(r"^([\w.]+): *(3\.\d+)-(3\.\d+)?", listed.decode(), re.MULTILINE)
    absent = {
        module
        for module, first, last in spans
        if python < version_numbers(first) or (last and python > version_numbers(last))
    }
    plain = {path.partition("stdlib/")[2]: content for path, content in files.items()}
    modules = {path: path.rpartition(".")[0].replace("/", ".") for path in plain}
    return {
        path: content
        for path, content in plain.items()
        if not any(f"{modules[path]}.".startswith(f"{one}.") for one in absent)
    }


def _of_folders(source: Source, unpacked: Path, folder: Path) -> Iterator[ReadRelease]:
    """Yield the releases of which each is a folder, called by its version."""
    known: dict[str, _Header] = {}
    for root in sorted(unpacked.iterdir()):
        if _file_of(folder, source, root.name).exists():
            continue
        paths = {str(path.relative_to(root)): path for path in sorted(root.rglob("*"))}
        files = (
            (next(filter(None, found.groups())), sha256(content).hexdigest(), content)
            for path, found in ((path, re.fullmatch(source.headers, path)) for path in paths)
            if found and (content := paths[path].read_bytes()) is not None
        )
        read = _read_headers(source, files, known)
        yield _keep(folder, source, replace(read, version=root.name))
