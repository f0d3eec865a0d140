"""`stoker install INDEX`: wheels of a catalogue, chosen for a machine, installed by pip or uv."""

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from msgspec.structs import replace
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from stoker.catalogue.access import LocatedCatalogue, locate
from stoker.catalogue.candidates import Supply
from stoker.catalogue.choosing import choose, marker_environment, read_word, read_words
from stoker.catalogue.foreign_wheels import without_label
from stoker.catalogue.host import read_host
from stoker.catalogue.kept import kept_wheels
from stoker.catalogue.requirement_files import read_requirement_file
from stoker.catalogue.values import Host, PublishedWheel, Selection
from stoker.knowledge.projects import wheel_sources
from stoker.machine.installers import Installer, InstallerKind, find_installer, install_failure
from stoker.model.errors import UsageError
from stoker.outside import folders, process
from stoker.outside.files import folder_of_process, write_whole
from stoker.outside.long_work import Say, stage
from stoker.outside.package_index import PackageIndex, download, read_index
from stoker.outside.web import Web, credentials_file
from stoker.settings.tables import InstallSettings

ASIDE = ".stoker-install-"
_SATISFIED = "Requirement already satisfied: "  # pip, a line with two addresses for each


def select(
    place: str, words: Sequence[str], *, python: str, wished: str | None, settings: InstallSettings
) -> tuple[LocatedCatalogue, Selection]:
    """Read a catalogue and choose from it; ``wished`` names a machine other than this one."""
    wanted_words = [read_word(word) for word in words]
    located = locate(place, wanted=wanted_words, keys=settings.keys_of(place))
    wanted = read_words(words, located.catalogue)
    return located, choose(read_host(python, wished), located.catalogue, wanted)


def read_supply(places: Sequence[str], settings: InstallSettings) -> Supply:
    """Return where wheels are searched: those that were built here, the catalogues that are named
    here and in stoker.toml, the indexes of pip, and places of projects.
    """
    named = dict.fromkeys((*places, *settings.catalogues))
    kept = kept_wheels()
    index = read_index()
    web = index.web.with_logins((*named, *(one.place for one in settings.sources)))
    return Supply(
        index=replace(index, web=web),
        catalogues=(
            *((kept,) if kept else ()),
            *(locate(place, web, keys=settings.keys_of(place)) for place in named),
        ),
        sources=(*settings.sources, *wheel_sources()),
    )


def wanted_by(words: Sequence[str], files: Sequence[Path], host: Host) -> tuple[Requirement, ...]:
    """Return the requirements of a command line and of files that count on a machine."""
    named = [read_word(word) for word in words]
    named += [one for file in files for one in read_requirement_file(file)]
    environment = marker_environment(host)
    active = [one for one in named if not one.marker or one.marker.evaluate(dict(environment))]
    found: dict[str, Requirement] = {}
    for one in active:
        key = canonicalize_name(one.name)
        if key in found and str(found[key].specifier) != str(one.specifier):
            one.specifier &= found[key].specifier
        if key in found:
            one.extras |= found[key].extras
        one.marker = None
        found[key] = one
    return tuple(found.values())


def installer_for(python: str, wished: str | None) -> Installer:
    return find_installer(python, os.environ, InstallerKind(wished) if wished else None)


def wheels_command(
    located: LocatedCatalogue, selection: Selection, installer: Installer
) -> list[str]:
    """Return the command that installs each wheel by its address and hash, so that no other package
    replaces it.
    """
    for wheel in selection.wheels:
        if _labelled(wheel):
            raise UsageError(
                f"no command can be printed: pip refuses the label '{wheel.variant}' in "
                f"{wheel.file}",
                hints=["without --print, stoker downloads it and installs it without the label"],
            )
    return installer.install([located.reference(wheel) for wheel in selection.wheels])


def _labelled(wheel: PublishedWheel) -> bool:
    return without_label(wheel.file)[1] is not None


def install(
    located: LocatedCatalogue, selection: Selection, installer: Installer, *, say: Say
) -> None:
    """Install each wheel by its address and hash; one with the label of a wheel variant, which pip
    refuses, is downloaded and loses it.
    """
    index = PackageIndex(roots=(), links=(), web=located.web)
    with folder_of_process(folders.cache() / "install", ASIDE) as work, stage("installing"):
        references = []
        for wheel in selection.wheels:
            if not _labelled(wheel):
                references.append(located.reference(wheel))
                continue
            path = download(located.files[wheel.file], work, index, say=say)
            references.append(str(path.rename(work / without_label(wheel.file)[0])))
        run_installer(installer.install(references), say, located.web)


def run_installer(command: Sequence[str], say: Say, web: Web | None = None) -> None:
    """Run pip or uv, and tell what it prints but for the requirements that are installed. It gets
    the credentials of ``web`` through a file, because others may read command lines.
    """

    def tell(line: str) -> None:
        if not line.startswith(_SATISFIED):
            say(line)

    with ExitStack() as stack:
        environment = None
        if web and web.logins:
            work = stack.enter_context(folder_of_process(folders.cache() / "install", ASIDE))
            write_whole(work / "netrc", credentials_file(web), private=True)
            environment = {**os.environ, "NETRC": str(work / "netrc")}
        outcome = process.stream(list(command), tell, env=environment)
    if not outcome.ok:
        raise install_failure(outcome.stdout, "the packages")
