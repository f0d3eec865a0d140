"""Builds of PyTorch in words: which of them a wheel loads with, and what the others lack."""

from collections.abc import Sequence

from stoker.model.artifact import LoadsWith, TorchFit
from stoker.model.value import cut_off, minor_release
from stoker.outside.demangle import demangled
from stoker.wheel.inspect.loads_with import relevant

_MOST_SYMBOLS = 2  # missing symbols of one release that a page shows
_LONGEST = 120  # characters of one


def fit_name(fit: TorchFit) -> str:
    return f"torch {fit.release}{f' in {fit.torch}' if fit.torch else ''}"


def pinned(fit: TorchFit) -> str:
    """Return that the wheel is not meant for a release, if its requirements say so."""
    return f"its metadata requires {fit.forbidden_by}" if fit.forbidden_by else ""


def lacking(fit: TorchFit, most: int = _MOST_SYMBOLS) -> str:
    """Return the names of what a build of PyTorch lacks, shortened for a page."""
    names = [*fit.absent, *(cut_off(demangled(name), _LONGEST) for name in fit.missing)]
    more = [f"and {len(names) - most} more"] if len(names) > most else []
    return "; ".join([*names[:most], *more])


def releases_in_words(loads: LoadsWith) -> str:
    """Return the releases as a phrase, such as ``torch 2.9, 2.11 to 2.13``."""
    official = [fit for fit in relevant(loads) if not fit.torch]
    known = list(dict.fromkeys(fit.release for fit in official))
    good = {fit.release for fit in official if fit.loads}
    runs: list[list[str]] = [[]]
    for release in known:
        if release in good:
            runs[-1].append(release)
        elif runs[-1]:
            runs.append([])
    spoken = [_run_in_words(run, known) for run in runs if run]
    if not known:
        return "torch, unknown which: no official build has what it needs"
    if not spoken:
        return f"none of torch {_run_in_words(known, known)}"
    # Later releases keep the shim, so the newest known one is not the end.
    if loads.stable_abi and known[-1] in good:
        spoken[-1] = f"{spoken[-1].partition(' to ')[0]} and newer"
    return f"torch {', '.join(spoken)}"


def _run_in_words(run: Sequence[str], known: Sequence[str]) -> str:
    first, last = _short(run[0], run, known), _short(run[-1], run, known)
    return first if first == last else f"{first} to {last}"


def _short(release: str, run: Sequence[str], known: Sequence[str]) -> str:
    """Return ``2.9`` for ``2.9.1`` if all known releases of 2.9 are in the run."""
    minor = minor_release(release)
    return minor if {one for one in known if one.startswith(f"{minor}.")} <= set(run) else release
