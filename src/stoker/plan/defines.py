"""Checks and places the user's -D options. The tree must know every name. Pure.

An option that the front end does not pass to CMake is reported.
"""

import re
from collections.abc import Iterator

from stoker.knowledge.features import features
from stoker.knowledge.torch_releases import forwarding, front_end_variables, instead_of
from stoker.model.errors import UsageError, nearest, unknown
from stoker.model.finding import Finding, note, warning
from stoker.model.setting import Origin, OriginKind, Setting, SettingPlace
from stoker.model.source import FrontEnd, ProjectKind
from stoker.plan.recipes import Recipe
from stoker.plan.requested import OF_CMAKE, TARGET_LISTS
from stoker.plan.subject import Subject, environment

_BY_ENVIRONMENT = (ProjectKind.EXTENSION, ProjectKind.PACKAGE)
_MISSPELT = 0.8  # similarity from which a name counts as misspelt


def known_names(subject: Subject) -> frozenset[str]:
    """Return the names for -D: those of the tree and of CMake, and what the front end reads."""
    names: set[str] = set(subject.cmake_variables)
    if subject.kind is ProjectKind.PYTORCH:
        names |= {*forwarding().names, *front_end_variables()}
        for option, variable in forwarding().aliases.items():
            names |= {option, variable}
    if subject.tree:
        names |= {option.name for option in subject.tree.options}
        names |= set(subject.tree.variables)
        names |= {ask.name for ask in subject.tree.asks}
    else:
        names |= {row.option for row in features().values()}
    return frozenset(names)


def check_defines(subject: Subject) -> Iterator[Finding]:
    """Refuse names that nothing reads. Without a tree, refuse only names that look misspelt."""
    known = known_names(subject)
    for setting in subject.defines:
        hint_of_find_package = setting.name.endswith(("_ROOT", "_DIR"))
        if setting.name in known or hint_of_find_package or subject.kind in _BY_ENVIRONMENT:
            continue
        if subject.tree or nearest(setting.name, known, cutoff=_MISSPELT):
            where = str(setting.origin)
            hint = "`stoker plan --options PATTERN` lists what the tree knows"
            raise unknown("option", setting.name, known, where=where, hint=hint)
        yield warning(
            "option-unchecked",
            f"{setting.name} cannot be checked without a source tree",
            advice="Name the source tree with --source DIR.",
        )


def exported_settings(subject: Subject) -> Iterator[Setting]:
    """Yield the environment variables that PyTorch's front end passes to CMake."""
    if subject.kind is not ProjectKind.PYTORCH:
        return
    known = known_names(subject)
    for name, value in sorted(subject.exported.items()):
        if name in TARGET_LISTS and subject.variant.gpus:
            continue  # its targets are those of the variant, or another list counts
        if subject.tree and name in subject.tree.printed:
            continue
        if name in known and forwarding().variable(name) == name:
            origin = Origin(kind=OriginKind.ENVIRONMENT, where=name)
            setting = Setting(place=SettingPlace.CMAKE, name=name, value=value, origin=origin)
            yield _placed(setting, subject)


def check_exported(subject: Subject) -> Iterator[Finding]:
    """Yield a note for each exported variable of PyTorch's builds that the tree does not read.

    Shells hold variables for other programs, so none is refused.
    """
    if subject.kind is not ProjectKind.PYTORCH or subject.tree is None:
        return
    known = known_names(subject)
    options = [option.name for option in subject.tree.options]
    for name in sorted(subject.exported):
        if name in subject.tree.printed:
            where = f"{subject.tree.name} only prints it in its summary"
            yield note("variable-printed", f"{name} of the environment changes nothing: {where}")
        elif name in instead_of() and (name not in known or not forwarding().variable(name)):
            title = f"{name} of the environment is not read: {instead_of()[name]}"
            yield note("variable-unknown", title)
        elif name not in known and name.startswith(("USE_", "BUILD_", "CMAKE_")):
            near = nearest(name, options, count=1, cutoff=_MISSPELT)
            meant = f"; did you mean {near[0]}?" if near else ""
            yield note(
                "variable-unknown",
                f"{name} of the environment is passed to CMake, which does not know it{meant}",
            )


def placed_defines(subject: Subject) -> Iterator[Setting]:
    """Yield the user's options. Some take effect as variables of the front end."""
    for setting in subject.defines:
        if not (setting.name in OF_CMAKE and subject.is_with_torch):  # which do not read it
            yield _placed(setting, subject)


def _placed(setting: Setting, subject: Subject) -> Setting:
    in_tree = bool(subject.tree and subject.tree.option(setting.name))
    aliases = forwarding().aliases.values()
    variables = {*front_end_variables(), *forwarding().names, *aliases}
    front_end = subject.kind is ProjectKind.PYTORCH and setting.name in variables
    # The build reads it in the environment, and CMake has no variable like it.
    asked = (
        subject.tree is not None
        and subject.tree.ask(setting.name, environment=False) is None
        and subject.tree.ask(setting.name, environment=True) is not None
    )
    if subject.kind in _BY_ENVIRONMENT or ((front_end or asked) and not in_tree):
        return environment(setting.name, setting.value, setting.origin)
    return setting


def forwarded(settings: list[Setting], recipe: Recipe) -> Iterator[Setting]:
    """Yield the environment variables by which the front end sets each CMake option."""
    for setting in settings:
        if setting.place is SettingPlace.CMAKE and (name := recipe.variable(setting.name)):
            yield environment(name, setting.value, setting.origin, setting.why)


def unforwarded(settings: list[Setting], subject: Subject, recipe: Recipe) -> Iterator[Finding]:
    """Yield a warning for each option that the front end does not pass to CMake."""
    if subject.kind is not ProjectKind.PYTORCH or not subject.has_front_end:
        return
    if subject.tree and subject.tree.front_end is FrontEnd.SCIKIT_BUILD_CORE:
        return  # it takes any option as a setting of the back end
    for setting in settings:
        if setting.place is SettingPlace.CMAKE and recipe.variable(setting.name) is None:
            yield warning(
                "option-not-forwarded",
                f"PyTorch's front end does not pass {setting.name} to CMake",
                evidence="it passes BUILD_*, USE_*, CMAKE_* and a fixed list of names",
                fix=(f"cmake -D {setting.name}={setting.value} build   # once it is configured",),
            )


def define(name: str, value: str, origin: Origin) -> Setting:
    """Return a -D option. CMake's own form ``NAME:TYPE`` is accepted."""
    name = name.partition(":")[0].strip()
    if not re.fullmatch(r"_*[A-Za-z][A-Za-z0-9_]*", name):
        hints = ["for example: -D USE_CUDNN=0"]
        raise UsageError(f"'{name}' is not a name for -D", hints=hints, where=str(origin))
    return Setting(place=SettingPlace.CMAKE, name=name, value=value, origin=origin)
