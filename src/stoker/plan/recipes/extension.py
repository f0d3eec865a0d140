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
from stoker.plan.recipes.pytorch import target_settings, toolkit_settings
from stoker.plan.subject import Subject, compiler_flags, environment, recipe_origin

_ORIGIN = recipe_origin(ProjectKind.EXTENSION)
jobs_variable = "MAX_JOBS"


def variable(name: str) -> str | None:
    """Return the name itself: without CMake, setup.py reads options from the environment."""
    return name


def settings(subject: Subject) -> Iterator[Setting]:
    backend, known = subject.variant.backend, known_facts(subject)
    by_recipe = subject.backend_recipe is not None
    compiles = by_recipe or subject.tree is None or subject.tree.code.compiles
    if compiles and not by_recipe:
        # torch's cpp_extension reads it, and so do many setup.py files.
        yield from _force(subject)
    if compiles and backend is Backend.CUDA:
        yield from _toolkit(subject)
    elif compiles and backend is Backend.CPU:
        yield environment("CUDA_VISIBLE_DEVICES", "", subject.origin("backend"))
    own = known is not None and (known.chooses_targets or not known.compiles)
    if compiles and not own and subject.kind is not ProjectKind.PACKAGE:
        yield from target_settings(subject)
    if subject.variant.build_type is BuildType.DEBUG:
        yield environment("DEBUG", "1", subject.origin("build_type"))
    yield from project_settings(subject)
    yield from compiler_flags(subject, sanitizer=subject.variant.sanitizer)


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


def _force(subject: Subject) -> Iterator[Setting]:
    backend = subject.variant.backend
    if subject.tree and _may_read(subject, "FORCE_CUDA"):
        if backend in (Backend.CUDA, Backend.ROCM):
            why = "builds kernels even if no GPU is visible"
            yield environment("FORCE_CUDA", "1", _ORIGIN, why)
        elif backend is Backend.CPU and subject.exported.get("FORCE_CUDA"):
            # Left unset if it is: to a setup.py that takes its bool, "0" means yes.
            yield environment("FORCE_CUDA", "0", subject.origin("backend"))


def commands(subject: Subject, cmake: tuple[Setting, ...]) -> tuple[Command, ...]:  # noqa: ARG001
    return (wheel_command(subject, ()),)
