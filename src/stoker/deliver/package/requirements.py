"""What a packaged wheel requires of others: PyTorch, NVIDIA's packages. Pure."""

import re
from collections.abc import Iterable, Sequence

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from stoker.deliver.package.metadata import required_name
from stoker.deliver.package.providers import Provider, Providers
from stoker.deliver.package.subject import Subject
from stoker.deliver.package.values import Mode, PackageRequest
from stoker.knowledge.nvidia_packages import Release, releases
from stoker.knowledge.sonames import Bringer, bringer
from stoker.model.errors import UsageError

_TOOLKIT = "cuda-toolkit"
_LINUX = 'platform_system == "Linux"'
_CUDA = re.compile(r"[0-9]{2}(\.[0-9])?")


def added_requirements(
    subject: Subject, request: PackageRequest, providers: Providers
) -> tuple[str, ...]:
    """Lines for METADATA: those of the user come before those we know, by package."""
    own = tuple(_checked(line) for line in request.requires)
    names = {required_name(line) for line in own}
    known = [
        line for line in _known(subject, request, providers) if required_name(line) not in names
    ]
    return (*known, *own)


def _checked(line: str) -> str:
    try:
        Requirement(line)
    except InvalidRequirement as error:
        raise UsageError(
            f"'{line}' is no requirement: {error}", hints=["for example: --requires triton==3.5.1"]
        ) from None
    return line


def _known(subject: Subject, request: PackageRequest, providers: Providers) -> tuple[str, ...]:
    if request.mode is Mode.PLAIN:
        return ()
    if subject.is_torch:
        wanted = request.mode is Mode.PYPI and subject.cuda
        return _of_torch(subject, request) if wanted else ()
    brought = _brought(subject, providers)
    if not subject.is_extension:
        return _of_toolkit(brought, request.cuda, subject.cuda_major)
    return _of_extension(subject, request, brought)


def _brought(subject: Subject, providers: Providers) -> list[Bringer]:
    """NVIDIA's packages that bring what the wheel itself needs."""
    names = [name for name in subject.needed if providers.of(name) is Provider.PACKAGE]
    rows = {row.name: row for name in names if (row := bringer(name))}
    return [rows[name] for name in sorted(rows)]


def _of_torch(subject: Subject, request: PackageRequest) -> tuple[str, ...]:
    cuda = request.cuda or subject.cuda
    assert cuda is not None
    version = request.like or subject.facts.version
    if request.requires and not request.like and not _rows(version, cuda):
        return ()
    return _row(version, cuda).lines(subject.machine)


def _of_extension(
    subject: Subject, request: PackageRequest, brought: Sequence[Bringer]
) -> tuple[str, ...]:
    """The PyTorch it is linked to, and of what that requires the part it needs itself."""
    torch = built_against(subject, request)
    if torch is None:
        return ()
    pin = f"torch=={Version(torch).public}"
    if not brought:
        return (pin,)
    cuda = request.cuda or str(subject.cuda_major)
    row = _row(request.like or torch, cuda)
    lines = [part for line in row.lines(subject.machine) if (part := _part(line, brought))]
    known = {name for line in row.requires for name in _packages(line)}
    rest = [row for row in brought if row.extra not in known and row.name not in known]
    return (pin, *lines, *_of_toolkit(rest, row.cuda, subject.cuda_major))


def built_against(subject: Subject, request: PackageRequest) -> str | None:
    """The version of PyTorch that an extension needs, as told or as its METADATA pins it."""
    if request.torch:
        try:
            return str(Version(request.torch))
        except InvalidVersion:
            raise UsageError(f"--torch {request.torch}: not a version") from None
    for line in subject.facts.requires:
        if required_name(line) == "torch":
            for clause in Requirement(line).specifier:
                if clause.operator == "==" and "*" not in clause.version:
                    return clause.version
    if request.mode is Mode.PYPI and not request.requires:
        raise UsageError(
            f"{subject.facts.name} is linked to PyTorch: to which version?",
            hints=["--torch 2.9.1: the one it was built against"],
        )
    return None


def _part(line: str, brought: Iterable[Bringer]) -> str | None:
    """A line of PyTorch's as far as it brings any of the packages."""
    requirement = Requirement(line)
    names = {row.name for row in brought}
    if requirement.name == _TOOLKIT:
        extras = sorted(requirement.extras & {row.extra for row in brought if row.extra})
        return re.sub(r"\[.*?\]", f"[{','.join(extras)}]", line) if extras else None
    return line if _base(requirement.name) in names else None


def _packages(line: str) -> set[str]:
    """Names of packages and of the toolkit's extras that a line brings."""
    requirement = Requirement(line)
    return {_base(requirement.name), *requirement.extras}


def _base(name: str) -> str:
    """``nvidia-cublas`` of ``nvidia-cublas-cu12``."""
    return re.sub(r"-cu\d+$", "", canonicalize_name(name))


def _of_toolkit(brought: Sequence[Bringer], cuda: str | None, major: int | None) -> tuple[str, ...]:
    """The parts of the toolkit from a release on, as long as names of libraries stay the same."""
    if not brought:
        return ()
    if major is None:
        raise UsageError(
            "it does not show which CUDA the wheel is for", hints=["--cuda 13.0 says it"]
        )
    _check_cuda(cuda, major)
    extras = ",".join(sorted(row.extra for row in brought if row.extra))
    which = f">={cuda},<{major + 1}" if cuda and "." in cuda else f"=={major}.*"
    lines = [f"{_TOOLKIT}[{extras}]{which}; {_LINUX}"] if extras else []
    return (*lines, *(f"{row.name}-cu{major}; {_LINUX}" for row in brought if not row.extra))


def _check_cuda(cuda: str | None, major: int) -> None:
    if cuda is None:
        return
    if not _CUDA.fullmatch(cuda):
        raise UsageError(f"--cuda {cuda}: not a release of CUDA", hints=["for example: 12.8"])
    if int(cuda.partition(".")[0]) != major:
        raise UsageError(f"the libraries need CUDA {major}, not {cuda}")


def _rows(torch: str, cuda: str) -> list[Release]:
    """Of a release, for exactly that CUDA or, where only its major version is given, for any."""
    base = _base_version(torch)
    rows = [row for row in releases() if row.torch == base]
    return [row for row in rows if cuda in (row.cuda, row.cuda.partition(".")[0])]


def _base_version(torch: str) -> str:
    try:
        return Version(torch).base_version
    except InvalidVersion:
        raise UsageError(f"'{torch}' is not a version of PyTorch") from None


def _row(torch: str, cuda: str) -> Release:
    if rows := _rows(torch, cuda):
        return rows[0]
    raise UsageError(
        f"what PyTorch {_base_version(torch)} requires for CUDA {cuda} is not known",
        hints=[
            f"known, nearest first: {', '.join(_nearest(torch, cuda))}",
            "--like RELEASE: take what another release requires",
            "--requires NAME==VERSION: say it yourself, once for each package",
        ],
    )


def _nearest(torch: str, cuda: str) -> list[str]:
    wanted = Version(torch).release

    def distance(row: Release) -> tuple[bool, int, int]:
        own = Version(row.torch).release
        other_major = row.cuda.partition(".")[0] != cuda.partition(".")[0]
        parts = [abs(a - b) for a, b in zip(own, (*wanted, 0, 0, 0), strict=False)]
        return other_major, parts[0] * 100 + parts[1], parts[2]

    best = sorted(releases(), key=distance)[:3]
    return [f"{row.torch} for {row.cuda}" for row in best]


def dropped_requirements(
    subject: Subject, added: Iterable[str], bundled: Iterable[str]
) -> tuple[str, ...]:
    """Lines of METADATA that are said anew, or about packages whose libraries are in the wheel."""
    names = {required_name(line) for line in added}
    inside = [row for name in bundled if (row := bringer(name))]

    def is_gone(line: str) -> bool:
        name = required_name(line)
        return name is not None and (name in names or _is_inside(line, inside, subject.is_torch))

    return tuple(line for line in subject.facts.requires if is_gone(line))


def _is_inside(line: str, inside: Sequence[Bringer], is_torch: bool) -> bool:
    requirement = Requirement(line)
    if requirement.name == _TOOLKIT:
        # PyTorch asks for more than libraries: of some parts the headers, once it is built.
        return bool(inside) and (is_torch or requirement.extras <= {row.extra for row in inside})
    return _base(requirement.name) in {row.name for row in inside}
