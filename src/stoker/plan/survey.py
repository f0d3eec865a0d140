"""Reads what a plan depends on, makes the plan, and checks what this machine lacks for it."""

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from msgspec.structs import replace

from stoker.machine.cuda import find_nvccs, read_toolkit
from stoker.machine.file_tree import FileTree
from stoker.machine.python import Probe, ask_interpreter, target_python
from stoker.machine.system import read_machine
from stoker.machine.tools import read_cmake_variables, read_toolbox
from stoker.model.errors import MissingError, UnknownWordError, UsageError, nearest
from stoker.model.finding import Finding
from stoker.model.machine import LimitKind, Machine, MemoryLimit, Toolbox
from stoker.model.plan import Plan
from stoker.model.setting import Origin, OriginKind
from stoker.model.source import ProjectKind
from stoker.model.variant import Variant
from stoker.outside import folders
from stoker.plan.defines import define
from stoker.plan.doctor import examine
from stoker.plan.estimates import estimate
from stoker.plan.grammar import parts_named
from stoker.plan.planning import make_plan
from stoker.plan.recipes.checking import check_recipe
from stoker.plan.requested import with_variables
from stoker.plan.run_folder import fullest_build, run_name
from stoker.plan.subject import Subject, wanted_variant
from stoker.settings.declared import PARTS, CommandLine
from stoker.settings.recipe_files import read_recipe_file
from stoker.settings.user_options import UserOptions, read_user_options
from stoker.source.tree import read_tree

_PYTHON_TIMEOUT_S = 10.0


def plan(request: CommandLine) -> Plan:
    return plan_of(survey(request))


def doctor(request: CommandLine) -> tuple[Plan, tuple[Finding, ...]]:
    subject = survey(request)
    planned = plan_of(subject)
    return planned, examine(subject, planned)


def plan_of(subject: Subject) -> Plan:
    """Return the plan, with an estimate from an earlier build of the same project and variant if
    there is one.
    """
    tree = subject.tree
    earlier = fullest_build(run_name(tree.name, subject.name)) if tree else None
    return make_plan(subject, estimate(subject, earlier))


def survey(request: CommandLine, environment: Mapping[str, str] = os.environ) -> Subject:
    """Read everything a plan depends on: settings, source tree, machine and tools."""
    return Surveyor(environment).survey(request)


class Surveyor:
    """Surveys several requests: the machine and its tools are read once for all of them."""

    def __init__(self, environment: Mapping[str, str] = os.environ) -> None:
        self._environment = environment
        self._machines: dict[str | None, Machine] = {}
        self._tools: dict[tuple[str | None, str | None], tuple[Toolbox, frozenset[str]]] = {}

    def survey(self, request: CommandLine) -> Subject:
        """Read everything a plan depends on: settings, source tree, machine and tools."""
        chosen, path = self._with_python(read_user_options(request, self._environment))
        tree = None
        if given := chosen.text("source"):
            tree = read_tree(Path(given).expanduser(), chosen.recipes)
        else:
            with suppress(UsageError):  # the current folder, if it is a source tree
                tree = read_tree(Path.cwd(), chosen.recipes)
        machine = self._machine(tree.path if tree else None)
        machine, described_by = _as_given(machine, chosen)
        variant, origins = chosen_variant(chosen, machine)
        by_default = "cpu" in origins and origins["cpu"].kind is OriginKind.DEFAULT
        if tree and tree.kind is not ProjectKind.PYTORCH and by_default:
            # The file name of the project's wheel says that it runs on every CPU of the platform.
            variant = replace(variant, cpu=None)
            del origins["cpu"]
        if variant.python != chosen.text("python"):
            path = None  # the words of the variant name another Python
        if variant.python is None:
            path = self._active_python()
        toolbox, cmake_variables = self._toolbox(variant.python, path)
        subject = Subject(
            variant=variant,
            name=variant.name,
            origins=origins,
            machine=machine,
            toolbox=toolbox,
            tree=tree,
            defines=tuple(
                define(key, found.value, found.origin) for key, found in chosen.defines.items()
            ),
            exported=dict(self._environment),
            own_recipes=chosen.recipes,
            keep_targets=bool(chosen.value("keep_targets")),
            interpreter=path,
            given=described_by,
            cmake_variables=cmake_variables,
        )
        said = chosen.values["variant"]
        spoken = said.origin.kind is not OriginKind.DEFAULT
        return with_variables(subject, parts_named(said.value, machine) if spoken else frozenset())

    def _with_python(self, chosen: UserOptions) -> tuple[UserOptions, str | None]:
        """Replace a Python that is named by its path by its version; also return the path."""
        said = chosen.values.get("python")
        if said is None or "/" not in said.value:
            return chosen, None
        path = target_python(str(Path(said.value).expanduser()), self._environment)
        probe = Probe(environment=self._environment, timeout_s=_PYTHON_TIMEOUT_S)
        release = ask_interpreter(path, probe).installation.release
        values = {**chosen.values, "python": replace(said, value=release)}
        return replace(chosen, values=values), path

    def _active_python(self) -> str | None:
        """Return the Python of the active environment if the word ``python3`` starts another."""
        active = Path(self._environment.get("VIRTUAL_ENV", "")) / "bin" / "python"
        is_program = active.is_absolute() and os.access(active, os.X_OK)
        first = shutil.which("python3", path=self._environment.get("PATH"))
        same = is_program and first and active.parent.samefile(Path(first).parent)
        return str(active) if is_program and not same else None

    def _machine(self, tree: str | None) -> Machine:
        if tree not in self._machines:
            self._machines[tree] = read_machine((Path(tree),) if tree else ())
        return self._machines[tree]

    def _toolbox(self, version: str | None, path: str | None) -> tuple[Toolbox, frozenset[str]]:
        """Return the tools with this Python, and the variables that its CMake knows."""
        if (version, path) not in self._tools:
            toolbox = self._read_toolbox(version, path)
            variables = read_cmake_variables(toolbox.tool("cmake"))
            self._tools[version, path] = toolbox, variables
        return self._tools[version, path]

    def _read_toolbox(self, version: str | None, path: str | None) -> Toolbox:
        """Read the toolbox with the first Python that works: the one asked for, that of the active
        environment, or python3. Doctor reports if it is not the one asked for.
        """
        if path:
            return read_toolbox(self._environment, python=path)
        active = self._environment.get("VIRTUAL_ENV")
        candidates = [
            f"python{version}" if version else None,
            str(Path(active) / "bin" / "python") if active else None,
            "python3",
        ]
        for python in filter(None, candidates):
            try:
                return read_toolbox(self._environment, python=python)
            except MissingError:
                continue
        return read_toolbox(self._environment)


def _as_given(machine: Machine, chosen: UserOptions) -> tuple[Machine, tuple[str, ...]]:
    """Return the machine with the memory and the CPUs that the options name, and these options: a
    plan may be for another machine than this one.
    """
    given = []
    if memory := chosen.value("memory"):
        limit = MemoryLimit(kind=LimitKind.GIVEN, where="--memory", limit=int(memory), used=0)
        machine = replace(machine, memory=replace(machine.memory, limit=limit))
        given.append("--memory")
    if cpus := chosen.value("cpus"):
        count = int(cpus)
        cpu = replace(machine.cpu, online=count, affinity=count, quota=None)
        machine = replace(machine, cpu=cpu)
        given.append("--cpus")
    return machine, tuple(given)


def installed_cuda(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """Return the releases of CUDA whose compilers are on this machine."""
    probe = Probe(environment=environment, timeout_s=_PYTHON_TIMEOUT_S)
    toolchains = (folders.data() / "toolchains").glob("[!.]*")
    nvccs = find_nvccs(FileTree(Path("/")), environment, toolchains)
    return tuple(v for v in (read_toolkit(nvcc, probe).version for nvcc in nvccs) if v)


def checked_recipes(file: Path, source: Path | None) -> tuple[Finding, ...]:
    """Check the recipes of a file, against a tree if one is named."""
    recipes = read_recipe_file(file)
    tree = read_tree(source, recipes) if source else None
    return tuple(finding for recipe in recipes for finding in check_recipe(recipe, tree))


def named_variant(text: str) -> Variant:
    """Return the variant that these words, or this name in stoker.toml, stand for."""
    chosen = read_user_options(CommandLine(options={"variant": text}), {})
    return chosen_variant(chosen, read_machine(()))[0]


def chosen_variant(chosen: UserOptions, machine: Machine) -> tuple[Variant, dict[str, Origin]]:
    """Return the variant that the settings ask for, and the origin of each of its parts."""
    said = {option: (found.value, found.origin) for option, found in chosen.values.items()}
    try:
        return wanted_variant(
            said["variant"],
            parts={part: said[part] for part in PARTS if part in said},
            features=[(found.value, found.origin) for found in chosen.features],
            machine=machine,
            installed=installed_cuda,
        )
    except UnknownWordError as error:
        near = nearest(error.text, chosen.variants)
        hints = [f"did you mean {' or '.join(near)} of stoker.toml?"] if near else []
        hints.extend(error.hints)
        raise UnknownWordError(error.message, text=error.text, hints=hints) from error
