"""Settings from the recipe of one project, whatever its kind."""

import re
from collections.abc import Iterator

from stoker.model.errors import UsageError
from stoker.model.recipe import FORMS, BackendRecipe
from stoker.model.setting import Origin, OriginKind, Setting, SettingPlace
from stoker.model.variant import Backend, GpuTarget
from stoker.plan.subject import Subject, environment, option
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
    for place, given in ((environment, known.environment), (option, known.cmake)):
        for name, template in given.items():
            if (value := _filled(template, values)) is not None:
                origin = _origin(subject, template, name)
                yield place(name, value, origin, _why(subject, template))
    here = [s for s in known.switches if not s.cpus or subject.platform.cpu in s.cpus]
    for switch in {switch.name: switch for switch in here}.values():
        place = option if switch.cmake else environment
        on = bool({target.arch for target in subject.gpus} & set(switch.serves or switch.archs))
        what = ", ".join(arch for each in here if each.name == switch.name for arch in each.archs)
        why = f"kernels for {what}" if on else f"no GPU asked for needs the kernels for {what}"
        if value := switch.on if on else switch.off:
            yield place(switch.name, value, _recipe(subject, switch.name), why)


def backend_settings(subject: Subject) -> dict[str, str]:
    """Return the settings of the PEP 517 back end."""
    known = known_facts(subject)
    if known is None:
        return {}
    values = _values(subject, known)
    filled = ((name, _filled(text, values)) for name, text in known.backend_settings.items())
    return {name: value for name, value in filled if value is not None}


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
    known, project = subject.backend_recipe, subject.project
    if known is None or project is None or not known.archs:
        return
    for asked, written in zip(subject.gpus, written_targets(subject), strict=False):
        plain = written.plain if subject.variant.backend is Backend.CUDA else None
        if not {written.arch, plain} & set(known.archs):
            raise UsageError(
                f"{project.name} has no code for {asked.arch}",
                hints=[f"it has code for: {', '.join(known.archs)}", _facts(subject)],
                where=subject.tree.path if subject.tree else None,
            )


def _facts(subject: Subject) -> str:
    facts = subject.project.facts_from if subject.project else ""
    if subject.tree and subject.tree.presence and subject.project not in subject.own_recipes:
        return "the files of its build name no others"
    return f"read in {facts}" if facts else "said by your recipe"


def _values(subject: Subject, known: BackendRecipe) -> dict[str, str]:
    targets = written_targets(subject)
    names = [target.arch for target in targets]
    digits = [name.replace(".", "") for name in names]
    ptx = ["+PTX" if target.ptx else "" for target in targets]
    forms = {
        "torch": [name + plus for name, plus in zip(names, ptx, strict=True)],
        "digits": digits,
        "cmake": [d if p else f"{d}-real" for d, p in zip(digits, ptx, strict=True)],
        "gencode": [_gencode(d, with_ptx=bool(p)) for d, p in zip(digits, ptx, strict=True)],
        "names": names,
    }
    joined = {form: known.separator.join(words) for form, words in forms.items()}
    return joined | {
        "backend": subject.variant.backend.value,
        "build_type": subject.variant.build_type.value,
        "cuda_home": subject.toolkit_home or "",
        "toolkit": subject.variant.toolkit or subject.cuda_version or "",
    }


def _gencode(digits: str, *, with_ptx: bool) -> str:
    code = f"[sm_{digits},compute_{digits}]" if with_ptx else f"sm_{digits}"
    return f"arch=compute_{digits},code={code}"


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
    if any(form in template for form in FORMS):
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


def _why(subject: Subject, template: str) -> str:
    written = [target.arch for target in written_targets(subject)]
    asked = [target.arch for target in subject.gpus]
    if any(form in template for form in FORMS) and written != asked:
        return f"its code for {', '.join(written)} runs on {', '.join(asked)}"
    return ""


def sets_targets(setting: Setting, subject: Subject) -> bool:
    """Tell whether a setting names the GPU targets."""
    known = known_facts(subject)
    given = {**known.environment, **known.cmake} if known else {}
    if any(form in given.get(setting.name, "") for form in FORMS):
        return True
    generic = {"TORCH_CUDA_ARCH_LIST", "PYTORCH_ROCM_ARCH", "TORCH_XPU_ARCH_LIST"}
    if setting.place is SettingPlace.CMAKE:
        generic |= {"CMAKE_CUDA_ARCHITECTURES", "CMAKE_HIP_ARCHITECTURES"}
    return setting.name in generic
