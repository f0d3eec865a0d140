"""Settings from the recipe of one project, whatever its kind."""

import re
from collections.abc import Iterator

from stoker.model.errors import UsageError
from stoker.model.recipe import FORMS, BackendRecipe
from stoker.model.setting import Origin, OriginKind, Setting, SettingPlace
from stoker.model.variant import Backend, GpuTarget
from stoker.plan.subject import Subject, environment, once, option
from stoker.plan.tree_recipe import tree_recipe

PLACEHOLDER = re.compile(r"\{[a-z_]+\}")


def known_facts(subject: Subject) -> BackendRecipe | None:
    """Return the recipe for the back end, or else what the files of the tree say in its form."""
    if subject.backend_recipe:
        return subject.backend_recipe
    read = tree_recipe(subject)
    return read.recipe if read else None


def project_settings(subject: Subject) -> Iterator[Setting]:
    """Yield what the recipe, or the tree itself, sets for the back end of the variant."""
    known = known_facts(subject)
    if known is None:
        return
    values = _values(subject, known)
    asked = [target.arch for target in subject.gpus]
    written = [target.arch for target in written_targets(subject)]
    runs_on = f"its code for {', '.join(written)} runs on {', '.join(asked)}"
    for place, given in ((environment, known.environment), (option, known.cmake)):
        for name, template in given.items():
            if (value := _filled(template, values)) is not None:
                why = runs_on if _lists_targets(template) and written != asked else ""
                yield place(name, value, _origin(subject, template, name), why)
    here = [s for s in known.switches if not s.cpus or subject.platform.cpu in s.cpus]
    for switch in {switch.name: switch for switch in here}.values():
        place = option if switch.cmake else environment
        on = not set(asked).isdisjoint(switch.serves or switch.archs)
        what = ", ".join(arch for each in here if each.name == switch.name for arch in each.archs)
        why = f"kernels for {what}" if on else f"no GPU asked for needs the kernels for {what}"
        if value := switch.on if on else switch.off:
            yield place(switch.name, value, _recipe(subject, switch.name), why)


def _lists_targets(template: str) -> bool:
    return any(form in template for form in FORMS)


def backend_settings(subject: Subject) -> dict[str, str]:
    """Return the settings of the PEP 517 back end."""
    known = known_facts(subject)
    if known is None:
        return {}
    values = _values(subject, known)
    filled = ((name, _filled(text, values)) for name, text in known.backend_settings.items())
    return {name: value for name, value in filled if value is not None}


@once
def written_targets(subject: Subject) -> tuple[GpuTarget, ...]:
    """Return the targets that this project is told: their code runs on the GPUs asked for."""
    known = known_facts(subject)
    if known is None:
        return subject.gpus
    found: dict[str, GpuTarget] = {}
    for target in subject.gpus:
        plain = target.plain
        serves = known.serves if subject.cuda_is_at_least(known.serves_cuda) else {}
        arch = serves.get(target.arch) or serves.get(plain)
        arch = arch or _lower(known, plain) or (target.arch if known.suffixes else plain)
        ptx = target.ptx or (arch in found and found[arch].ptx)
        found[arch] = GpuTarget(arch=arch, ptx=ptx)
    return tuple(found.values())


def _lower(known: BackendRecipe, arch: str) -> str | None:
    """Return the target whose code a project compiles for a GPU that it does not list."""
    if not known.loose or arch in known.archs:
        return None
    wanted = GpuTarget(arch=arch).capability
    found = (GpuTarget(arch=each) for each in known.archs)
    fitting = [
        each for each in found if each.capability[0] == wanted[0] and each.capability <= wanted
    ]
    return max(fitting, key=lambda each: each.capability).arch if fitting else None


def refuse_targets(subject: Subject) -> None:
    """Raise an error for a GPU that the project has no code for."""
    known, project, tree = subject.backend_recipe, subject.project, subject.tree
    if known is None or project is None or not known.archs:
        return
    facts = f"read in {project.facts_from}" if project.facts_from else "said by your recipe"
    if tree and tree.presence and project not in subject.own_recipes:
        facts = "the files of its build name no others"
    for asked, written in zip(subject.gpus, written_targets(subject), strict=False):
        plain = written.plain if subject.variant.backend is Backend.CUDA else None
        if not {written.arch, plain} & set(known.archs):
            raise UsageError(
                f"{project.name} has no code for {asked.arch}",
                hints=[f"it has code for: {', '.join(known.archs)}", facts],
                where=tree.path if tree else None,
            )


def _values(subject: Subject, known: BackendRecipe) -> dict[str, str]:
    """Return what each placeholder stands for."""
    targets = written_targets(subject)
    forms = {
        "torch": [target.torch_word for target in targets],
        "digits": [target.digits for target in targets],
        "cmake": [target.cmake_word for target in targets],
        "gencode": [target.gencode for target in targets],
        "names": [target.arch for target in targets],
    }
    return {form: known.separator.join(words) for form, words in forms.items()} | {
        "backend": subject.variant.backend.value,
        "build_type": subject.variant.build_type.value,
        "cuda_home": subject.toolkit_home or "",
        "toolkit": subject.variant.toolkit or subject.cuda_version or "",
    }


def _filled(template: str, values: dict[str, str]) -> str | None:
    """Return the value; ``None`` if a placeholder in it has nothing to stand for."""
    for name, value in values.items():
        if f"{{{name}}}" in template:
            if not value:
                return None
            template = template.replace(f"{{{name}}}", value)
    return template


def _origin(subject: Subject, template: str, name: str) -> Origin:
    """Return the origin of a value: that of the part of the variant it is made from."""
    if _lists_targets(template):
        return subject.gpus_origin
    if "{build_type}" in template:
        return subject.origin("build_type")
    if "{cuda_home}" in template or "{toolkit}" in template:
        return subject.toolkit_origin
    return _recipe(subject, name)


def _recipe(subject: Subject, name: str) -> Origin:
    """Return the origin of a fact: the place in the tree, or the recipe."""
    if read := tree_recipe(subject):
        return Origin(kind=OriginKind.TREE, where=read.places.get(name, ""))
    return Origin(kind=OriginKind.RECIPE, where=subject.project.name if subject.project else "")


def sets_targets(setting: Setting, subject: Subject) -> bool:
    """Tell whether a setting names the GPU targets."""
    known = known_facts(subject)
    given = {**known.environment, **known.cmake} if known else {}
    if _lists_targets(given.get(setting.name, "")):
        return True
    generic = {"TORCH_CUDA_ARCH_LIST", "PYTORCH_ROCM_ARCH", "TORCH_XPU_ARCH_LIST"}
    if setting.place is SettingPlace.CMAKE:
        generic |= {"CMAKE_CUDA_ARCHITECTURES", "CMAKE_HIP_ARCHITECTURES"}
    return setting.name in generic
