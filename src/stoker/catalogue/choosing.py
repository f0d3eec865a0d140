"""Wheels to install together: a project, what it requires of the catalogue, and extensions in step
with PyTorch. Pure.

A project that the catalogue has is never left to another index, so a package of the same name
elsewhere cannot take its place.
"""

from collections.abc import Iterator, Mapping, Sequence

from packaging.markers import UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from stoker.catalogue.ranking import rank
from stoker.catalogue.values import Candidate, Host, PublishedCatalogue, PublishedWheel, Selection
from stoker.model.distribution import read_requirement, read_version
from stoker.model.errors import StokerError, UsageError, unknown
from stoker.model.value import minor_release
from stoker.wheel.zip.metadata import forbidding

TORCH = "torch"
_MOST_CLOSEST = 3


class NoVariantError(StokerError):
    """The catalogue has the project, but no wheel of it runs on this machine."""


def read_words(words: Sequence[str], catalogue: PublishedCatalogue) -> tuple[Requirement, ...]:
    """Return the requirements that a user named; the default is PyTorch or the only project."""
    if not words:
        words = (TORCH,) if TORCH in catalogue.projects else catalogue.projects
        if len(words) != 1:
            hints = [f"it has {', '.join(catalogue.projects[:10]) or 'no wheel at all'}"]
            raise UsageError("which project of the catalogue?", hints=hints)
    wanted = tuple(map(read_word, words))
    for requirement in wanted:
        if canonicalize_name(requirement.name) not in catalogue.projects:
            raise unknown("project", requirement.name, catalogue.projects, where="catalogue")
    return wanted


def read_word(word: str) -> Requirement:
    """Return the requirement that a user named: a project, perhaps with versions."""
    try:
        requirement = read_requirement(word)
    except InvalidRequirement as error:
        hints = ["for example: torch, torch==2.9.1, 'flash-attn>=2.8'"]
        raise UsageError(f"'{word[:60]}' is not a requirement: {error}", hints=hints) from None
    if requirement.url:
        raise UsageError(f"'{word[:60]}' is a URL: name a project of the catalogue or the index")
    return requirement


def choose(host: Host, catalogue: PublishedCatalogue, wanted: Sequence[Requirement]) -> Selection:
    """Return the best wheel of each project so that all fit together; PyTorch is chosen first."""
    ordered = sorted(wanted, key=lambda one: canonicalize_name(one.name) != TORCH)
    ranked = _Ranked(host, catalogue)
    choices = ranked(ordered[0])
    refusals: list[str] = []
    for choice in choices:
        if not choice.runs:
            break
        together = _completed(choice.wheel, ordered[1:], ranked, refusals)
        if together:
            return Selection(host=host, wheels=together, choices=choices)
    raise _nothing_fits(ordered[0], catalogue, choices, refusals)


class _Ranked:
    """The choices for a requirement, ranked once: many combinations ask for the same."""

    def __init__(self, host: Host, catalogue: PublishedCatalogue):
        self.host = host
        self.catalogue = catalogue
        self._known: dict[str, tuple[Candidate, ...]] = {}

    def __call__(self, wanted: Requirement) -> tuple[Candidate, ...]:
        key = f"{canonicalize_name(wanted.name)}{wanted.specifier}"
        if key not in self._known:
            self._known[key] = rank(self.host, _matching(self.catalogue, wanted))
        return self._known[key]


def _matching(catalogue: PublishedCatalogue, wanted: Requirement) -> list[PublishedWheel]:
    name = canonicalize_name(wanted.name)
    return [
        wheel
        for wheel in catalogue.wheels
        if wheel.project == name
        and wanted.specifier.contains(read_version(wheel.version), prereleases=True)
    ]


def _completed(
    first: PublishedWheel, wanted: Sequence[Requirement], ranked: _Ranked, refusals: list[str]
) -> tuple[PublishedWheel, ...] | None:
    """Return the wheel with one for each requirement, recursively; ``None`` if one has no match."""
    taken = [first]
    while missing := _missing(taken, wanted, ranked):
        found = [choice.wheel for choice in ranked(missing) if choice.runs]
        fitting = [wheel for wheel in found if not any(out_of_step(wheel, one) for one in taken)]
        if not fitting:
            refusals += _refusals(missing, found, taken)
            return None
        # Those of the same variant were made to be used together.
        taken.append(next((one for one in fitting if one.variant == first.variant), fitting[0]))
    return tuple(taken)


def _missing(
    taken: Sequence[PublishedWheel], wanted: Sequence[Requirement], ranked: _Ranked
) -> Requirement | None:
    """Return the next requirement without a wheel: a wanted one, or one of the wheels that the
    catalogue has.
    """
    environment, projects = marker_environment(ranked.host), set(ranked.catalogue.projects)
    names = {wheel.project for wheel in taken}
    required = (one for wheel in taken for one in active_requirements(wheel, environment))
    there = (one for one in required if canonicalize_name(one.name) in projects)
    open_ = (one for one in (*wanted, *there) if canonicalize_name(one.name) not in names)
    return next(open_, None)


def _refusals(
    wanted: Requirement, found: Sequence[PublishedWheel], taken: Sequence[PublishedWheel]
) -> Iterator[str]:
    if not found:
        yield f"nothing of {wanted} runs here"
    for wheel in found[:_MOST_CLOSEST]:
        reasons = (out_of_step(wheel, one) for one in taken)
        yield from (f"{wheel.file}: {reason}" for reason in reasons if reason)


def active_requirements(
    wheel: PublishedWheel, environment: Mapping[str, str]
) -> Iterator[Requirement]:
    """Yield what a wheel requires on a machine, without any extra."""
    for line in wheel.requires:
        try:
            requirement = read_requirement(line)
            if not requirement.marker or requirement.marker.evaluate(dict(environment)):
                yield requirement
        except (InvalidRequirement, UndefinedEnvironmentName):
            continue


def marker_environment(host: Host) -> dict[str, str]:
    """Return the environment that markers are evaluated against; no extra is requested."""
    return {
        "python_version": minor_release(host.python),
        "python_full_version": host.python if host.python.count(".") > 1 else f"{host.python}.0",
        "platform_machine": host.cpu_family,
        "platform_system": "Darwin" if host.os == "macos" else "Linux",
        "sys_platform": "darwin" if host.os == "macos" else "linux",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
        "extra": "",
    }


def out_of_step(one: PublishedWheel, other: PublishedWheel) -> str | None:
    """Return why two wheels cannot be used together."""
    for wheel, torch in ((one, other), (other, one)):
        if torch.project == TORCH and (problem := _other_torch(wheel, torch)):
            return problem
    if _differ(one.cuda, other.cuda):
        return f"it is for CUDA {one.cuda}, {other.file} for CUDA {other.cuda}"
    if one.cxx_abi and other.cxx_abi and one.cxx_abi is not other.cxx_abi:
        return f"its C++ ABI is {one.cxx_abi}, that of {other.file} is {other.cxx_abi}"
    return None


def _other_torch(wheel: PublishedWheel, torch: PublishedWheel) -> str | None:
    if required := forbidding(wheel.requires, TORCH, torch.version):
        return f"it requires {required}, not torch {torch.version}"
    if wheel.stable_abi:
        return None
    public = read_version(torch.version).public
    if wheel.torch and _differ(wheel.torch.partition("+")[0], public):
        return f"it was built for torch {wheel.torch}, not {torch.version}"
    return None


def _differ(one: str | None, other: str | None) -> bool:
    """Return whether versions differ as far as both are given: 12.8 and 12 do not, 12.8 and 12.9
    do.
    """
    if one is None or other is None:
        return False
    pairs = zip(one.split(".")[:2], other.split(".")[:2], strict=False)
    return any(first != second for first, second in pairs)


def _nothing_fits(
    wanted: Requirement,
    catalogue: PublishedCatalogue,
    choices: Sequence[Candidate],
    refusals: Sequence[str],
) -> StokerError:
    if not choices:
        name = canonicalize_name(wanted.name)
        versions = {wheel.version for wheel in catalogue.wheels if wheel.project == name}
        known = sorted(versions, key=read_version)[-5:]
        return UsageError(
            f"the catalogue has no {wanted}", hints=[f"the newest it has: {', '.join(known)}"]
        )
    lines = list(dict.fromkeys(refusals)) or [
        f"{choice.wheel.variant}: {choice.reason}" for choice in choices
    ]
    shown = lines[:_MOST_CLOSEST]
    if lines[_MOST_CLOSEST:]:
        shown.append(f"and {len(lines) - _MOST_CLOSEST} more; `stoker catalogue select` lists them")
    what = "no variant of {} runs here" if not refusals else "{} and its extensions do not match"
    return NoVariantError(what.format(wanted), hints=shown)
