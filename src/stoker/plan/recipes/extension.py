"""A Python package that compiles code without a CMake of ours: everything is environment.

Extensions of torch, such as flash-attn, and packages with a build of their own, such as CuPy.
"""

from collections.abc import Iterator

from stoker.knowledge.projects import reader_of
from stoker.model.plan import Command
from stoker.model.setting import Setting
from stoker.model.source import ProjectKind
from stoker.model.variant import Backend, BuildType
from stoker.plan.recipes.cmake import wheel_command
from stoker.plan.recipes.project import known_facts, project_settings
from stoker.plan.recipes.pytorch import cuda_settings, toolkit_settings
from stoker.plan.subject import Subject, compiler_flags, environment, recipe_origin

_ORIGIN = recipe_origin(ProjectKind.EXTENSION)
jobs_variable = "MAX_JOBS"


def variable(name: str) -> str | None:
    """Return the name itself: without CMake, setup.py reads options from the environment."""
    return name


def settings(subject: Subject) -> Iterator[Setting]:
    if subject.backend_recipe:
        if subject.variant.backend is Backend.CUDA:
            yield from _toolkit(subject)
        elif subject.variant.backend is Backend.CPU:
            yield environment("CUDA_VISIBLE_DEVICES", "", subject.origin("backend"))
        if not subject.backend_recipe.chooses_targets and subject.backend_recipe.compiles:
            yield from _torch_targets(subject)
    else:
        yield from _by_torch(subject)
    if subject.variant.build_type is BuildType.DEBUG:
        yield environment("DEBUG", "1", subject.origin("build_type"))
    yield from project_settings(subject)
    yield from compiler_flags(subject, sanitizer=subject.variant.sanitizer)


def _by_torch(subject: Subject) -> Iterator[Setting]:
    """Yield what torch's cpp_extension reads, and FORCE_CUDA, which many setup.py files read."""
    backend = subject.variant.backend
    if subject.tree and not subject.tree.code.compiles:
        return
    if backend is Backend.CUDA:
        yield from _force(subject, "1")
        yield from _toolkit(subject)
    if backend is Backend.ROCM:
        yield from _force(subject, "1")
    if backend is Backend.CPU:
        yield from _force(subject, "0")
        yield environment("CUDA_VISIBLE_DEVICES", "", subject.origin("backend"))
    known = known_facts(subject)
    if known is None or (known.compiles and not known.chooses_targets):
        yield from _torch_targets(subject)


def _torch_targets(subject: Subject) -> Iterator[Setting]:
    if subject.kind is ProjectKind.PACKAGE:
        return
    if subject.variant.backend is Backend.CUDA:
        yield from cuda_settings(subject)
    archs = [target.arch for target in subject.gpus]
    if subject.variant.backend is Backend.ROCM and archs:
        yield environment("PYTORCH_ROCM_ARCH", ";".join(archs), subject.gpus_origin)
    if subject.variant.backend is Backend.XPU and archs:
        yield environment("TORCH_XPU_ARCH_LIST", ",".join(archs), subject.gpus_origin)


def _toolkit(subject: Subject) -> Iterator[Setting]:
    """Yield the variables that name the toolkit, those for CMake only if the tree calls it."""
    for setting in toolkit_settings(subject):
        if setting.name == "CUDA_HOME" or _may_read(subject, "CUDACXX"):
            yield setting


def _may_read(subject: Subject, name: str) -> bool:
    """Tell whether the tree reads a variable; a tree whose build was not read may read it."""
    tree = subject.tree
    if tree is None or not (tree.asks or tree.readers):
        return True
    reader = tree.ask(name, environment=True) or reader_of(name, tree.readers, environment=True)
    return reader is not None


def _force(subject: Subject, value: str) -> Iterator[Setting]:
    if subject.tree and _may_read(subject, "FORCE_CUDA"):
        if value == "1":
            why = "builds kernels even if no GPU is visible"
            yield environment("FORCE_CUDA", value, _ORIGIN, why)
        else:
            yield environment("FORCE_CUDA", value, subject.origin("backend"))


def commands(subject: Subject, cmake: tuple[Setting, ...]) -> tuple[Command, ...]:  # noqa: ARG001
    return (wheel_command(subject, ()),)
