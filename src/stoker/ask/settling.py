"""Finds settings that make a build compile what its variant asks for. Pure.

A build says what it looks at: variables, words of its command line, options of CMake. Those whose
names say that they choose a back end, targets or CPU instructions are candidates. Whether one has
the effect that its name promises is not guessed: the build is asked again with it.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from enum import StrEnum

from msgspec.structs import replace

from stoker.ask.values import Asked, AskedOption
from stoker.knowledge.gpus import runs_on
from stoker.model.plan import Plan
from stoker.model.recipe import BackendRecipe, Switch
from stoker.model.setting import SettingPlace, is_on
from stoker.model.value import Value
from stoker.model.variant import Backend, GpuTarget, plain_arch
from stoker.plan.compiled import KernelTargets, sm
from stoker.plan.recipes.project import known_facts, sets_targets
from stoker.plan.subject import Subject
from stoker.plan.tree_recipe import FIND_CUDA_FLAGS, names_targets

_GPU = {
    Backend.CUDA: r"CUDA|GPU|NVIDIA",
    Backend.ROCM: r"HIP|ROCM|AMD|GPU",
    Backend.XPU: r"SYCL|XPU|GPU",
    Backend.VULKAN: r"VULKAN",
    Backend.MPS: r"METAL|MPS",
}
_ANY_GPU = "CUDA|GPU|NVIDIA|HIP|ROCM|AMD|SYCL|XPU"
_ON = r"(?:USE|WITH|ENABLE|BUILD|FORCE|HAVE)"
_OFF = r"(?:NO|SKIP|DISABLE|WITHOUT)"
_NATIVE = re.compile(r"(?:^|_)NATIVE(?:_|$)|_NATIVE_ARCH$|MARCH_NATIVE", re.IGNORECASE)
_MOST_READ = 3  # variables that are tried because a file of the tree reads them
_OF_CHOICES = re.compile(r"(?:GPU|BACK_?ENDS?|DEVICE|ACCELERATOR|API)$", re.IGNORECASE)
_NUMBERED = re.compile(r"\b(\d+)\s*[-=:]\s*(\w+)")  # "0 - Vulkan, 1 - CUDA"
_GENERIC = (
    *("CMAKE_BUILD_TYPE", "CMAKE_CUDA_COMPILER", "CUDAToolkit_ROOT"),
    *("CUDA_HOME", "CUDACXX", "CUDA_PATH"),
)
_TEMPLATES = {
    "CMAKE_CUDA_ARCHITECTURES": "{cmake}",
    "CMAKE_HIP_ARCHITECTURES": "{names}",
    "TORCH_CUDA_ARCH_LIST": "{torch}",
    "PYTORCH_ROCM_ARCH": "{names}",
}


class Lack(StrEnum):
    """What a build does not do although its variant asks for it."""

    DEVICE_CODE = "it compiles no device code"
    TARGETS = "it compiles for other targets"
    NO_DEVICE_CODE = "it compiles device code"
    ANY_CPU = "it compiles for the CPU of the build machine"


class Trial(Value, frozen=True, kw_only=True):
    """A recipe to ask the build with, and what it changes."""

    recipe: BackendRecipe
    change: str


def lacks(subject: Subject, asked: Asked) -> Iterator[Lack]:
    """Yield what is wrong with an answer."""
    wants = subject.variant.backend is not Backend.CPU
    if not asked.answered and not wants:
        return
    if wants and not asked.device_compiles:
        yield Lack.DEVICE_CODE
    elif wants and (not serves(subject, asked) or extra_targets(subject, asked)):
        yield Lack.TARGETS
    if not wants and asked.device_compiles:
        yield Lack.NO_DEVICE_CODE
    if asked.cpu_flags and subject.variant.cpu is None:
        yield Lack.ANY_CPU


def serves(subject: Subject, asked: Asked) -> bool:
    """Tell whether the code of a build runs on the GPUs that were asked for."""
    if subject.variant.backend is not Backend.CUDA:
        return {target.arch for target in subject.gpus} <= set(asked.cubins)
    made = [GpuTarget(arch=arch) for arch in asked.cubins]
    made += [GpuTarget(arch=arch, ptx=True) for arch in asked.ptx]
    return all(
        any(runs_on(candidate, target.plain) for candidate in made) for target in subject.gpus
    )


_TARGET = re.compile(r"sm_(\d+)(\d[af]?)|PTX of (.*)")


def runs_kernel(targets: Iterable[str], gpu: str) -> bool:
    """Tell whether code for targets, written ``sm_90a`` or ``PTX of 9.0``, runs on a GPU."""
    for found in filter(None, map(_TARGET.fullmatch, targets)):
        arch = found[3] or f"{found[1]}.{found[2]}"
        if runs_on(GpuTarget(arch=arch, ptx=bool(found[3])), plain_arch(gpu)):
            return True
    return False


def extra_targets(subject: Subject, asked: Asked) -> tuple[str, ...]:
    wanted = {target.plain for target in subject.gpus}
    return tuple(arch for arch in asked.cubins if plain_arch(arch) not in wanted)


def score(subject: Subject, asked: Asked) -> tuple[float, ...]:
    """Return a value that is higher for a better answer."""
    if subject.variant.backend is Backend.CPU:
        return (asked.answered, -asked.device_compiles, -len(asked.cpu_flags))
    return (
        asked.device_compiles > 0,
        serves(subject, asked),
        -len(extra_targets(subject, asked)),
        not asked.stopped,
        -len(asked.cpu_flags),
    )


def described(subject: Subject, plan: Plan, asked: Asked) -> BackendRecipe:
    """Return what the files of the tree say, with the settings of the plan that its build looks
    at, as a recipe.
    """
    read_of_tree = known_facts(subject) or BackendRecipe()
    templates = _TEMPLATES | read_of_tree.environment | read_of_tree.cmake
    environment, cmake = dict[str, str](), dict[str, str]()
    read = {variable.name for variable in asked.variables}
    for setting in (*plan.environment, *plan.cmake):
        in_cmake = setting.place is SettingPlace.CMAKE
        used = setting.name not in asked.unused if in_cmake else setting.name in read
        own = setting.name in {each.name for each in subject.defines}
        if setting.name in _GENERIC or not used or own or setting.why.startswith("your own"):
            continue
        value = templates.get(setting.name, setting.value)
        if value == setting.value and (
            sets_targets(setting, subject) or not _is_plain(setting.name)
        ):
            continue
        (cmake if in_cmake else environment)[setting.name] = value
    return replace(read_of_tree, environment=environment, cmake=cmake, compiles=True)


def _is_plain(name: str) -> bool:
    """Tell whether a setting belongs to the project, and not to the machine or the user."""
    return not name.endswith(("_JOBS", "PARALLEL_LEVEL", "FLAGS", "VISIBLE_DEVICES"))


def setting_trials(
    lack: Lack, subject: Subject, known: BackendRecipe, asked: Asked
) -> Iterator[Trial]:
    """Yield the recipes that may help, most likely first."""
    match lack:
        case Lack.DEVICE_CODE:
            yield from _switched(subject, known, asked, on=True)
        case Lack.NO_DEVICE_CODE:
            yield from _switched(subject, known, asked, on=False)
        case Lack.TARGETS:
            yield from target_trials(subject, known, asked)
        case Lack.ANY_CPU:
            for option in asked.options:
                if option.type == "BOOL" and is_on(option.value) and _NATIVE.search(option.name):
                    yield _with_option(known, option.name, "OFF")


def _switched(subject: Subject, known: BackendRecipe, asked: Asked, *, on: bool) -> Iterator[Trial]:
    """Yield recipes that switch the back end on, or all of them off."""
    words = _GPU.get(subject.variant.backend, _ANY_GPU) if on else _ANY_GPU
    switch = _switch_named(words)
    others = _others_off(asked, switch) if on else {}
    for option in asked.options:
        if (
            option.type == "BOOL"
            and is_on(option.value) is not on
            and switch.fullmatch(option.name)
        ):
            yield _with_option(known, option.name, "ON" if on else "OFF")
            if others:  # a project may have one back end at a time
                alone = {**known.cmake, **others, option.name: "ON"}
                change = f"{option.name}=ON, {', '.join(others)}=OFF"
                yield Trial(recipe=replace(known, cmake=alone), change=change)
        elif choice := _choice(option, words, on=on):
            yield _with_option(known, option.name, choice)
    positive = re.compile(rf"(?:^|_){_ON}_(?:\w+_)?(?:{words})|(?:{words})_EXT$", re.IGNORECASE)
    negative = re.compile(rf"(?:^|_){_OFF}_(?:\w+_)?(?:{words})|CPU_ONLY$", re.IGNORECASE)
    for variable in asked.variables:
        name = variable.name
        if negative.search(name):
            yield _with_variable(known, name, "0" if on else "1")
        elif positive.search(name) or switch.fullmatch(name):
            yield _with_variable(known, name, "1" if on else "0")
    for word in asked.words:
        name = word.name.strip("-").replace("-", "_")
        if (negative if not on else positive).search(name):
            settings = {**known.backend_settings, "--build-option": word.name}
            yield Trial(recipe=replace(known, backend_settings=settings), change=word.name)


def _switch_named(words: str) -> re.Pattern[str]:
    return re.compile(rf"(?:\w+_)?(?:{_ON}_)?(?:{words})(?:_BACK_?END)?", re.IGNORECASE)


def _others_off(asked: Asked, wanted: re.Pattern[str]) -> dict[str, str]:
    """Return the settings that switch off the other back ends that are on."""
    switch = _switch_named(_ANY_GPU)
    return {
        option.name: "OFF"
        for option in asked.options
        if option.type == "BOOL"
        and is_on(option.value)
        and switch.fullmatch(option.name)
        and not wanted.fullmatch(option.name)
    }


def _choice(option: AskedOption, words: str, *, on: bool) -> str | None:
    """Return the choice of an option of several that names a back end, or none of them."""
    if option.type != "STRING" or not _OF_CHOICES.search(option.name):
        return None
    for number, named in _NUMBERED.findall(option.help):
        if on and re.fullmatch(words, named, re.IGNORECASE) and number != option.value:
            return str(number)
    listed = option.choices or tuple(re.findall(r"\b[A-Z][A-Za-z]{2,}\b", option.help))
    wanted = words if on else "OFF|NONE|CPU"
    found = (choice for choice in listed if re.fullmatch(wanted, choice, re.IGNORECASE))
    return next((choice for choice in found if choice != option.value), None)


def target_trials(subject: Subject, known: BackendRecipe, asked: Asked) -> Iterator[Trial]:
    """Yield recipes that choose the targets in another way."""
    yield from _listed_targets(subject, known, asked)
    yield from _one_switch_each(subject, known, asked)
    if serves(subject, asked):
        yield from _without_others(subject, known, asked)


def without_targets(known: BackendRecipe) -> BackendRecipe:
    """Return a recipe without the settings that name targets."""
    return replace(
        known, environment=_untargeted(known.environment), cmake=_untargeted(known.cmake)
    )


def _untargeted(given: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in given.items() if "{" not in text}


def _listed_targets(subject: Subject, before: BackendRecipe, asked: Asked) -> Iterator[Trial]:
    """Yield a recipe for each variable or option that takes a list of targets."""
    named = {*before.environment, *before.cmake}
    known = without_targets(before)
    for variable in asked.variables:
        if names_targets(variable.name) and variable.name not in named:
            default = variable.value or variable.default or ""
            separator = "," if "," in default else ";"
            for form in _forms(default):
                recipe = replace(known, separator=separator, suffixes=False)
                yield _with_variable(recipe, variable.name, form)
    for option in asked.options:
        if option.type == "STRING" and names_targets(option.name) and option.name not in named:
            for form in _forms(option.value):
                separator = "," if "," in option.value else ";"
                recipe = replace(known, separator=separator, suffixes=False)
                yield _with_option(recipe, option.name, form)
    if FIND_CUDA_FLAGS in {option.name for option in asked.options} - named:
        recipe = replace(known, separator=";-gencode=", suffixes=False)
        yield _with_option(recipe, FIND_CUDA_FLAGS, "-gencode={gencode}")
    if asked.way == "cmake":
        if "CMAKE_CUDA_ARCHITECTURES" not in named:
            yield _with_option(known, "CMAKE_CUDA_ARCHITECTURES", "{cmake}")
        yield from _read_targets(known, subject, {*named, *(o.name for o in asked.options)})


def _read_targets(known: BackendRecipe, subject: Subject, named: set[str]) -> Iterator[Trial]:
    """Yield recipes with plain variables of CMake, which only the files of the tree show."""
    asks = subject.tree.asks if subject.tree else ()
    fitting = [ask for ask in asks if not ask.environment and ask.certain]
    listed = [ask for ask in fitting if names_targets(ask.name) and ask.name not in named]
    listed.sort(key=lambda ask: ask.where.count("/"))  # the root's own file first
    for ask in listed[:_MOST_READ]:
        recipe = replace(known, suffixes=False)
        yield _with_option(recipe, ask.name, _forms(ask.default or "")[0])


def _forms(example: str) -> tuple[str, ...]:
    """Return how targets may be written, that of the example first."""
    if re.match(r"sm_\d", example):
        return ("sm_{digits}",)
    forms = ["{digits}", "{torch}"]
    if re.search(r"\d\.\d", example):
        forms.reverse()
    return tuple(forms)


def _one_switch_each(subject: Subject, known: BackendRecipe, asked: Asked) -> Iterator[Trial]:
    """Yield recipes with options that stand for one target: Kokkos_ARCH_HOPPER90."""
    for target in subject.gpus:
        digits = target.plain.replace(".", "")
        for option in asked.options:
            by_name = re.search(
                rf"(?:ARCH|SM|CUDA|GPU)\w*?(?<!\d){digits}$", option.name, re.IGNORECASE
            )
            if option.type == "BOOL" and by_name and not is_on(option.value):
                switch = Switch(name=option.name, archs=(target.arch,), cmake=True)
                yield _with_switch(known, switch, f"{option.name}=ON")


def _without_others(subject: Subject, known: BackendRecipe, asked: Asked) -> Iterator[Trial]:
    """Yield recipes that leave out kernels for targets that were not asked for."""
    for arch in extra_targets(subject, asked):
        digits = plain_arch(arch).replace(".", "")
        name = re.compile(rf"{_OFF}\w*?_(?:SM|ARCH)_?{digits}$", re.IGNORECASE)
        for variable in asked.variables:
            if name.search(variable.name):
                on, off = _truth(variable.default)
                switch = Switch(name=variable.name, archs=(arch,), on=on, off=off)
                yield _with_switch(known, switch, f"{variable.name}={off}")


def _truth(default: str | None) -> tuple[str, str]:
    """Return how a variable says that it does not disable, and that it does."""
    if default and default.upper() in ("FALSE", "OFF", "NO"):
        true = {"FALSE": "TRUE", "OFF": "ON", "NO": "YES"}[default.upper()]
        return default, true
    return "0", "1"


def _with_option(known: BackendRecipe, name: str, value: str) -> Trial:
    return Trial(
        recipe=replace(known, cmake={**known.cmake, name: value}), change=f"{name}={value}"
    )


def _with_variable(known: BackendRecipe, name: str, value: str) -> Trial:
    recipe = replace(known, environment={**known.environment, name: value})
    return Trial(recipe=recipe, change=f"{name}={value}")


def _with_switch(known: BackendRecipe, switch: Switch, change: str) -> Trial:
    return Trial(recipe=replace(known, switches=(*known.switches, switch)), change=change)


def most_used(
    gpus: Iterable[GpuTarget], archs: Iterable[str], kernels: Collection[KernelTargets]
) -> tuple[str, ...]:
    """Return for each GPU one of the targets that serve it: that which was asked for, if a kernel
    is compiled for it, or else that of most kernels.
    """
    used = Counter(target for kernel in kernels for target in kernel.targets)
    wanted = {gpu.arch for gpu in gpus}
    by_gpu: dict[str, list[str]] = {plain_arch(arch): [] for arch in sorted(wanted)}
    for arch in archs:
        by_gpu.get(plain_arch(arch), []).append(arch)
    return tuple(
        max(made, key=lambda arch: (arch in wanted, used[sm(arch)]))
        for made in by_gpu.values()
        if made
    )


def common(kernels: Iterable[tuple[str, ...]]) -> frozenset[str]:
    """Return the targets that all of these have."""
    sets = [frozenset(each) for each in kernels]
    return frozenset.intersection(*sets) if sets else frozenset()
