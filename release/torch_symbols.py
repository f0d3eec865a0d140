"""Makes the table of the symbols that PyTorch's official wheels export.

    python release/torch_symbols.py read FOLDER [RELEASE|WHEEL ...]
    python release/torch_symbols.py table FOLDER

`read` asks the package index of pip for the wheels of each release (default: all that the table
covers), reads PyTorch's libraries in them by range requests, and leaves a file in FOLDER for each
wheel. What is there already is not read again. Wheels that no index lists can be given as files.
`table` writes src/stoker/knowledge/torch_symbols.xz from all files in FOLDER.
"""

import lzma
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from packaging.utils import parse_wheel_filename

from stoker.knowledge.torch_symbols import OLDEST, TorchBuild, pack_symbols
from stoker.model.artifact import Symbols
from stoker.model.distribution import read_version
from stoker.model.errors import StokerError
from stoker.model.value import Value
from stoker.outside.package_index import File, PackageIndex, files_of, read_index
from stoker.wheel.elf.elf import Elf
from stoker.wheel.elf.tables import dynamic_symbols
from stoker.wheel.inspect.facts import open_member
from stoker.wheel.inspect.torch_builds import described_build, is_own_library
from stoker.wheel.reader import Reader, open_file
from stoker.wheel.zip.directory import ZipLimits, member_of, read_listed
from stoker.wheel.zip.remote import open_remote

TABLE = Path(__file__).parents[1] / "src/stoker/knowledge/torch_symbols.xz"
PYTHON = "cp312"
MACHINES = ("x86_64", "aarch64")


class Exports(Value, frozen=True, kw_only=True):
    """What is kept of one wheel."""

    build: TorchBuild
    names: frozenset[str]


def read(folder: Path, words: list[str]) -> None:
    """Write a file with the symbols of each wheel."""
    folder.mkdir(parents=True, exist_ok=True)
    index = read_index()
    local = [Path(word) for word in words if word.endswith(".whl")]
    wanted = [word for word in words if not word.endswith(".whl")]
    for path in local:
        _read_wheel(File(url=path.absolute().as_uri()), index, folder, path)
    if local and not wanted:
        return
    for file in _official(index):
        if not wanted or str(parse_wheel_filename(file.name)[1]) in wanted:
            try:
                _read_wheel(file, index, folder)
            except StokerError as error:
                print(f"{file.name}: {error}", flush=True)


def _official(index: PackageIndex) -> Iterator[File]:
    """Yield the wheels of one Python, the last build of each release and machine."""
    found: dict[tuple[str, str], File] = {}
    for file in files_of("torch", index):
        if not file.name.endswith(".whl") or f"-{PYTHON}-{PYTHON}-manylinux" not in file.name:
            continue
        version = parse_wheel_filename(file.name)[1]
        machine = next((one for one in MACHINES if file.name.endswith(f"{one}.whl")), None)
        if machine and not version.is_prerelease and version >= read_version(OLDEST):
            kept = found.get((str(version), machine))
            if kept is None or _build(kept) < _build(file):
                found[str(version), machine] = file
    yield from sorted(found.values(), key=lambda file: parse_wheel_filename(file.name)[1])


def _build(file: File) -> tuple[int, str] | tuple[()]:
    return parse_wheel_filename(file.name)[2]


def _read_wheel(file: File, index: PackageIndex, folder: Path, path: Path | None = None) -> None:
    target = folder / f"{file.name}.json.xz"
    if target.exists():
        return
    libraries: list[Symbols] = []
    with _opened(file, index, folder, path) as whole:
        for name, entry in read_listed(whole, ZipLimits()).items():
            if is_own_library(name):
                library = open_member(whole, member_of(whole, entry))
                libraries.append(dynamic_symbols(Elf(library)))
    build = described_build(parse_wheel_filename(file.name)[1].public, libraries)
    found = frozenset[str]().union(*(symbols.exported for symbols in libraries))
    content = msgspec.json.encode(Exports(build=build, names=found), order="sorted")
    target.write_bytes(lzma.compress(content, preset=6))
    print(f"{file.name}: CUDA {build.cuda}, {len(libraries)} libraries, {len(found)} names")


@contextmanager
def _opened(file: File, index: PackageIndex, folder: Path, path: Path | None) -> Iterator[Reader]:
    if path is None:
        with open_remote(file.url, index.web, folder, name=file.name) as remote:
            yield remote
    else:
        with open_file(path) as reader:
            yield reader


def table(folder: Path) -> None:
    """Write the table."""
    found = [
        msgspec.json.decode(lzma.decompress(path.read_bytes()), type=Exports)
        for path in folder.glob("*.json.xz")
    ]
    found.sort(key=lambda one: (read_version(one.build.release), one.build.machine))
    TABLE.write_bytes(pack_symbols((one.build, one.names) for one in found))
    for one in found:
        print(one.build.release, one.build.machine, f"CUDA {one.build.cuda}", len(one.names))
    print(f"{TABLE.name}: {TABLE.stat().st_size} bytes")


if __name__ == "__main__":
    what, where, *rest = sys.argv[1:]
    if what == "read":
        read(Path(where), rest)
    else:
        table(Path(where))
