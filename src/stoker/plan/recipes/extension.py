"""A project built with torch's cpp_extension, such as flash-attn: everything is environment."""

from collections.abc import Iterator

from stoker.knowledge.projects import projects
from stoker.model.plan import Backend, BuildType, Command, Setting
from stoker.model.source import ProjectKind
from stoker.plan.flags import compiler_flags
from stoker.plan.recipes.pytorch import cuda_settings
from stoker.plan.subject import Subject, environment, recipe_origin

_ORIGIN = recipe_origin(ProjectKind.EXTENSION)
jobs_variable = "MAX_JOBS"


def variable(name: str) -> str | None:
    """Return the name itself: without CMake, setup.py reads options from the environment."""
    return name


def settings(subject: Subject) -> Iterator[Setting]:
    backend = subject.variant.backend
    if backend is Backend.CUDA:
        yield environment("FORCE_CUDA", "1", _ORIGIN, "builds kernels even if no GPU is visible")
        yield from cuda_settings(subject)
    if backend is Backend.ROCM and subject.gpus:
        archs = ";".join(target.arch for target in subject.gpus)
        yield environment("PYTORCH_ROCM_ARCH", archs, subject.gpus_origin)
    if backend is Backend.CPU:
        yield environment("FORCE_CUDA", "0", subject.origin("backend"))
        yield environment("CUDA_VISIBLE_DEVICES", "", subject.origin("backend"))
    if subject.variant.build_type is BuildType.DEBUG:
        yield environment("DEBUG", "1", subject.origin("build_type"))
    yield from _own(subject)
    yield from compiler_flags(subject, sanitizer=subject.variant.sanitizer)


def _own(subject: Subject) -> Iterator[Setting]:
    """Yield the variables that only this project reads."""
    row = projects().get((subject.tree.name if subject.tree else "").replace("-", "_"))
    archs = ";".join(target.arch.replace(".", "") for target in subject.gpus)
    for name, template in row.environment.items() if row else ():
        value = template.format(archs=archs, backend=subject.variant.backend.value)
        if value:
            yield environment(name, value, _ORIGIN, f"{row.name} reads it" if row else "")


def commands(subject: Subject, cmake: tuple[Setting, ...]) -> tuple[Command, ...]:  # noqa: ARG001
    python = f"python{subject.variant.python}" if subject.variant.python else "python3"
    words = (python, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation")
    return (Command(stage="wheel", words=words),)
