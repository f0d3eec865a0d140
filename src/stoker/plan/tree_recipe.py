"""What the files of a tree say about one back end, in the form of a recipe. Pure.

For trees without a recipe. What the files do not settle is left open: ``TreeRecipe.targets`` says
how the targets are known, and a tree whose targets are not known states none.
"""

import re
from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from stoker.knowledge.gpus import cuda_archs, runs_on
from stoker.knowledge.projects import reader_of
from stoker.model.evidence import Evidence, EvidenceKind
from stoker.model.recipe import BackendRecipe, FixedTargets, Switch
from stoker.model.source import (
    CMakeOption,
    CudaCode,
    FrontEnd,
    NamedTarget,
    ProjectKind,
    ReadVariable,
    SourceTree,
)
from stoker.model.value import Value
from stoker.model.variant import (
    BACKEND_WORDS,
    NO_BACKEND_WORDS,
    Backend,
    GpuTarget,
    are_backends,
)
from stoker.plan.subject import Subject, once

FIND_CUDA_FLAGS = "CUDA_NVCC_FLAGS"  # of the deprecated FindCUDA, which reads no list of targets
_IF_FOUND = re.compile(r"(?:NOT )?\w*(?:CUDA|HIP)\w*_FOUND")
_OTHER_USE = re.compile(r"CLANG|STATIC|TEST|EXAMPLE|BENCH|DOC|COMPILES")
_NATIVE = re.compile(
    r"(?:\w+_)?(?:(?:USE|ENABLE|WITH|BUILD)_)?(?:(?:M?ARCH|CPU)_)?NATIVE(?:_(?:ARCH|CODE|SIMD))?"
)
# An option that leaves a back end out if it is on.
_WITHOUT = re.compile(
    r"(?:\w+_)?(?:CPU_ONLY|(?:NO|DISABLE|WITHOUT|SKIP)_(?:CUDA|GPU))", re.IGNORECASE
)
_CUDA_FLAG = re.compile(r"--(?:(?:force|with|use|enable|build)[-_])?(?:cuda|gpu)(?:[-_]ext)?")
_CPU_FLAG = re.compile(r"--(?:cpu[-_]only|cpu|(?:no|disable|without)[-_](?:cuda|gpu))")
_ARCH_OPTION = re.compile(r"(?:\w+_)?ARCH_\w*?[A-Z_](\d{2,3})")
_DIGITS = re.compile(r"\d{2,3}(?:([,; ])\d{2,3})*")
_DOTTED = re.compile(r"\d+\.\d[af]?(?:\+PTX)?(?:([,; ])\d+\.\d[af]?(?:\+PTX)?)*")
# Variables that name GPU targets, by the words of their names.
_ARCH_NAME = re.compile(
    r"(?:CUDA|GPU|GPUS|HIP|ROCM|AMDGPU|NVCC|(?<![A-Z])SM|XPU|SYCL)_?\w*?"
    r"(?:ARCHS?|ARCHES|ARCHITECTURES?|CAPABILIT\w+|TARGETS?|GENERATE_CODE|GENCODE|DEVICE_ARCH)"
    r"(?:_LIST|_BIN|_NAME)?|COMPUTE_CAPABILIT\w+|GPU_COMPUTE_VER|^SMS?$",
    re.IGNORECASE,
)
_NO_CHOICE = re.compile(
    r"SUPPORTED|DEFAULT|KNOWN|NATIVE|_ALL|FILTERED|FLAGS|READABLE|FOUND|MINIMUM|REPORTED|REQUIRED|HAVE_"
)
_OF_OTHERS = {
    Backend.CUDA: re.compile(
        r"HIP|ROCM|AMD|SYCL|XPU|OPENCL|VULKAN|WEBGPU|METAL|MARCH", re.IGNORECASE
    ),
    Backend.ROCM: re.compile(r"CUDA|NVCC|SYCL|XPU|OPENCL|VULKAN|WEBGPU|METAL|MARCH", re.IGNORECASE),
    Backend.XPU: re.compile(r"CUDA|NVCC|HIP|ROCM|AMD|VULKAN|WEBGPU|METAL|MARCH", re.IGNORECASE),
}


class TreeRecipe(Value, frozen=True, kw_only=True):
    """``recipe`` holds what is known. ``targets`` is the evidence of the targets; of the kind
    ``assumed`` with ``known`` false, they are not known at all.
    """

    recipe: BackendRecipe
    targets: Evidence
    known: bool = True
    places: dict[str, str] = {}  # of a setting: where the tree declares or reads it


def names_targets(name: str, backend: Backend | None = None) -> bool:
    """Tell whether a variable looks like a choice of GPU targets, of one back end if given."""
    found = _ARCH_NAME.search(name)
    others = _OF_OTHERS.get(backend) if backend else None
    return (
        bool(found) and not _NO_CHOICE.search(name.upper()) and not (others and others.search(name))
    )


def is_of_others(ask: ReadVariable, backend: Backend) -> bool:
    """Tell whether a variable belongs to another back end, by its name, condition or file."""
    others = _OF_OTHERS[backend]
    return any(others.search(text) for text in (ask.name, ask.within or "", ask.where))


def target_choices(tree: SourceTree, backend: Backend) -> list[ReadVariable]:
    """Return the variables that look like a choice of GPU targets and that a user can set."""
    return once_each(
        ask
        for ask in tree.asks
        if ask.certain
        and ask.name not in ("CMAKE_CUDA_ARCHITECTURES", "CMAKE_HIP_ARCHITECTURES")
        and names_targets(ask.name, backend)
        and not is_of_others(ask, backend)
    )


def once_each(asks: Iterable[ReadVariable]) -> list[ReadVariable]:
    """Return the first place of each variable, those of the environment first."""
    found: dict[str, ReadVariable] = {}
    for ask in asks:
        found.setdefault(ask.name, ask)
    return sorted(found.values(), key=lambda ask: (not ask.environment, ask.where, ask.name))


@once
def tree_recipe(subject: Subject) -> TreeRecipe | None:
    """Return what the tree says about the back end of the variant; ``None`` with a recipe."""
    tree = subject.tree
    if tree is None or subject.backend_recipe or tree.kind is ProjectKind.PYTORCH:
        return None
    if not tree.code.compiles:
        nothing = _read("setup.py: it has no extension")
        return TreeRecipe(recipe=BackendRecipe(compiles=False), targets=nothing)
    if why := tree.hinted.get(subject.variant.backend):
        return _unknown(BackendRecipe(), f"{why}, and nothing that was read shows what follows")
    return _by_cmake(subject, tree) if tree.kind is ProjectKind.CMAKE else _by_setup(subject, tree)


def _by_setup(subject: Subject, tree: SourceTree) -> TreeRecipe:
    backend = subject.variant.backend
    # The argument of setup.py that chooses the back end, as a setting of setuptools.
    arguments: dict[str, str] = {}
    pattern = {Backend.CUDA: _CUDA_FLAG, Backend.CPU: _CPU_FLAG}.get(backend)
    if pattern and tree.front_end is FrontEnd.SETUPTOOLS:
        found = [flag.name for flag in tree.code.flags if pattern.fullmatch(flag.name)]
        arguments = {"--build-option": found[0]} if len(found) == 1 else {}
    if backend not in _OF_OTHERS:
        off = (tree.code.without_cuda or {}) if backend is Backend.CPU else {}
        known = BackendRecipe(environment=off, backend_settings=arguments)
        return TreeRecipe(recipe=known, targets=_assumed("no device code"))
    if tree.code.device_source is None:
        if choices := target_choices(tree, backend):
            chooses = f"{choices[0].where} reads {choices[0].name}"
            known = BackendRecipe(backend_settings=arguments)
            return _unknown(known, f"no source for GPUs was found, but {chooses}")
        known = BackendRecipe(compiles=False, backend_settings=arguments)
        where = f"{tree.front_end}: its build lists no source for GPUs"
        return TreeRecipe(recipe=known, targets=_read(where))
    seen = bool(subject.machine.gpus) or not subject.here
    named = [each for each in _named(tree, backend) if not (seen and each.without_gpu)]
    if not named:
        return _by_torch(tree, backend, arguments)
    if all(target.arch and not target.conditional for target in named):
        return _fixed(subject, named, arguments)
    return _by_variable(tree, named, arguments)


def _named(tree: SourceTree, backend: Backend) -> list[NamedTarget]:
    """Return the targets of a back end that the tree names itself."""
    return [target for target in tree.code.targets if target.amd is (backend is Backend.ROCM)]


def _by_torch(tree: SourceTree, backend: Backend, arguments: dict[str, str]) -> TreeRecipe:
    """Return the recipe of an extension that leaves the targets to torch, or that is not known."""
    lists = {Backend.CUDA: "TORCH_CUDA_ARCH_LIST", Backend.ROCM: "PYTORCH_ROCM_ARCH"}
    name = lists.get(backend, "TORCH_XPU_ARCH_LIST")
    reader = reader_of(name, tree.readers, environment=True)
    known, source = BackendRecipe(backend_settings=arguments), tree.code.device_source
    if reader and not any(ask.name == name for ask in tree.overwrites):
        return TreeRecipe(recipe=known, targets=_read(f"{source}, and {reader} reads {name}"))
    return _unknown(known, f"nothing was read that chooses the targets of {source}")


def _fixed(subject: Subject, named: list[NamedTarget], arguments: dict[str, str]) -> TreeRecipe:
    """Return the recipe of a tree that names its targets, some of them by a variable."""
    plain = [_written(target) for target in named if not target.variable]
    by_variable: dict[str, list[NamedTarget]] = {}
    for target in named:
        if target.variable:
            by_variable.setdefault(target.variable, []).append(target)
    switches = []
    for name, targets in by_variable.items():
        serves = [
            gpu.arch
            for gpu in subject.gpus
            for target in targets
            if target.amd or runs_on(GpuTarget(arch=target.arch, ptx=target.ptx), gpu.plain)
        ]
        # A value is set only where it changes what the tree does by itself.
        switch = Switch(
            name=name,
            archs=tuple(_written(target) for target in targets),
            serves=(*dict.fromkeys(serves), "-"),
            on=targets[0].includes,
            off=targets[0].excludes,
        )
        switches.append(switch)
    wanted = {target.arch for target in subject.gpus}
    chosen = {switch.name for switch in switches if wanted & set(switch.serves)}
    places = [t.where for t in named if not t.variable or t.variable in chosen]
    return TreeRecipe(
        recipe=BackendRecipe(
            fixed=(FixedTargets(archs=tuple(dict.fromkeys(plain))),),
            switches=tuple(switches),
            backend_settings=arguments,
        ),
        targets=_read(", ".join(dict.fromkeys(places[:4]))),
        places={target.variable: target.where for target in named if target.variable},
    )


def _written(target: NamedTarget) -> str:
    return f"{target.arch}+PTX" if target.ptx else target.arch


def _by_variable(
    tree: SourceTree, named: list[NamedTarget], arguments: dict[str, str]
) -> TreeRecipe:
    """Return the recipe of a tree that computes its targets from one variable, if its default shows
    how they are written.
    """
    choices = target_choices(tree, Backend.CUDA)
    single = tuple(dict.fromkeys(_written(target) for target in named if target.single))
    computed = next(target.where for target in named if not target.arch or target.conditional)
    literal = [target for target in named if target.arch and not target.single]
    if len(choices) == 1 and not literal:
        ask = choices[0]
        for pattern, form in ((_DIGITS, "{digits}"), (_DOTTED, "{torch}")):
            if found := pattern.fullmatch(ask.default or ""):
                known = BackendRecipe(
                    environment={ask.name: form},
                    separator=found[1] or ",",
                    suffixes=form == "{torch}",
                    accepts=single,
                    backend_settings=arguments,
                )
                targets = _read(f"{ask.where}, used at {computed}")
                return TreeRecipe(recipe=known, targets=targets, places={ask.name: ask.where})
    known = BackendRecipe(backend_settings=arguments, accepts=single)
    return _unknown(known, f"{computed} computes the flags for GPU targets")


def _unknown(known: BackendRecipe, why: str, places: dict[str, str] | None = None) -> TreeRecipe:
    return TreeRecipe(recipe=known, targets=_assumed(why), known=False, places=places or {})


def _read(where: str) -> Evidence:
    return Evidence(kind=EvidenceKind.READ, where=where)


def _assumed(why: str) -> Evidence:
    return Evidence(kind=EvidenceKind.ASSUMED, where=why)


def _by_cmake(subject: Subject, tree: SourceTree) -> TreeRecipe:
    backend = subject.variant.backend
    settings: dict[str, str] = {}
    places: dict[str, str] = {}
    for name, value, place in _back_ends(tree, backend):
        settings[name], places[name] = value, place
    for option in tree.options:
        # Code of the build machine's CPU is switched off.
        is_native = option.type == "BOOL" and _NATIVE.fullmatch(option.name.upper())
        if is_native and option.default != "OFF" and option.within is None:
            settings[option.name], places[option.name] = "OFF", option.where
    read = _read_by_cmake(subject, tree, settings, places)
    by_variable = dict(_compared(tree, backend, environment=True))
    if not by_variable:
        return read
    recipe = replace(read.recipe, environment=read.recipe.environment | by_variable)
    return replace(read, recipe=recipe)


def _read_by_cmake(
    subject: Subject, tree: SourceTree, settings: dict[str, str], places: dict[str, str]
) -> TreeRecipe:
    backend = subject.variant.backend
    if backend not in _OF_OTHERS:
        known = BackendRecipe(cmake=settings)
        return TreeRecipe(recipe=known, targets=_assumed("no device code"), places=places)
    options = _arch_options(subject, tree) if backend is Backend.CUDA else {}
    spoken = options or target_choices(tree, backend)
    if backend is Backend.CUDA and tree.cuda_code is CudaCode.NONE and not spoken:
        nothing = _read("no CMake file enables CUDA or calls nvcc")
        known = BackendRecipe(cmake=settings, compiles=False)
        return TreeRecipe(recipe=known, targets=nothing, places=places)
    on = ("ON", *BACKEND_WORDS.get(backend, ()))
    switched = any(value.upper() in on for value in settings.values())
    if not switched and tree.code.device_source is None:
        why = f"no source for GPUs was found, and no option that switches {backend} on"
        return _unknown(BackendRecipe(cmake=settings), why, places)
    if options:
        settings |= dict.fromkeys(options, "ON")
        places |= options
        # The list of CMake itself would be a second, contrary choice.
        own = BackendRecipe(cmake=settings, chooses=True)
        return TreeRecipe(recipe=own, targets=_read(", ".join(options.values())), places=places)
    certain = switched or (backend is Backend.CUDA and tree.requires_cuda)
    return _by_list(tree, backend, settings, places, gpus=subject.gpus, certain=certain)


def _by_list_of_the_tree(
    named: list[NamedTarget],
    sure: list[NamedTarget],
    gpus: Iterable[GpuTarget],
    known: BackendRecipe,
    places: dict[str, str],
) -> TreeRecipe:
    """Return the recipe of a project that writes its targets itself. What it adds on a condition is
    compiled as well where that holds, so a refusal needs all of them.
    """
    others = [target for target in named if target not in sure]
    evidence = _read(sure[0].where)
    if others:
        evidence = _assumed(f"at least these; {others[0].where} adds others on a condition")
    if not all(target.arch for target in others):
        return _unknown(known, f"{sure[0].where} names targets, and others are computed", places)
    if not any(_serves(target, gpus) for target in sure):
        sure = [*sure, *others]
    archs = tuple(dict.fromkeys(_written(target) for target in sure))
    known = replace(known, fixed=(FixedTargets(archs=archs),))
    return TreeRecipe(recipe=known, targets=evidence, places=places)


def _serves(target: NamedTarget, gpus: Iterable[GpuTarget]) -> bool:
    if target.amd:
        return target.arch in {gpu.arch for gpu in gpus}
    made = GpuTarget(arch=target.arch, ptx=target.ptx)
    return any(runs_on(made, gpu.plain) for gpu in gpus)


def _by_list(
    tree: SourceTree,
    backend: Backend,
    settings: dict[str, str],
    places: dict[str, str],
    *,
    gpus: Iterable[GpuTarget],
    certain: bool,
) -> TreeRecipe:
    """Return the recipe of a project that CMake's own list of targets is given. ``certain``, if
    this build has the back end, and not only another one of the same files.
    """
    named = _named(tree, backend)
    sure = [target for target in named if not target.conditional and target.arch]
    if sure:
        return _by_list_of_the_tree(named, sure, gpus, BackendRecipe(cmake=settings), places)
    if backend is Backend.CUDA and tree.cuda_code is CudaCode.FIND_CUDA:
        flags = {FIND_CUDA_FLAGS: "-gencode={gencode}"}
        known = BackendRecipe(cmake=settings | flags, separator=";-gencode=", suffixes=False)
        evidence = _read(f"{tree.code.device_source}, and FindCUDA reads {FIND_CUDA_FLAGS}")
        if named:
            return _unknown(
                known, f"{named[0].where} writes flags for GPUs, which FindCUDA passes on"
            )
        if rivals := target_choices(tree, backend):
            other = f"{rivals[0].name} ({rivals[0].where})"
            return _unknown(known, f"FindCUDA compiles them, and {other} may choose their targets")
        return TreeRecipe(recipe=known, targets=evidence, places=places)
    name = "CMAKE_HIP_ARCHITECTURES" if backend is Backend.ROCM else "CMAKE_CUDA_ARCHITECTURES"
    evidence = _read(f"{tree.code.device_source}, and CMake reads {name}")
    rivals = target_choices(tree, backend)
    replacing = next((target.where for target in named if target.replaces), None)
    computed = next((t.where for t in named if t.replaces and not t.arch), None)
    if rivals and backend is Backend.CUDA and tree.cuda_code is CudaCode.UNKNOWN:
        why = f"nothing enables CUDA as a language, and {rivals[0].where} reads {rivals[0].name}"
        return _unknown(BackendRecipe(cmake=settings), why, places)
    if rivals and replacing:
        other = f"{rivals[0].name} ({rivals[0].where})"
        why = f"{replacing} may replace {name}, and {other} may choose the targets"
        return _unknown(BackendRecipe(cmake=settings), why, places)
    if computed:
        why = f"{computed} replaces {name} by what it computes"
        return _unknown(BackendRecipe(cmake=settings), why, places)
    if replacing:
        why = f"CMake reads {name}, but {replacing} may replace it"
        return _unknown(BackendRecipe(cmake=settings), why, places)
    if rivals:
        other = f"{rivals[0].name} ({rivals[0].where})"
        evidence = _assumed(f"CMake reads {name}, but {other} may choose other targets")
    elif named:
        evidence = _assumed(f"CMake reads {name}, but {named[0].where} also writes flags for GPUs")
    elif tree.code.device_source is None:
        evidence = _assumed(f"CMake reads {name}, but no source for GPUs was found")
    elif not certain:
        why = f"CMake reads {name}, but nothing shows that this build has {tree.code.device_source}"
        evidence = _assumed(why)
    return TreeRecipe(recipe=BackendRecipe(cmake=settings), targets=evidence, places=places)


def _back_ends(tree: SourceTree, wanted: Backend) -> Iterator[tuple[str, str, str]]:
    """Yield the options that switch back ends on and off: name, value and place."""
    compared = list(_compared(tree, wanted, environment=False))
    # An option chooses among them if it can also be off or choose the CPU, or is one of several.
    by_choice = {
        option.name: option
        for option in tree.options
        if option.within is None and are_backends(option.choices)
    }
    if not by_choice and compared:
        places = {ask.name: ask.where for ask in tree.asks if not ask.environment}
        yield from ((name, value, places[name]) for name, value in compared)
        return
    if len(by_choice) == 1:
        (option,) = by_choice.values()
        value = _choice(option.choices, BACKEND_WORDS.get(wanted, NO_BACKEND_WORDS))
        if value and value.upper() != option.default.upper():
            yield option.name, value, option.where
        return
    without = {Backend.CPU: "ON", Backend.CUDA: "OFF"}.get(wanted, "")
    for option in tree.options if without else ():
        # An option that leaves CUDA out, as it should be: ``CPU_ONLY``.
        fits = option.type == "BOOL" and option.within is None and _WITHOUT.fullmatch(option.name)
        if fits and option.default != without:
            yield option.name, without, option.where
    for backend, words in BACKEND_WORDS.items():
        declared = _switch_option(tree, words)
        if declared is None and backend is Backend.CUDA:
            declared = _guard_option(tree)
        if declared is None:
            continue
        on = backend is wanted
        if on or tree.passed.get(declared.name, declared.default) not in ("OFF", "FALSE", "0"):
            yield declared.name, "ON" if on else "OFF", declared.where


def _choice(choices: tuple[str, ...], words: tuple[str, ...]) -> str | None:
    return next((choice for choice in choices if choice.upper() in words), None)


def _compared(tree: SourceTree, wanted: Backend, *, environment: bool) -> Iterator[tuple[str, str]]:
    """Yield the variable that the build compares with names of back ends, if there is one, and the
    name of the one that is wanted.
    """
    asks = {
        ask.name: ask
        for ask in tree.asks
        if ask.environment is environment and ask.certain and are_backends(ask.compared)
    }
    if len(asks) == 1:
        (ask,) = asks.values()
        value = _choice(ask.compared, BACKEND_WORDS.get(wanted, NO_BACKEND_WORDS))
        if value and value != ask.default:
            yield ask.name, value


def _switch_option(tree: SourceTree, words: tuple[str, ...]) -> CMakeOption | None:
    """Return the option for a back end, if exactly one is declared for every configuration. That of
    the whole project comes before those of its parts, which have more words in their names.
    """
    plain = rf"(?:(?:USE|WITH|ENABLE|BUILD)_)?(?:{'|'.join(words)})(?:_(?:LIB|ENABLED|SUPPORT))?"
    of_project = re.compile(rf"(?:{re.escape(tree.name)}_)?{plain}", re.IGNORECASE)
    found: dict[str, CMakeOption] = {}
    for each in tree.options:
        fits = re.fullmatch(rf"(?:\w+_)?{plain}", each.name)
        always = each.within is None or _IF_FOUND.fullmatch(each.within)
        if fits and always and each.type == "BOOL" and not _OTHER_USE.search(each.name.upper()):
            found.setdefault(each.name, each)
    whole = [name for name in found if of_project.fullmatch(name)]
    names = whole if len(found) > 1 else list(found)
    return found[names[0]] if len(names) == 1 else None


def _guard_option(tree: SourceTree) -> CMakeOption | None:
    """Return the option under which alone the project enables CUDA, whatever it is called."""
    guards = {
        each.name: each
        for each in tree.options
        if each.name in tree.cuda_switches and each.within is None and each.type == "BOOL"
    }
    return next(iter(guards.values())) if len(tree.cuda_switches) == len(guards) == 1 else None


def _arch_options(subject: Subject, tree: SourceTree) -> dict[str, str]:
    """Return the options that are one target each, for the GPUs asked for, with their places.

    Empty unless all GPUs have one.
    """
    wanted = {target.plain.replace(".", ""): target for target in subject.gpus}
    known = {arch.replace(".", "") for arch in cuda_archs()}
    options: dict[str, CMakeOption] = {}
    for option in tree.options:
        found = _ARCH_OPTION.fullmatch(option.name)
        about = re.search(r"NVIDIA|CUDA|\bsm_|\bCC \d", f"{option.name} {option.help}")
        if found and about and option.type == "BOOL" and found[1] in known:
            options.setdefault(found[1], option)
    if not wanted or not set(wanted) <= set(options):
        return {}
    return {options[number].name: options[number].where for number in wanted}
