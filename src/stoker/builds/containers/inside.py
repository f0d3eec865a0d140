"""The stoker inside a running container: what it is told, what it prints, and what it made."""

import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from stoker.builds.building import Built
from stoker.builds.containers import content
from stoker.builds.containers.content import ENTER, own_package, requirements_for
from stoker.builds.containers.engine import ContainerEngine, EngineKind
from stoker.builds.containers.pythons import InsidePython
from stoker.builds.containers.words import Box, exec_words
from stoker.builds.finishing import handed_over
from stoker.govern.client.native import LAUNCHER, LIBRARY, installed
from stoker.govern.client.session import Show
from stoker.model.build import BuildRecord
from stoker.model.errors import CommandError, ExitStatus, StorageError
from stoker.model.events import AnyEvent
from stoker.model.value import UNDECODABLE, Value, indented_json, prepared
from stoker.outside import folders, process
from stoker.outside.deleting import remove_tree, remove_whole
from stoker.outside.files import folder_made_whole, read_json, write_whole
from stoker.outside.long_work import Say
from stoker.plan.run_folder import RECORD
from stoker.settings.toml import find_file
from stoker.settings.trust import repeat_trust

_CAUSES = "knowledge/failures.json"  # which the build of stoker makes, as the native parts
_OWN = (
    *("STOKER_HOME", "STOKER_SOCKET", "STOKER_RUN", "STOKER_PROCESS"),
    *("STOKER_SCRATCH", "STOKER_LOCKS"),
)
_PASSED_ON = re.compile(r"STOKER_.*|SOURCE_DATE_EPOCH|.*_proxy|.*_PROXY|TERM|COLUMNS|LINES|LANG")


class Inside(Value, frozen=True, kw_only=True):
    """What is wanted beside the build itself. ``container``: an image, a folder, or "" for the
    usual image; ``words``: the options of the build, for the stoker inside.
    """

    source: str
    tag: str | None = None
    out: str
    container: str
    words: tuple[str, ...]
    engine: EngineKind | None = None
    memory: int | None = None
    ipc: str = "private"
    keep: bool = False
    record: str | None = None  # a file that is mounted into the container
    variables: dict[str, str] = {}


class ContainerWatcher(Value, frozen=True, kw_only=True):
    """Receives remarks (``say``), the governor's events inside (``show``), other output of the
    stoker inside (``write``), and the record, also of a build that failed (``end``).
    """

    say: Say
    show: Show
    write: Say
    end: Callable[[Built], None]


class Contained(Value, frozen=True, kw_only=True):
    """container.json of a run folder: where the build was."""

    engine: str
    image: str
    memory: int | None
    python: str
    command: tuple[str, ...]  # that made the container


class RunningContainer:
    """A running container, and the folder of stoker in it."""

    def __init__(
        self, engine: ContainerEngine, box: Box, python: InsidePython, variables: Mapping[str, str]
    ):
        self._engine = engine
        self._box = box
        self._given = variables
        self.python = python
        place = f"{box.place} {python.path} {python.version}"
        self._home = content.containers_folder() / f"home-{folders.signature(place)}"

    def build(
        self, tree: str, wanted: Inside, contained: Contained, watcher: ContainerWatcher
    ) -> Built:
        out, made = Path(wanted.out).absolute(), self._home / "out" / self._box.name
        # The final paths, after the outputs are copied out.
        places = {str(made): str(out), str(self._home / "state"): str(folders.state())}
        runs = self._home / "state" / "runs"
        before = set(runs.glob("*"))
        words = ("build", tree, "--out", str(made), *wanted.words, "--progress", "json")
        # The stoker inside starts where it finds the same stoker.toml.
        folder = Path(settings_file() or f"{tree}/any").parent
        outputs: tuple[Path, ...] = ()
        try:
            told = self._stoker(words, folder, places, watcher)
            if told.ok:
                plain = sorted(path for path in made.glob("*") if not path.is_symlink())
                outputs = tuple(_bring(path, out) for path in plain)
        finally:
            new = sorted(set(runs.glob("*")) - before, reverse=True)
            brought = _bring_run(new, tree, contained)
            remove_tree(made)
        built = None
        if brought:
            content = (brought / RECORD).read_bytes()
            record = msgspec.json.decode(content, type=prepared(BuildRecord))
            record = msgspec.structs.replace(record, outputs=tuple(map(str, outputs)))
            built = Built(record=record, folder=str(brought))
            watcher.end(built)
        check_ended(told, outputs, has_record=built is not None)
        assert built is not None
        return built

    def _stoker(
        self,
        words: Sequence[str],
        folder: Path,
        places: Mapping[str, str],
        watcher: ContainerWatcher,
    ) -> process.CommandResult:
        requirements = requirements_for(self.python, watcher.say)
        own = own_package({part: installed(part) for part in (LAUNCHER, LIBRARY, _CAUSES)})
        environment = self._home / f"environment-{folders.signature(f'{ENTER} {requirements}')}"
        for path in (self._home / "tmp", self._home / "user"):
            path.mkdir(parents=True, exist_ok=True)
        about = (str(environment), self.python.path, str(requirements), str(own))
        variables = self._variables()
        repeat_trust(self._home / "data")
        command = exec_words(
            self._engine,
            self._box.name,
            ("sh", "-c", ENTER, "stoker", *about, *words),
            folder=str(folder),
            variables=variables,
        )

        def hear(line: str) -> None:
            try:
                watcher.show(msgspec.json.decode(line, type=prepared(AnyEvent)))
            except UNDECODABLE:
                for inside, outside in places.items():
                    line = line.replace(inside, outside)
                watcher.write(f"{line}\n")

        return process.stream(command, hear, env={**os.environ, **variables}, only_errors=True)

    def _variables(self) -> dict[str, str]:
        """Return the environment. Temporary files go to disk, because /tmp is memory inside."""
        passed = {
            name: value
            for name, value in os.environ.items()
            if _PASSED_ON.fullmatch(name) and name not in _OWN
        }
        return {
            **passed,
            **self._given,
            "STOKER_HOME": str(self._home),
            "HOME": str(self._home / "user"),
            "TMPDIR": str(self._home / "tmp"),
            "SUDO_UID": str(os.getuid()),  # whose stoker.toml counts
        }


def _bring_run(runs: Sequence[Path], tree: str, contained: Contained) -> Path | None:
    """Copy the record of the build out of the container, also after a failure."""
    for folder in runs:
        record = read_json(folder / RECORD, BuildRecord)
        if record and record.tree == tree:
            target = folders.state() / "runs" / folder.name
            with folder_made_whole(target, mode=0o700) as aside:
                shutil.copytree(folder, aside, symlinks=True, dirs_exist_ok=True)
                write_whole(aside / "container.json", indented_json(contained), private=True)
            return target
    return None


def check_ended(told: process.CommandResult, outputs: Sequence[Path], *, has_record: bool) -> None:
    """Raise an error if the build inside failed or left no record."""
    if not told.ok:
        # The stoker inside has already printed the cause.
        error = CommandError(f"the build in the container {told.problem}")
        if told.status in set(ExitStatus):
            error.status = ExitStatus(told.status)
        raise error
    if not has_record:
        made = ", ".join(map(str, outputs)) or "nothing"
        raise StorageError(
            "the build in the container succeeded, but its record cannot be read",
            hints=[f"it made {made}", "for a record, build again with --fresh"],
        )


def _bring(made: Path, out: Path) -> Path:
    """Copy a wheel or an installed tree to the folder ``out``, whole or not at all."""
    if not made.is_dir():
        return handed_over(made, out)
    target = out / made.name
    if target.exists():
        remove_whole(target)
    with folder_made_whole(target) as aside:
        shutil.copytree(made, aside, symlinks=True, dirs_exist_ok=True)
    return target


def settings_file() -> str | None:
    """Return the stoker.toml that applies here; one inside the tree is in the container anyway."""
    found = find_file(Path.cwd())
    return str(found) if found else None
