"""Chooses the linkers of a run, and keeps those that `stoker tune` has measured and checked."""

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from stoker.knowledge.compiler_modes import linker_programs
from stoker.knowledge.packages import install_command
from stoker.machine.file_tree import FileTree
from stoker.machine.system import read_system
from stoker.model.errors import MissingError, StokerError
from stoker.model.govern import CompileMode
from stoker.model.terms import Linker, LinkerChoice
from stoker.model.value import Value, counted
from stoker.outside import process
from stoker.outside.deleting import remove_file
from stoker.outside.files import read_json, write_whole
from stoker.outside.folders import state, unwritable

_TIMEOUT_S = 10.0


class TunedLink(Value, frozen=True, kw_only=True):
    """A link for which another linker was faster and made an equivalent file."""

    link: str  # its identity
    output: str
    linker: CompileMode
    version: str  # of the linker


class TunedLinks(Value, frozen=True, kw_only=True):
    """The links of one build folder."""

    folder: str
    links: tuple[TunedLink, ...] = ()


def choose_linkers(wanted: Linker) -> LinkerChoice:
    """Return the linkers for a setting. One that is asked for by name and missing is an error."""
    if wanted is Linker.DEFAULT:
        return LinkerChoice()
    if wanted is Linker.AUTO:
        return _measured([link for kept in _kept() for link in kept.links])
    mode = CompileMode(wanted.value)
    if linker_version(mode) is None:
        install = install_command(wanted.value, read_system(FileTree(), os.environ))
        hints = [*(f"  $ {line}" for line in install), "to link by default: --linker default"]
        raise MissingError(f"there is no program '{linker_programs()[mode]}'", hints=hints)
    return LinkerChoice(every=mode, why=f"--linker {wanted}")


def _measured(links: Sequence[TunedLink]) -> LinkerChoice:
    if not links:
        return LinkerChoice(why="`stoker tune` has found no faster linker here")
    versions = {mode: linker_version(mode) for mode in {link.linker for link in links}}
    known = [link for link in links if link.version == versions[link.linker]]
    if not known:
        name = links[0].linker.value
        why = f"{name} is not used: it has changed since `stoker tune` measured it"
        return LinkerChoice(why=why, unusable=True)
    return LinkerChoice(
        measured={link.link: link.linker for link in known},
        why=f"`stoker tune` has measured {counted(len(known), 'link')}",
    )


def linker_version(mode: CompileMode) -> str | None:
    """Return the first line that a linker prints about its version; ``None`` if there is none."""
    path = shutil.which(linker_programs()[mode])
    if path is None:
        return None
    with suppress(StokerError):
        lines = process.run([path, "--version"], timeout=_TIMEOUT_S).stdout.splitlines()
        return lines[0] if lines else None
    return None


def keep_links(folder: Path, links: Iterable[TunedLink]) -> None:
    """Replace what is known of a build folder."""
    content = TunedLinks(folder=str(folder), links=tuple(links))
    name = hashlib.sha256(os.fsencode(folder)).hexdigest()[:16]
    place = state() / "linkers"
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(place, error, doing="make") from error
    write_whole(place / f"{name}.json", msgspec.json.encode(content), private=True)


def _kept() -> Iterator[TunedLinks]:
    """Yield what is known of all build folders that still exist."""
    for path in sorted((state() / "linkers").glob("*.json")):
        kept = read_json(path, TunedLinks)
        if kept and Path(kept.folder).is_dir():
            yield kept
        elif kept:
            remove_file(path)
