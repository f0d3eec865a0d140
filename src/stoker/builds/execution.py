"""Runs the commands of a build, in one environment and with one log for each stage.

The environment has the plan's settings, what makes builds repeatable, and the governor's part.
"""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from stoker.builds.backend import Execute
from stoker.builds.digests import digest
from stoker.builds.route import Route
from stoker.builds.stages import StageLog
from stoker.builds.work import MARK, Task
from stoker.govern.client.session import Session
from stoker.model.caching import NUMBER_OF_JOBS, READ_BY_BUILD_TOOLS, READ_BY_COMPILERS
from stoker.model.errors import CommandError, Terminated
from stoker.model.plan import Plan
from stoker.outside import files, folders
from stoker.outside.deleting import remove_file, remove_tree
from stoker.plan.left_out import VARIABLE

# Tools whose version changes what CMake finds and how it compiles.
_TOOLS = ("cc", "cxx", "hipcc", "icpx", "cmake", "ninja", "ccache", "sccache")
_COMPILED_WITH = ".stoker-compiled-with.json"
_FIRST_ZIP_CAN_SAY = 315532800  # 1980-01-01


def surroundings(
    base: Mapping[str, str], plan: Plan, *, maps: Mapping[Path, str], epoch: int | None
) -> dict[str, str]:
    """Return the environment of a build. ``maps``: folders and their names in outputs. ``epoch``:
    the date of the source.
    """
    environment = dict(base) | {setting.name: setting.value for setting in plan.environment}
    environment[VARIABLE] = " ".join(plan.targets.left_out if plan.targets else ())
    environment.setdefault("SOURCE_DATE_EPOCH", str(epoch or _FIRST_ZIP_CAN_SAY))
    flags = " ".join(map_flags(maps))
    for name in ("CFLAGS", "CXXFLAGS"):
        environment[name] = f"{environment.get(name, '')} {flags}".strip()
    of_nvcc = [
        environment.get("NVCC_APPEND_FLAGS", ""),
        *(f"-Xcompiler={f}" for f in flags.split()),
    ]
    environment["NVCC_APPEND_FLAGS"] = " ".join(of_nvcc).strip()
    return environment


def map_flags(maps: Mapping[Path, str]) -> tuple[str, ...]:
    """Return the flags that map folder names; none for a name that a command line would split."""
    return tuple(
        f"-ffile-prefix-map={folder}={name}"
        for folder, name in maps.items()
        if not re.search(r"[\s=,\"'\\]", str(folder))
    )


class Execution:
    """Runs the commands of one build. ``folder`` is where the last one ran."""

    def __init__(self, task: Task, route: Route, governed: Session, *, isolated: bool):
        work = task.work
        self._task = task
        self._route = route
        self._governed = governed
        self.folder = route.tree
        name = folders.slug(task.tree.name)
        maps = {route.tree: name, route.build: f"{name}-build"}
        # A cache has compilers see paths that are relative to the build folder.
        maps[Path(os.path.relpath(route.tree, route.build))] = name
        path = os.environ.get("PATH", os.defpath)
        if self._tools_to_link():
            path = f"{work.tools}:{path}"
        base = {**os.environ, MARK: str(work.path)}
        if isolated:
            maps[work.environment] = "environment"
            path = f"{work.environment}/bin:{path}"
            base["VIRTUAL_ENV"] = str(work.environment)
        epoch = task.git.time if task.git else None
        self.environment = governed.environment(
            surroundings({**base, "PATH": path}, task.plan, maps=maps, epoch=epoch),
            folder=Path(os.path.commonpath((route.tree, route.build))),
            mapped=True,
            tree=route.tree,
        )

    def options_digest(self) -> str:
        """Return a digest of all that a build depends on besides its tree and Python."""
        names = {*READ_BY_BUILD_TOOLS, *READ_BY_COMPILERS, VARIABLE}
        names |= {setting.name for setting in self._task.plan.environment}
        names -= {*NUMBER_OF_JOBS}
        said = {name: self.environment.get(name) for name in names}
        subject = self._task.subject
        tools = [(one.path, one.version) for one in subject.toolbox.tools if one.name in _TOOLS]
        toolkit = subject.toolkit
        asked = [self._route.configure, self._route.settings]
        return digest([asked, said, tools, toolkit.version if toolkit else None])

    def forget_objects_of_other_flags(self) -> None:
        """Make ninja compile everything again if compilers now read other variables: it compares
        only commands.
        """
        planned = self._task.plan.environment
        asked = os.environ | {setting.name: setting.value for setting in planned}
        said = {name: asked[name] for name in READ_BY_COMPILERS if asked.get(name)}
        record = self._route.build / _COMPILED_WITH
        if said == (files.read_json(record, dict[str, str]) or {}):
            return
        for log in self._route.build.rglob(".ninja_log"):
            remove_file(log, below=self._route.build)
        self._route.build.mkdir(parents=True, exist_ok=True)
        files.write_whole(record, msgspec.json.encode(said))

    def link_tools(self) -> None:
        """Link tools into a folder of ours: the chosen CMake's own may also hold a Python."""
        folder = self._task.work.tools
        remove_tree(folder)
        for name, path in self._tools_to_link().items():
            folder.mkdir(parents=True, exist_ok=True)
            (folder / name).symlink_to(path)

    def _tools_to_link(self) -> dict[str, str]:
        """Return CMake and ninja where the PATH does not lead to the chosen ones."""
        chosen = {name: self._task.subject.build_tool(name) for name in ("cmake", "ninja")}
        return {
            name: tool.path
            for name, tool in chosen.items()
            if tool and not tool.problem and shutil.which(name) != tool.path
        }

    def must(
        self,
        words: Sequence[str],
        log: StageLog,
        *,
        what: str,
        extra: Mapping[str, str] | None = None,
    ) -> None:
        """Run a command in the tree; raise an error that begins with ``what`` if it fails."""
        if status := self.executing(log, extra)(words, self._route.tree, {}):
            raise CommandError(f"{what} (status {status})")

    def executing(self, log: StageLog, own: Mapping[str, str] | None = None) -> Execute:
        """Return a function that runs commands, with variables of its own and those of a call."""

        talk = {}  # makes tools print more; no input of a stage
        if self._task.request.verbose:
            flags = self.environment["NVCC_APPEND_FLAGS"]
            talk = {"VERBOSE": "1", "NVCC_APPEND_FLAGS": f"{flags} -v"}

        def execute(words: Sequence[str], folder: Path, extra: Mapping[str, str]) -> int:
            self.folder = folder
            environment = {**self.environment, **talk, **(own or {}), **extra}
            status = self._governed.run(words, env=environment, cwd=folder, output=log.write)
            if self._governed.stopped_by is not None:
                raise Terminated(self._governed.stopped_by)
            if error := self._governed.unfinished:
                raise error  # also if the tool hides that a step was refused
            return status

        return execute
