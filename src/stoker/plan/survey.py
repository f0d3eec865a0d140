"""`stoker plan`, `doctor`, `variants` and `options`: reads what a plan depends on, and makes it."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from msgspec.structs import replace

from stoker.knowledge.hardware import (
    GpuModel,
    cpu_dispatch,
    cpu_levels,
    cpu_needs,
    cuda_releases,
    gpus,
    platforms,
    runs_on,
)
from stoker.knowledge.projects import blas_libraries, features, forwarding
from stoker.machine.python import Probe, ask_interpreter, target_python
from stoker.machine.system import read_machine
from stoker.machine.tools import read_cmake_variables, read_toolbox
from stoker.model.errors import MissingError, UnknownWordError, UsageError, nearest
from stoker.model.finding import Finding
from stoker.model.machine import Machine, Toolbox
from stoker.model.plan import Backend, Estimate, Origin, OriginKind, Plan, Variant
from stoker.model.source import (
    CMakeOption,
    ListedOption,
    OptionKind,
    ProjectKind,
    SourceTree,
)
from stoker.model.value import Value
from stoker.plan.doctor import examine
from stoker.plan.grammar import label, name, parse
from stoker.plan.planning import define, estimate, make_plan
from stoker.plan.recipes.project import check_recipe
from stoker.plan.records import fullest_build, run_name
from stoker.plan.subject import Subject, wanted_variant
from stoker.settings.declared import PARTS, CommandLine
from stoker.settings.toml import SettingsFile, find_file, read_file, read_recipe_file
from stoker.settings.user_options import UserOptions, read_user_options
from stoker.source.tree import read_tree

_PYTHON_TIMEOUT_S = 10.0

# -- catalogue -------------------------------------------------------------------------------------
# The words of variants, and the hardware that a variant runs on.


class GpuEntry(Value, frozen=True, kw_only=True):
    word: str
    backend: Backend
    arch: str
    names: tuple[str, ...]
    cuda: tuple[str, ...]  # CUDA releases that make code for it


class NamedEntry(Value, frozen=True, kw_only=True):
    """A variant that stoker.toml gives a name."""

    name: str
    variant: str
    description: str
    where: str


class KnownWords(Value, frozen=True, kw_only=True):
    gpus: tuple[GpuEntry, ...]
    cpus: dict[str, str]
    blas: tuple[str, ...]
    features: dict[str, str]
    platforms: tuple[str, ...]
    named: tuple[NamedEntry, ...]


class Served(Value, frozen=True, kw_only=True):
    """GPUs that run a variant: by ``cubin``, by ``ptx`` (compiled at load) or ``native``."""

    arch: str
    names: tuple[str, ...]
    by: str


class Explained(Value, frozen=True, kw_only=True):
    name: str
    label: str
    variant: Variant
    gpus: tuple[Served, ...]
    cpu_needs: tuple[str, ...]
    cpu_dispatch: str | None


# -- planning --------------------------------------------------------------------------------------
# Makes plans from the user's settings, and checks what this machine lacks for them.


def plan(request: CommandLine) -> Plan:
    subject = survey(request)
    return make_plan(subject, estimated(subject))


def doctor(request: CommandLine) -> tuple[Plan, tuple[Finding, ...]]:
    subject = survey(request)
    planned = make_plan(subject, estimated(subject))
    return planned, examine(subject, planned)


def estimated(subject: Subject) -> Estimate:
    """Estimate a build from an earlier one of the same project and variant, if there is one."""
    tree = subject.tree
    return estimate(subject, fullest_build(run_name(tree.name, subject.name)) if tree else None)


def survey(request: CommandLine, environment: Mapping[str, str] = os.environ) -> Subject:
    """Read everything a plan depends on: settings, source tree, machine and tools."""
    chosen, path = _with_python(read_user_options(request, environment), environment)
    tree = _tree(chosen)
    machine = read_machine((Path(tree.path),) if tree else ())
    variant, origins = chosen_variant(chosen, machine)
    if tree and tree.kind is not ProjectKind.PYTORCH:
        variant, origins = _portable(variant, origins)
    if variant.python != chosen.text("python"):
        path = None  # the words of the variant name another Python
    toolbox = _toolbox(variant.python, path, environment)
    return Subject(
        variant=variant,
        name=name(variant),
        origins=origins,
        machine=machine,
        toolbox=toolbox,
        tree=tree,
        defines=tuple(
            define(key, found.value, found.origin) for key, found in chosen.defines.items()
        ),
        exported=dict(environment),
        own_recipes=chosen.recipes,
        interpreter=path,
        cmake_variables=read_cmake_variables(toolbox.tool("cmake")),
    )


def _portable(variant: Variant, origins: dict[str, Origin]) -> tuple[Variant, dict[str, Origin]]:
    """Leave the CPU to the project unless the user names one: the file name of its wheel says that
    it runs on every CPU of the platform.
    """
    if "cpu" not in origins or origins["cpu"].kind is not OriginKind.DEFAULT:
        return variant, origins
    others = {part: origin for part, origin in origins.items() if part != "cpu"}
    return replace(variant, cpu=None), others


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
    try:
        return wanted_variant(
            _said(chosen, "variant"),
            parts={part: _said(chosen, part) for part in PARTS if part in chosen.values},
            features=[(found.value, found.origin) for found in chosen.features],
            machine=machine,
        )
    except UnknownWordError as error:
        near = nearest(error.text, chosen.variants)
        hints = [f"did you mean {' or '.join(near)} of stoker.toml?"] if near else []
        hints.extend(error.hints)
        raise UnknownWordError(error.message, text=error.text, hints=hints) from error


def _said(chosen: UserOptions, option: str) -> tuple[str, Origin]:
    found = chosen.values[option]
    return found.value, found.origin


def _tree(chosen: UserOptions) -> SourceTree | None:
    """Return the tree that was named, or else the current folder if it is a source tree."""
    if given := chosen.text("source"):
        return read_tree(Path(given).expanduser(), chosen.recipes)
    try:
        return read_tree(Path.cwd(), chosen.recipes)
    except UsageError:
        return None


def _with_python(
    chosen: UserOptions, environment: Mapping[str, str]
) -> tuple[UserOptions, str | None]:
    """Replace a Python that is named by its path by its version; also return the path."""
    said = chosen.values.get("python")
    if said is None or "/" not in said.value:
        return chosen, None
    path = target_python(str(Path(said.value).expanduser()), environment)
    found = ask_interpreter(path, Probe(environment=environment, timeout_s=_PYTHON_TIMEOUT_S))
    values = {**chosen.values, "python": replace(said, value=found.installation.release)}
    return replace(chosen, values=values), path


def _toolbox(version: str | None, path: str | None, environment: Mapping[str, str]) -> Toolbox:
    """Read the toolbox with the first Python that works: the one asked for, that of the active
    environment, or python3. Doctor reports if it is not the one asked for.
    """
    if path:
        return read_toolbox(environment, python=path)
    active = environment.get("VIRTUAL_ENV")
    candidates = [
        f"python{version}" if version else None,
        str(Path(active) / "bin" / "python") if active else None,
        "python3",
    ]
    for python in filter(None, candidates):
        try:
            return read_toolbox(environment, python=python)
        except MissingError:
            continue
    return read_toolbox(environment)


# -- catalogue -------------------------------------------------------------------------------------
# Lists the options of a tree and the words of variants.


def options(source: Path, pattern: str) -> tuple[SourceTree, tuple[ListedOption, ...]]:
    """Return the options whose name or help contains the pattern, in the order of the tree."""
    tree = read_tree(source)
    wanted = pattern.casefold()
    known = (*tree.options, *_variables(tree))
    found = tuple(
        _listed(tree, option)
        for option in known
        if wanted in option.name.casefold() or wanted in option.help.casefold()
    )
    if not found and known:
        near = ", ".join(nearest(pattern, {option.name for option in known}))
        hint = f"nearest: {near}" if near else "without a pattern, all options are listed"
        raise UsageError(f"no option of {tree.name} contains '{pattern}'", hints=[hint])
    return tree, found


def _variables(tree: SourceTree) -> Iterator[CMakeOption]:
    """Yield the environment variables that the build reads."""
    for ask in tree.asks:
        if ask.environment:
            file, _, line = ask.where.rpartition(":")
            yield CMakeOption(
                name=ask.name,
                kind=OptionKind.VARIABLE,
                type="STRING",
                default=ask.default or "",
                help="",
                file=file or ask.where,
                line=int(line) if line.isdecimal() else 0,
            )


def _listed(tree: SourceTree, option: CMakeOption) -> ListedOption:
    if option.kind is OptionKind.VARIABLE:
        return ListedOption(option=option, variable=option.name)
    pytorch = tree.kind is ProjectKind.PYTORCH
    return ListedOption(
        option=option, variable=forwarding().variable(option.name) if pytorch else None
    )


def known_words() -> KnownWords:
    """Return every word of variants, and the named variants of stoker.toml."""
    path = find_file(Path.cwd())
    return KnownWords(
        gpus=tuple(_gpu_entry(row) for row in gpus().values()),
        cpus={level.name: level.serves for level in cpu_levels().values()},
        blas=tuple(blas_libraries()),
        features={row.name: row.help for row in features().values()},
        platforms=tuple(str(platform) for platform in platforms()),
        named=_named(read_file(path)) if path else (),
    )


def _gpu_entry(row: GpuModel) -> GpuEntry:
    word = name(Variant(backend=row.backend, gpus=parse(_word(row)).gpus)).partition("-")[2]
    makers = [r.version for r in cuda_releases().values() if row.arch in r.archs]
    return GpuEntry(
        word=word,
        backend=row.backend,
        arch=row.arch,
        names=row.names,
        cuda=tuple(makers) if row.backend is Backend.CUDA else (),
    )


def _word(row: GpuModel) -> str:
    return "sm" + row.arch.replace(".", "") if row.backend is Backend.CUDA else row.arch


def _named(file: SettingsFile) -> tuple[NamedEntry, ...]:
    return tuple(
        NamedEntry(
            name=key,
            variant=entry.values["variant"].value if "variant" in entry.values else "",
            description=entry.description,
            where=entry.where,
        )
        for key, entry in file.variants.items()
    )


def explain(words: str) -> Explained:
    """Return what a variant means, and the GPUs and CPUs that run its code."""
    variant = named_variant(words)
    return Explained(
        name=name(variant),
        label=label(variant),
        variant=variant,
        gpus=_served_gpus(variant),
        cpu_needs=tuple(sorted(cpu_needs(variant.cpu))) if variant.cpu else (),
        cpu_dispatch=cpu_dispatch(variant.cpu) if variant.cpu else None,
    )


def _served_gpus(variant: Variant) -> tuple[Served, ...]:
    served = []
    for row in gpus().values():
        if row.backend is not variant.backend:
            continue
        if row.backend is not Backend.CUDA:
            ways = ["native"] if row.arch in [target.arch for target in variant.gpus] else []
        else:
            ways = sorted(filter(None, (runs_on(target, row.arch) for target in variant.gpus)))
        if ways:
            served.append(Served(arch=row.arch, names=row.names, by=ways[0]))
    return tuple(served)
