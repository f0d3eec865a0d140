"""Makes plans from the user's settings, and checks what this machine lacks for them."""

import os
from collections.abc import Mapping
from pathlib import Path

from stoker.build.run_folder import fullest_build, run_name
from stoker.machine.system import read_machine
from stoker.machine.tools import read_cmake_variables, read_toolbox
from stoker.model.errors import Finding, MissingError, UnknownWordError, UsageError, nearest
from stoker.model.machine import Machine, Toolbox
from stoker.model.plan import Estimate, Origin, Plan, Variant
from stoker.model.source import SourceTree
from stoker.plan.defines import define
from stoker.plan.doctor import examine
from stoker.plan.estimate import estimate
from stoker.plan.grammar import name
from stoker.plan.planning import make_plan
from stoker.plan.subject import Subject
from stoker.plan.wanted import wanted_variant
from stoker.settings.declared import PARTS, CommandLine
from stoker.settings.user_options import UserOptions, read_user_options
from stoker.source.tree import read_tree


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
    chosen = read_user_options(request, environment)
    tree = _tree(chosen)
    machine = read_machine((Path(tree.path),) if tree else ())
    variant, origins = chosen_variant(chosen, machine)
    toolbox = _toolbox(variant.python, environment)
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
        cmake_variables=read_cmake_variables(toolbox.tool("cmake")),
    )


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
        return read_tree(Path(given).expanduser())
    try:
        return read_tree(Path.cwd())
    except UsageError:
        return None


def _toolbox(version: str | None, environment: Mapping[str, str]) -> Toolbox:
    """Read the toolbox with the first Python that works: the one asked for, that of the active
    environment, or python3. Doctor reports if it is not the one asked for.
    """
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
