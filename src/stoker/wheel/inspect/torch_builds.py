"""Reads which symbols a PyTorch exports: an installed one, a wheel, or a folder."""

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from stoker.knowledge.torch_symbols import TorchBuild, is_torch_library
from stoker.model.artifact import Symbols
from stoker.model.errors import MissingError, UsageError
from stoker.wheel.elf.elf import Elf
from stoker.wheel.elf.tables import dynamic_symbols
from stoker.wheel.inspect.facts import open_member
from stoker.wheel.inspect.loads_with import ReadTorch
from stoker.wheel.inspect.target import find_target
from stoker.wheel.reader import open_file, printable
from stoker.wheel.zip import Wheel, open_wheel

LIBRARIES = "torch/lib/"  # in a wheel and in site-packages
_CUDA = re.compile(r"libcudart[^.]*\.so\.(\d{1,4})")
_VERSION = re.compile(r"__version__ = '([0-9A-Za-z.+]{1,100})'")
_TOOLKIT = re.compile(r"^cuda\b[^=\n]*=\s*['\"]([0-9]{1,3}\.[0-9]{1,3})", re.MULTILINE)
_VERSION_FILE = "torch/version.py"  # in a wheel and in site-packages
_LARGEST_TEXT = 1 << 20


def read_torches(
    targets: Sequence[str], machine: str, environment: Mapping[str, str] = os.environ
) -> tuple[ReadTorch, ...]:
    """Return the builds of PyTorch that are named, or the installed one if it runs on the machine
    that the extension is for.
    """
    if targets:
        return tuple(read_torch(target, environment) for target in targets)
    try:
        found = read_torch("torch", environment)
    except (UsageError, MissingError):
        return ()
    return (found,) if found.build.machine == machine else ()


def read_torch(target: str, environment: Mapping[str, str] = os.environ) -> ReadTorch:
    """Return what a PyTorch exports. ``target`` is a wheel, a folder that contains or is the
    package, or the name of an installed distribution.
    """
    path = Path(target)
    if path.suffix == ".whl":
        return _of_wheel(path)
    if not path.is_dir():
        path = find_target(target, environment).path.parent
    return _of_folder(path)


def described_build(release: str, libraries: Sequence[Symbols]) -> TorchBuild:
    """Return the build that libraries belong to."""
    needed = " ".join(name for symbols in libraries for name in symbols.needed)
    cuda = _CUDA.search(needed)
    return TorchBuild(
        release=release,
        machine=libraries[0].machine,
        cuda=cuda[1] if cuda else None,
        libraries=tuple(sorted(symbols.file for symbols in libraries)),
    )


def _of_wheel(path: Path) -> ReadTorch:
    with open_wheel(path) as wheel:
        libraries = [
            dynamic_symbols(Elf(open_member(wheel.archive.file, member)))
            for name, member in wheel.members.items()
            if is_own_library(name)
        ]
    if not libraries:
        raise _none(str(path))
    return _read(path.name.split("-")[1], libraries, str(path))


def _of_folder(path: Path) -> ReadTorch:
    """Read the package in a folder, or the folder of the package itself."""
    root = path if (path / LIBRARIES).is_dir() else path.parent
    libraries: list[Symbols] = []
    with suppress(OSError):
        for file in sorted((root / LIBRARIES).iterdir()):
            if is_own_library(f"{LIBRARIES}{file.name}"):
                with open_file(file) as reader:
                    libraries.append(dynamic_symbols(Elf(reader)))
    if not libraries:
        raise _none(str(path))
    text = _version_file(root / "torch")
    version = _VERSION.search(text)
    read = _read(version[1] if version else "?", libraries, str(root / "torch"))
    return replace(read, toolkit=_toolkit_in(text))


def toolkit_of(package: Path) -> str | None:
    """Return the CUDA release of the PyTorch in a folder; ``None`` if it has no CUDA."""
    return _toolkit_in(_version_file(package))


def toolkit_of_wheel(wheel: Wheel) -> str | None:
    """Return the CUDA release that PyTorch was built with; ``None`` for any other wheel."""
    if _VERSION_FILE not in wheel.members:
        return None
    return _toolkit_in(wheel.read(_VERSION_FILE).decode(errors="replace"))


def _toolkit_in(text: str) -> str | None:
    found = _TOOLKIT.search(text)
    return found[1] if found else None


def _version_file(package: Path) -> str:
    return (package / "version.py").read_text(errors="replace")[:_LARGEST_TEXT]


def is_own_library(name: str) -> bool:
    """Return whether a member is one of PyTorch's libraries that extensions link with."""
    folder, _, base = name.rpartition("/")
    return f"{folder}/" == LIBRARIES and is_torch_library(base)


def _read(release: str, libraries: Sequence[Symbols], place: str) -> ReadTorch:
    exported = frozenset[str]().union(*(one.exported for one in libraries))
    return ReadTorch(
        build=described_build(release, libraries), place=printable(place), exported=exported
    )


def _none(place: str) -> UsageError:
    return UsageError(
        f"there is no PyTorch in '{place}'",
        hints=["name a wheel of torch, a site-packages folder, or torch itself if it is installed"],
    )
