"""The requirements of a packaged wheel: PyTorch and NVIDIA's packages."""

import re
from collections.abc import Iterable, Sequence

from packaging.requirements import InvalidRequirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from stoker.knowledge.nvidia_packages import Release, releases
from stoker.knowledge.sonames import Bringer, bringer
from stoker.model.distribution import read_requirement, read_version
from stoker.model.errors import UsageError
from stoker.model.value import major
from stoker.wheel.package.built_wheel import BuiltWheel
from stoker.wheel.package.closure import Cuda, LibraryProvider, known_cuda_of, providers
from stoker.wheel.package.request import PackageMode, PackageRequest
from stoker.wheel.zip.metadata import required_name

_TOOLKIT = "cuda-toolkit"
_LINUX = 'platform_system == "Linux"'


def added_requirements(built: BuiltWheel, request: PackageRequest) -> tuple[str, ...]:
    """Return lines for METADATA; the user's line for a package replaces the known one."""
    for line in request.requires:
        try:
            read_requirement(line)
        except InvalidRequirement as error:
            raise UsageError(
                f"'{line}' is not a requirement: {error}", hints=["use --requires triton==3.5.1"]
            ) from None
    names = {required_name(line) for line in request.requires}
    known = [line for line in _known(built, request) if required_name(line) not in names]
    return (*known, *request.requires)


def _known(built: BuiltWheel, request: PackageRequest) -> tuple[str, ...]:
    if request.like:
        _check_like(built, request, request.like)
    if request.mode is PackageMode.PLAIN:
        return ()
    # NVIDIA's packages that hold the libraries that the wheel needs.
    provider = providers(built, request)
    names = [name for name in built.needed if provider(name) is LibraryProvider.PACKAGE]
    rows = {found.name: found for name in names if (found := bringer(name))}
    brought = [rows[name] for name in sorted(rows)]
    if built.is_torch:
        cuda = known_cuda_of(built, request) if brought else None
        row = _row(built.facts.version, cuda, request) if cuda else None
        return row.lines(built.machine) if row else ()
    if built.is_extension:
        return _of_extension(built, request, brought)
    return _of_toolkit(brought, known_cuda_of(built, request)) if brought else ()


def _check_like(built: BuiltWheel, request: PackageRequest, like: str) -> None:
    """Raise UsageError where --like would have no effect."""
    if request.mode is PackageMode.PLAIN:
        raise UsageError(
            "--like chooses requirements, and --mode plain adds none", hints=["use --mode pypi"]
        )
    if not (built.is_torch or built.is_extension):
        raise UsageError(f"--like is for PyTorch and its extensions, not for {built.facts.name}")
    if _base_version(like) not in (row.torch for row in releases()):
        known = ", ".join(dict.fromkeys(row.torch for row in releases()))
        raise UsageError(f"--like {like}: no known release of PyTorch", hints=[f"known: {known}"])


def _of_extension(
    built: BuiltWheel, request: PackageRequest, brought: Sequence[Bringer]
) -> tuple[str, ...]:
    """Return the PyTorch that an extension is linked to, and NVIDIA's packages that it needs."""
    torch = _built_against(built, request)
    if torch is None:
        return ()
    pin = f"torch=={read_version(torch).public}"
    row = _row(torch, known_cuda_of(built, request), request) if brought else None
    if row is None:
        return (pin,)
    lines = [part for line in row.lines(built.machine) if (part := _part(line, brought))]
    required = [read_requirement(line) for line in row.requires]
    known = {name for one in required for name in (_base(one.name), *one.extras)}
    rest = [other for other in brought if known.isdisjoint((other.name, other.extra))]
    cuda = Cuda(major=major(row.cuda), release=row.cuda)
    return (pin, *lines, *_of_toolkit(rest, cuda))


def _built_against(built: BuiltWheel, request: PackageRequest) -> str | None:
    """Return the PyTorch version of an extension, from the user or from its METADATA."""
    if request.torch:
        _base_version(request.torch)
        return request.torch
    for line in built.facts.requires:
        if required_name(line) == "torch":
            for clause in read_requirement(line).specifier:
                if clause.operator == "==" and "*" not in clause.version:
                    return clause.version
    if request.mode is PackageMode.PYPI and not request.requires:
        raise UsageError(
            f"{built.facts.name} is linked to PyTorch, but the version is unknown",
            hints=["name the version it was built against, for example --torch 2.9.1"],
        )
    return None


def _part(line: str, brought: Iterable[Bringer]) -> str | None:
    """Return a requirement of PyTorch, reduced to the given packages, or None."""
    requirement = read_requirement(line)
    names = {row.name for row in brought}
    if requirement.name == _TOOLKIT:
        extras = sorted(requirement.extras & {row.extra for row in brought if row.extra})
        return re.sub(r"\[.*?\]", f"[{','.join(extras)}]", line) if extras else None
    return line if _base(requirement.name) in names else None


def _base(name: str) -> str:
    """Return ``nvidia-cublas`` for ``nvidia-cublas-cu12``."""
    return re.sub(r"-cu\d+$", "", canonicalize_name(name))


def _of_toolkit(brought: Sequence[Bringer], cuda: Cuda) -> tuple[str, ...]:
    """Return requirements for parts of the toolkit, from a release up to the next major one."""
    extras = ",".join(sorted(row.extra for row in brought if row.extra))
    which = f">={cuda.release},<{cuda.major + 1}" if cuda.is_exact else f"=={cuda.major}.*"
    lines = [f"{_TOOLKIT}[{extras}]{which}; {_LINUX}"] if extras else []
    return (*lines, *(f"{row.package(cuda.major)}; {_LINUX}" for row in brought if not row.extra))


def _base_version(torch: str) -> str:
    try:
        return read_version(torch).base_version
    except InvalidVersion:
        raise UsageError(f"'{torch}' is not a PyTorch version", hints=["use 2.9.1"]) from None


def _row(torch: str, cuda: Cuda, request: PackageRequest) -> Release | None:
    """Return the known requirements of a release or of --like; None if the user gives them."""
    base = _base_version(request.like or torch)
    rows = [row for row in releases() if row.torch == base]
    # If only the major version is known, the first in the table is the default of that release.
    fitting = [row for row in rows if f"{row.cuda}.".startswith(f"{cuda.release}.")]
    if fitting:
        return fitting[0]
    if request.requires and not request.like:
        return None
    raise UsageError(
        f"the requirements of PyTorch {base} for CUDA {cuda.release} are unknown",
        hints=[
            f"the nearest known releases are {', '.join(_nearest(base, cuda))}",
            "use the requirements of one of these with --like RELEASE",
            "or give each requirement with --requires NAME==VERSION",
        ],
    )


def _nearest(torch: str, cuda: Cuda) -> list[str]:
    wanted = (*read_version(torch).release, 0, 0)

    def distance(row: Release) -> tuple[bool, list[int]]:
        own = read_version(row.torch).release
        other_major = not row.cuda.startswith(f"{cuda.major}.")
        return other_major, [abs(a - b) for a, b in zip(own, wanted, strict=False)]

    return [f"{row.torch} for {row.cuda}" for row in sorted(releases(), key=distance)[:3]]


def dropped_requirements(
    built: BuiltWheel, added: Iterable[str], bundled: Iterable[str]
) -> tuple[str, ...]:
    """Return lines of METADATA that are replaced, or whose libraries are in the wheel."""
    names = {required_name(line) for line in added}
    inside = [row for name in bundled if (row := bringer(name))]
    extras = {row.extra for row in inside}

    def is_gone(line: str) -> bool:
        name = required_name(line)
        if name is None or name in names:
            return name is not None
        requirement = read_requirement(line)
        if requirement.name == _TOOLKIT:
            # PyTorch requires some parts of the toolkit for their headers only.
            return bool(inside) and (built.is_torch or requirement.extras <= extras)
        return _base(name) in {row.name for row in inside}

    return tuple(line for line in built.facts.requires if is_gone(line))
