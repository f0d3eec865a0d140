"""Holds the settings of a plan against what the tree reads. Pure.

Each setting gets the place that reads it. A setting that nothing reads is reported, and so are
variables that look like a choice of GPU, back end or kernels and are not set.
"""

import re
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from stoker.knowledge.projects import reader_of
from stoker.knowledge.torch_releases import forwarding, front_end_variables
from stoker.model.evidence import EvidenceKind
from stoker.model.finding import Finding, Severity, warning
from stoker.model.setting import OriginKind, Setting, SettingPlace
from stoker.model.source import FrontEnd, ProjectKind, ReadVariable, SourceTree
from stoker.model.value import first_of
from stoker.model.variant import Backend
from stoker.plan.recipes.project import known_facts, sets_targets
from stoker.plan.subject import Subject, environment
from stoker.plan.tree_recipe import is_of_others, once_each, target_choices, tree_recipe

_MOST_NAMED = 6  # choices that are listed one by one


def with_readers(settings: Iterable[Setting], subject: Subject) -> list[Setting]:
    """Return the settings, each with the place that reads it."""
    return [replace(setting, reader=_reader(setting, subject) or "") for setting in settings]


def _reader(setting: Setting, subject: Subject) -> str | None:
    tree, name = subject.tree, setting.name
    if tree is None:
        return None
    in_environment = setting.place is SettingPlace.ENVIRONMENT
    ask = tree.ask(name, environment=in_environment)
    if ask is None and tree.kind is ProjectKind.PYTORCH:
        # Where CMake reads an environment variable that the front end passes on.
        aliases = forwarding().aliases.items()
        passed = {name, *(option for option, alias in aliases if alias == name)}
        asks = (tree.ask(option, environment=False) for option in sorted(passed))
        ask = next(filter(None, asks), None)
    if ask:
        return ask.where
    if subject.project and name in subject.project.reads:
        return f"the recipe of {subject.project.name} says so"
    if tree.kind is ProjectKind.PYTORCH and (
        name in front_end_variables() or forwarding().variable(name)
    ):
        return "PyTorch's front end"
    if subject.project and name == subject.project.cmake_args:
        return f"the recipe of {subject.project.name} says so"
    by_kind = ("CMake",) if tree.kind in (ProjectKind.CMAKE, ProjectKind.PYTORCH) else ()
    return reader_of(name, (*tree.readers, *by_kind), environment=in_environment) or (
        "CMake" if name in subject.cmake_variables else None
    )


def unread(settings: Iterable[Setting], subject: Subject) -> Iterator[Finding]:
    """Yield a warning for each setting that nothing in this tree reads."""
    tree = subject.tree
    if tree is None or not (tree.asks or tree.readers):
        return
    missing = tree.missing_submodules
    for setting in settings:
        if setting.reader or setting.origin.kind is OriginKind.MACHINE:
            continue
        unsure = f"; {missing[0]} is missing, and may read it" if missing else ""
        yield Finding(
            name="setting-unread",
            severity=Severity.NOTE if missing else Severity.WARNING,
            title=f"nothing in {tree.name} is known to read {setting.name}",
            evidence=f"set to {setting.value} by {setting.origin}{unsure}",
        )
    yield from _without_effect(settings, subject, tree)


def _without_effect(
    settings: Iterable[Setting], subject: Subject, tree: SourceTree
) -> Iterator[Finding]:
    """Yield a warning if the tree itself decides what the settings are to choose. PyTorch does not:
    it adds targets of single kernels, which its plan lists.
    """
    if subject.is_pytorch:
        return
    known = known_facts(subject)
    written = {ask.name: ask for ask in tree.overwrites}
    for setting in settings:
        if not sets_targets(setting, subject) or (known and known.chooses_targets):
            continue
        if ask := written.get(setting.name):
            yield warning(
                "setting-overwritten",
                f"{tree.name} sets {setting.name} itself",
                evidence=f"{ask.where}: the value of the plan may be lost",
            )
        elif known is not None and subject.backend_recipe is None:
            continue  # the statement about the targets says what is known
        elif tree.code.targets and setting.place is SettingPlace.ENVIRONMENT:
            yield warning(
                "targets-in-the-tree",
                (
                    f"{tree.name} writes flags for GPU targets itself, so {setting.name} may "
                    "have no effect"
                ),
                evidence=", ".join(target.where for target in tree.code.targets[:3]),
                fix=("stoker slim WHEEL   # removes targets from the finished wheel",),
            )


_GPU_WORDS = {
    Backend.CUDA: ("CUDA", "GPU", "NVIDIA"),
    Backend.ROCM: ("HIP", "ROCM", "AMD", "GPU"),
    Backend.XPU: ("XPU", "SYCL", "GPU"),
}
_SWITCH = re.compile(
    r"(?:^|_)(?:USE|WITH|ENABLE|BUILD|FORCE|KEEP|NO|SKIP|DISABLE)(?:_|$)|(?:CUDA|CPP)_EXT$"
)
_BACK_END = re.compile(r"(?:^|_)(?:COMPUTE_BACKEND|BACKEND|TARGET_DEVICE|ACCELERATOR)$")
_KERNELS = re.compile(r"BUILD_OPS$|WITH_OPS$|_EXT$|KERNELS$|NOCOMPILE$|_JIT$|PRECOMPILE")
_FURTHER = re.compile(
    r"CUDNN|NCCL|RCCL|GRAPH|TEST|EXAMPLE|BENCH|ARCHIVE|HOST|VERSION|HOME|PATH|DIR$"
)


def unset_choices(settings: Iterable[Setting], subject: Subject) -> Iterator[Finding]:
    """Yield the variables that look like a choice of GPU, back end or kernels and are not set.

    A recipe knows which of them matter, so they are named only without one.
    """
    tree = subject.tree
    if (
        tree is None
        or subject.variant.backend not in _GPU_WORDS
        or subject.backend_recipe
        or subject.is_pytorch
    ):
        return
    said = {setting.name for setting in settings}
    said |= {name for name, value in subject.exported.items() if value}
    read = tree_recipe(subject)
    if read is None or not read.recipe.compiles:
        return
    # Where the tree settles its targets, what else looks like a choice of them is none.
    settled = read.targets.kind is EvidenceKind.READ
    choices = [ask for ask in target_choices(tree, subject.variant.backend) if ask.name not in said]
    archs = [] if settled else choices
    declared = {option.name for option in tree.options}  # of CMake a user can choose only these
    own = once_each(
        ask for ask in tree.asks if ask.certain and (ask.environment or ask.name in declared)
    )
    switches = [
        ask
        for ask in own
        if ask.name not in said and ask not in choices and _is_switch(ask, subject.variant.backend)
    ]
    if archs:
        yield _finding(
            "gpu-choice-unset",
            Severity.WARNING,
            f"{tree.name} reads {_listed(archs)}, which {_looks(archs)} a choice of GPU targets",
            archs,
        )
    if switches:
        yield _finding(
            "kernel-choice-unset",
            Severity.NOTE,
            f"{tree.name} reads {_listed(switches)}, which {_looks(switches)} a choice of back "
            "end or kernels",
            switches,
        )


def back_end_unknown(subject: Subject) -> Iterator[Finding]:
    """Yield a warning if only the name of a variable speaks of the back end."""
    tree, backend = subject.tree, subject.variant.backend
    if tree and not subject.backend_recipe and (where := tree.hinted.get(backend)):
        yield warning(
            "back-end-unknown",
            f"nothing shows whether {tree.name} can be built for {backend}, nor how",
            evidence=where,
            advice="Ask its build: `stoker plan --ask`.",
        )


def _is_switch(ask: ReadVariable, backend: Backend) -> bool:
    upper, words = ask.name.upper(), _GPU_WORDS[backend]
    if _FURTHER.search(upper) or is_of_others(ask, backend):
        return False
    about_gpus = any(word in upper for word in words)
    by_name = about_gpus and (_SWITCH.search(upper) or upper.endswith(words))
    return bool(by_name or _BACK_END.search(upper) or _KERNELS.search(upper))


def _finding(name: str, severity: Severity, title: str, asks: list[ReadVariable]) -> Finding:
    places = [
        f"{ask.name}: {ask.where}" + (f", default {ask.default or 'empty'}" if ask.default else "")
        for ask in asks[:_MOST_NAMED]
    ]
    more = f"; {len(asks) - _MOST_NAMED} more" if len(asks) > _MOST_NAMED else ""
    return Finding(
        name=name,
        severity=severity,
        title=title,
        evidence="; ".join(places) + more,
        fix=(f"stoker plan ... -D {asks[0].name}=VALUE", "add a recipe: docs/reference/recipes.md"),
    )


def _listed(asks: list[ReadVariable]) -> str:
    return first_of([ask.name for ask in asks], _MOST_NAMED)


def _looks(asks: list[ReadVariable]) -> str:
    return "looks like" if len(asks) == 1 else "look like"


_CARRIER = "CMAKE_ARGS"
_OWN_CARRIER = re.compile(r"\w+_CMAKE_(?:ARGS|OPTIONS|FLAGS)")


def carried(settings: list[Setting], subject: Subject) -> tuple[list[Setting], list[Finding]]:
    """Return the settings as they reach CMake through a setup.py that calls it itself.

    An option is set in the environment if the tree reads it there, else in the variable whose words
    setup.py passes on. What reaches CMake in neither way is left out and reported.
    """
    tree = subject.tree
    if tree is None or tree.kind is not ProjectKind.CMAKE or not subject.has_front_end:
        return settings, []
    if tree.front_end in (FrontEnd.CMAKE, FrontEnd.SCIKIT_BUILD_CORE):
        return settings, []
    carrier = _carrier(subject, tree)
    words: list[Setting] = []
    kept, lost = [], []
    for setting in settings:
        if setting.place is not SettingPlace.CMAKE:
            kept.append(setting)
        elif tree.ask(setting.name, environment=True):
            kept.append(replace(setting, place=SettingPlace.ENVIRONMENT))
        elif carrier and not re.search(r"\s" if carrier == _CARRIER else r"[\s;]", setting.value):
            words.append(setting)
            kept.append(setting)
        else:
            lost.append(setting)
    if words and carrier:
        own = subject.exported.get(carrier, "")
        text = " ".join(f"-D{setting.name}={setting.value}" for setting in words)
        strongest = max(words, key=lambda setting: setting.origin.kind.rank)
        why = "the build passes these words to CMake" + ("; your own come last" if own else "")
        kept.append(environment(carrier, f"{text} {own}".strip(), strongest.origin, why))
    asked = [setting for setting in lost if setting.origin.kind.rank > OriginKind.MACHINE.rank]
    if not asked:
        return kept, []
    because = f"{tree.front_end} was not found to pass options on to CMake"
    if carrier:
        because = f"a value with blanks cannot be passed in {carrier}"
    names = ", ".join(setting.name for setting in asked)
    title = f"{names} cannot reach the CMake of {tree.name}"
    return kept, [warning("option-not-passed", title, evidence=because)]


def _carrier(subject: Subject, tree: SourceTree) -> str | None:
    if subject.project and subject.project.cmake_args:
        return subject.project.cmake_args
    if tree.ask(_CARRIER, environment=True) or reader_of(_CARRIER, tree.readers, environment=True):
        return _CARRIER
    own = [ask.name for ask in tree.asks if ask.environment and _OWN_CARRIER.fullmatch(ask.name)]
    return own[0] if len(own) == 1 else None
