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


class Attachment(Value, frozen=True, kw_only=True):
    """What would change. ``recompiles``: outputs that are there and whose command changes."""

    folder: str
    launcher: str
    languages: tuple[str, ...]
    behind_cache: tuple[str, ...]  # languages with a cache, behind which the launcher comes anyway
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
    languages = _LANGUAGE.findall(cache)
    open_languages = tuple(lang for lang in languages if not present.get(lang))
    cached = tuple(lang for lang in languages if "cache" in Path(present.get(lang, "")).name)
    return Attachment(
        folder=str(folder),
        launcher=launcher,
        languages=open_languages,
        behind_cache=cached,
        recompiles=_made(folder, open_languages),
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
    process.check(["cmake", *options, attachment.folder], timeout=None)
