"""Checks that the PyTorch a wheel is meant for exports all symbols that its libraries need."""

from collections.abc import Iterator

from packaging.requirements import InvalidRequirement

from stoker.knowledge.torch_symbols import known_builds
from stoker.model.distribution import read_requirement
from stoker.model.errors import UsageError
from stoker.model.finding import Finding, error, note, warning
from stoker.wheel.inspect.loads_with import relevant
from stoker.wheel.inspect.loads_with_words import fit_name, lacking, pinned, releases_in_words
from stoker.wheel.verify.tested import WheelUnderTest

_MOST_NAMES = 20


def asked_releases(requirement: str) -> tuple[str, ...]:
    """Return the known releases of PyTorch that a requirement such as ``torch==2.11`` allows."""
    known = tuple(dict.fromkeys(build.release for build in known_builds()))
    try:
        asked = read_requirement(requirement)
    except InvalidRequirement as problem:
        raise UsageError(f"--against {requirement}: {problem}") from None
    if asked.name != "torch":
        raise UsageError(f"--against takes releases of torch, not of {asked.name}")
    if found := tuple(release for release in known if release in asked.specifier):
        return found
    raise UsageError(
        f"the table of symbols has no release that {requirement} allows",
        hints=[f"it has {known[0]} to {known[-1]}", "another PyTorch is read with --with WHEEL"],
    )


def applies(wheel: WheelUnderTest) -> bool:
    return wheel.facts.loads_with is not None


def unresolved(wheel: WheelUnderTest) -> Iterator[Finding]:
    """Yield an error for each build that was asked for and that the wheel does not load with, or
    that its requirements exclude; a build that was read may be a variant of one that they allow.

    Without such, releases that its own requirements allow count: a warning if some fail.
    """
    loads = wheel.facts.loads_with
    if loads is None:
        if wheel.against is not None:
            yield note("no-torch", "no library uses PyTorch, so it loads with any release", [])
        return
    fits = relevant(loads)
    if wheel.against is not None or any(fit.torch for fit in fits):
        asked = [fit for fit in fits if fit.torch or fit.release in (wheel.against or ())]
        for fit in asked:
            if not fit.loads:
                title = f"does not load with {fit_name(fit)}"
                yield error("does-not-load", title, lacking(fit, _MOST_NAMES).split("; "))
            elif fit.forbidden_by:
                title = f"{pinned(fit)}, not {fit_name(fit)}"
                finding = warning if fit.torch else error
                yield finding("for-another-torch", title, ["all symbols that it needs are there"])
        return
    failing = [fit for fit in fits if not fit.forbidden_by and not fit.loads]
    if failing:
        title = f"it loads with {releases_in_words(loads)}, but its requirements allow others"
        lines = [f"{fit_name(fit)} lacks {lacking(fit)}" for fit in failing]
        yield warning("loads-with-fewer", title, lines)
