"""`stoker attach`: the launcher into a build folder that was configured without it."""

import re
from pathlib import Path

from stoker.govern.launcher import stable_launcher
from stoker.model.errors import UsageError
from stoker.model.value import Value
from stoker.outside import process
from stoker.source.ninja import read_edges

_LANGUAGE = re.compile(r"^CMAKE_(C|CXX|CUDA|HIP)_COMPILER:[A-Z]+=(?!.*NOTFOUND)", re.MULTILINE)
_LAUNCHER = re.compile(r"^CMAKE_(\w+)_COMPILER_LAUNCHER:[A-Z]+=(.+)$", re.MULTILINE)
_CMAKE = re.compile(r"^CMAKE_COMMAND:INTERNAL=(.+)$", re.MULTILINE)


class Attachment(Value, frozen=True, kw_only=True):
    """What would change. ``recompiles``: outputs that are there and whose command changes."""

    folder: str
    cmake: str  # the one that configured it
    launcher: str
    languages: tuple[str, ...]
    taken: tuple[tuple[str, str], ...]  # languages with a launcher of the user's own, and its name
    recompiles: int


def examine(folder: Path) -> Attachment:
    """Look, change nothing."""
    try:
        cache = (folder / "CMakeCache.txt").read_text(errors="replace")
    except OSError as error:
        hints = ["name the folder that cmake was given with -B"]
        raise UsageError(f"{folder} is no build folder of CMake", hints=hints) from error
    launcher = str(stable_launcher())
    present = dict(_LAUNCHER.findall(cache))
    languages = tuple(lang for lang in _LANGUAGE.findall(cache) if not present.get(lang))
    cmake = _CMAKE.search(cache)
    return Attachment(
        folder=str(folder),
        cmake=cmake[1] if cmake else "cmake",
        launcher=launcher,
        languages=languages,
        taken=tuple((lang, Path(it).name) for lang, it in present.items() if it != launcher),
        recompiles=_made(folder, languages),
    )


def _made(folder: Path, languages: tuple[str, ...]) -> int:
    """Objects that exist: ninja makes them again, because their command is another."""
    rules = tuple(f"{language}_COMPILER__" for language in languages)
    edges = (edge for edge in read_edges(folder) if rules and edge.rule.startswith(rules))
    return sum((folder / edge.outputs[0]).exists() for edge in edges)


def attach(attachment: Attachment) -> None:
    """Configure again, with the launcher before every compiler."""
    options = [
        f"-DCMAKE_{language}_{kind}_LAUNCHER={attachment.launcher}"
        for language in attachment.languages
        for kind in ("COMPILER", "LINKER")
    ]
    process.check([attachment.cmake, *options, attachment.folder], timeout=None)
