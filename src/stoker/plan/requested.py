"""What the variables that builds read say about a variant: back end, GPU targets, build type. Pure.

People export these variables, as guides tell them, or give them by -D. They fill in what the words
of the variant leave open; where both speak, a finding says which of them counts.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from msgspec.structs import replace

from stoker.knowledge.gpus import gpus, listed_gpus
from stoker.model.errors import UsageError
from stoker.model.finding import Finding, note, warning
from stoker.model.recipe import FORMS
from stoker.model.setting import Origin, OriginKind, is_on
from stoker.model.source import ProjectKind
from stoker.model.value import Value
from stoker.model.variant import Backend, BuildType, GpuTarget
from stoker.plan.grammar import canonical
from stoker.plan.subject import Subject

OF_CMAKE = ("CMAKE_CUDA_ARCHITECTURES", "CUDAARCHS")
_OF_TORCH = {"TORCH_CUDA_ARCH_LIST": Backend.CUDA, "PYTORCH_ROCM_ARCH": Backend.ROCM}
TARGET_LISTS = (*_OF_TORCH, *OF_CMAKE)
_SWITCHES = {"USE_CUDA": Backend.CUDA, "USE_ROCM": Backend.ROCM, "USE_XPU": Backend.XPU}


class _Spoken(Value, frozen=True, kw_only=True):
    """A variable that names a back end. ``odd`` are targets in the spelling of another tool."""

    name: str
    value: str
    origin: Origin
    backend: Backend
    on: bool = True
    targets: tuple[GpuTarget, ...] = ()
    odd: tuple[str, ...] = ()

    def __str__(self) -> str:
        by = " of the environment" if self.origin.kind is OriginKind.ENVIRONMENT else ""
        return f"{self.name}={self.value}{by}"

    @property
    def archs(self) -> set[str]:
        return {target.arch for target in self.targets}


def with_variables(subject: Subject, named: frozenset[str]) -> Subject:
    """Return the subject with what its variables say. ``named`` are the parts that the words of the
    variant give, which are none if no word was typed.
    """
    lists, switches = list(_lists(subject)), list(_switches(subject))
    subject = _with_build_type(subject)
    off = {each.backend: each for each in switches if not each.on}
    findings = list(_contradictions(lists))
    spoken = next(iter((*lists, *(each for each in switches if each.on))), None)
    if spoken is None or spoken.backend in off:
        spoken = off.get(spoken.backend if spoken else subject.variant.backend)
    if spoken is None:
        return subject
    by_define = spoken.origin.kind is OriginKind.COMMAND_LINE
    backend = spoken.backend if spoken.on else Backend.CPU
    if spoken.on and subject.tree and backend.value not in subject.tree.backends:
        why = f"{subject.tree.name} has no {backend} back end"
        findings = [note("variable-unused", f"{spoken} is not used: {why}")]
        return _changed(subject, findings)
    chosen, words = subject.variant, subject.origin("backend")
    if "backend" in named and chosen.backend is not backend:
        if by_define:
            raise UsageError(f"-D {spoken} contradicts {words}", hints=["leave one of the two out"])
        return _changed(subject, [warning("variable-unused", f"{words} counts, not {spoken}")])
    if not spoken.targets:
        gone = {"gpus": (), "toolkit": None} if chosen.backend is not backend else {}
        return _changed(subject, findings, spoken.origin, backend=backend, **gone)
    if "gpus" in named and not by_define:
        if {target.arch for target in chosen.gpus} != spoken.archs:
            findings = [warning("lists-differ", f"{words} counts, not {spoken}")]
        return _changed(subject, findings)
    if "gpus" in named and {target.arch for target in chosen.gpus} != spoken.archs:
        findings.append(warning("lists-differ", f"-D {spoken} counts, not {words}"))
    if spoken.odd:
        read = ";".join(target.torch_word for target in spoken.targets)
        findings.append(note("list-spelling", f"{spoken} is read as {read}"))
    if spoken.name in OF_CMAKE and subject.is_with_torch:
        why = "torch's CMake files ignore it: the plan sets TORCH_CUDA_ARCH_LIST instead"
        findings.append(note("list-translated", f"{spoken}: {why}"))
    return _changed(subject, findings, spoken.origin, backend=backend, gpus=spoken.targets)


def _changed(
    subject: Subject,
    findings: Iterable[Finding],
    origin: Origin | None = None,
    **parts: Any,
) -> Subject:
    variant = canonical(replace(subject.variant, **parts))
    origins = subject.origins | (dict.fromkeys(parts, origin) if origin else {})
    return replace(
        subject,
        variant=variant,
        name=variant.name,
        origins=origins,
        told=(*subject.told, *findings),
    )


def _with_build_type(subject: Subject) -> Subject:
    """Return the subject with the exported CMAKE_BUILD_TYPE, if no stronger setting names one."""
    name = subject.exported.get("CMAKE_BUILD_TYPE", "").casefold()
    kind = next((kind for kind in BuildType if kind.value.casefold() == name), None)
    if kind is None or subject.origin("build_type").kind is not OriginKind.DEFAULT:
        return subject
    origin = Origin(kind=OriginKind.ENVIRONMENT, where="CMAKE_BUILD_TYPE")
    return _changed(subject, (), origin, build_type=kind)


def _said(subject: Subject, names: Iterable[str]) -> Iterator[tuple[str, str, Origin]]:
    """Yield the name, value and origin of these variables, those of -D first."""
    names = tuple(names)
    for setting in subject.defines:
        if setting.name in names and setting.value.strip():
            yield setting.name, setting.value, setting.origin
    for name in names:
        if value := subject.exported.get(name, "").strip():
            yield name, value, Origin(kind=OriginKind.ENVIRONMENT, where=name)


def _lists(subject: Subject) -> Iterator[_Spoken]:
    """Yield the lists of targets, that which counts first."""
    own: dict[str, Backend] = {}
    for backend, known in (subject.project.backends if subject.project else {}).items():
        forms = {**known.environment, **known.cmake}.items()
        own |= {name: backend for name, form in forms if any(each in form for each in FORMS)}
    lists = own | _OF_TORCH | dict.fromkeys(OF_CMAKE, Backend.CUDA)
    if subject.kind is ProjectKind.CMAKE:
        lists = own | dict.fromkeys(OF_CMAKE, Backend.CUDA) | _OF_TORCH
    for name, value, origin in _said(subject, lists):
        backend = lists[name]
        targets, odd = tuple[GpuTarget, ...](), tuple[str, ...]()
        if backend is Backend.CUDA:
            listed = listed_gpus(value, of_cmake=name in OF_CMAKE)
            if listed is None:
                hints = ['for example: TORCH_CUDA_ARCH_LIST="8.0;9.0+PTX"']
                raise UsageError(f"{name}={value} is no list of GPU targets", hints=hints)
            targets, odd = listed.targets, listed.odd if name in TARGET_LISTS else ()
        elif backend is Backend.ROCM:
            words = (word.partition(":")[0] for word in value.replace(",", ";").split(";"))
            targets = tuple(GpuTarget(arch=word) for word in words if word in gpus())
        yield _Spoken(
            name=name, value=value, origin=origin, backend=backend, targets=targets, odd=odd
        )


def _switches(subject: Subject) -> Iterator[_Spoken]:
    """Yield the switches of back ends that the tree reads."""
    tree = subject.tree
    for name, value, origin in _said(subject, _SWITCHES):
        by_define = origin.kind is OriginKind.COMMAND_LINE
        if (
            tree is None
            or subject.is_pytorch
            or tree.ask(name, environment=True)
            or (by_define and tree.option(name))
        ):
            backend, on = _SWITCHES[name], is_on(value)
            yield _Spoken(name=name, value=value, origin=origin, backend=backend, on=on)


def _contradictions(lists: list[_Spoken]) -> Iterator[Finding]:
    for other in lists[1:]:
        if other.archs != lists[0].archs:
            yield warning("lists-differ", f"{lists[0]} counts, not {other}")
