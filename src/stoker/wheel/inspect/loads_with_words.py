"""With which releases of PyTorch a wheel loads, in words and as a part of a page."""

from collections.abc import Iterator

from packaging.tags import Tag

from stoker.knowledge.sonames import cuda_of
from stoker.model.artifact import ArtifactFacts, LoadsWith, TorchFit
from stoker.model.distribution import read_tags
from stoker.model.value import cut_off, version_numbers
from stoker.outside.demangle import demangled
from stoker.outside.terminal import Group, Listing, Page, Text
from stoker.wheel.inspect.loads_with import releases_in_words, relevant
from stoker.wheel.zip.metadata import required_name

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


def loads_with_page(facts: ArtifactFacts) -> Page | None:
    """Return the table; None if the libraries do not use PyTorch."""
    if facts.loads_with is None:
        return None
    words = releases_in_words(facts.loads_with)
    pins = dict.fromkeys(pinned(fit) for fit in relevant(facts.loads_with) if fit.loads)
    title = ", and ".join([f"Loads with {words}", *filter(None, pins)])
    table = Listing("", "", "", title=title, indent=2)
    for name, value, remark in _rows(facts, facts.loads_with):
        if value:
            table.add(name, value, Text(remark, style="dim"))
    failing = _failing(facts.loads_with)
    return Group(table, Text(), failing) if failing else table


def _rows(facts: ArtifactFacts, loads: LoadsWith) -> Iterator[tuple[str, str, str]]:
    libraries = [library for library in facts.libraries if not library.problem]
    kind = "the C shim only: stable ABI" if loads.stable_abi else "C++: unstable ABI"
    yield "symbols", f"{loads.symbols} of PyTorch", kind
    requires = facts.wheel.requires if facts.wheel else ()
    yield "requires", ", ".join(one for one in requires if required_name(one) == "torch"), ""
    needed = sorted({name for library in libraries for name in library.needed})
    majors = {cuda: name for name in needed if (cuda := cuda_of(name))}
    torchs = sorted({fit.cuda for fit in relevant(loads) if fit.loads and fit.cuda})
    of_torch = f"that torch has CUDA {' or '.join(torchs)}" if torchs else ""
    of_wheel = ", ".join(majors.values())
    yield "CUDA", " ".join(map(str, sorted(majors))), "; ".join(filter(None, (of_wheel, of_torch)))
    yield "C++ ABI", " ".join(sorted({str(one.cxx_abi) for one in libraries if one.cxx_abi})), ""
    tags = read_tags(facts.wheel.tags) if facts.wheel else ()
    yield "Python", ", ".join(sorted({_python(tag) for tag in tags})), ""
    glibc = [one.versions["GLIBC"] for one in libraries if "GLIBC" in one.versions]
    yield "glibc", max(glibc, key=version_numbers, default=""), f"{facts.manylinux or ''}"
    yield "GPUs", " ".join(row.arch for row in facts.runs_on if not row.without), ""


def _python(tag: Tag) -> str:
    """Return ``3.12`` for ``cp312-cp312``, and ``3.9 or newer`` for ``cp39-abi3``."""
    digits = tag.interpreter.lstrip("abcdefghijklmnopqrstuvwxyz")
    version = f"{digits[:1]}.{digits[1:]}" if digits[1:] else digits or tag.interpreter
    exact = tag.abi.startswith("cp")
    return version if exact else f"{version} or newer"


def _failing(loads: LoadsWith) -> Listing | None:
    """Return a row for each build that does not have everything."""
    rows = [fit for fit in relevant(loads) if not fit.loads or fit.torch]
    if not rows:
        return None
    table = Listing("", "", ">", "", title="What each PyTorch lacks", indent=2)
    for fit in rows:
        build = f"CUDA {fit.cuda}" if fit.cuda else "CPU"
        count = len(fit.missing) + len(fit.absent)
        table.add(fit_name(fit), build, str(count or "nothing"), lacking(fit) or pinned(fit))
    return table
