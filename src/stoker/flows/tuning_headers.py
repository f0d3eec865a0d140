"""Shared headers for the sample of `stoker tune`: chosen as `--shared-headers auto` does, from the
sampled compiles and others with the same flags, and made in a temporary folder.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from stoker.flows.sharing import chosen_headers, scan_of
from stoker.headers.choice import Offer, Source
from stoker.headers.commands import compiles_in, making_command
from stoker.headers.files import HeaderFolder
from stoker.knowledge.shared_headers import header_rules
from stoker.model.headers import Compile, HeaderSharing
from stoker.model.tuning import Sampled
from stoker.outside.files import remove_tree

_MOST_SCANNED = 40  # compiles with the same flags that are scanned

Scanned = tuple[Compile, Source]
# Runs a command in a folder; returns whether it succeeded.
Make = Callable[[Sequence[str], Path], bool]


def headers_of(
    sample: Sequence[Sampled],
    commands: Iterable[tuple[str, str]],
    place: Path,
    make: Make,
    environment: Mapping[str, str],
) -> dict[str, str]:
    """Return the header that each sampled output can use, as a value of -include. ``commands`` are
    those of the whole build, each with its folder.
    """
    kept, tolerance = HeaderFolder(place), header_rules().tolerance[HeaderSharing.AUTO]
    found: dict[str, str] = {}
    try:
        for group in _groups(sample, commands):
            scanned = [(c, Source(scan)) for c in group if (scan := scan_of(c, environment))]
            if scanned:
                headers = chosen_headers(scanned, kept, environment, tolerance)
                offer = Offer(headers, tolerance)
                found |= _made(sample, scanned, offer, kept, place, make)
    finally:
        remove_tree(kept.path)
        kept.close()
    return found


def _groups(
    sample: Sequence[Sampled], commands: Iterable[tuple[str, str]]
) -> Iterable[list[Compile]]:
    """Return the compiles that could share a header with a sampled one, the sampled ones first."""
    groups: defaultdict[tuple[str, ...], list[Compile]] = defaultdict(list)
    outputs = {step.output for step in sample}
    for folder, line in commands:
        for each in compiles_in([line], folder):
            groups[each.group].append(each)
    for group in groups.values():
        if any(each.output in outputs for each in group):
            yield sorted(group, key=lambda each: each.output not in outputs)[:_MOST_SCANNED]


def _made(
    sample: Sequence[Sampled],
    scanned: Sequence[Scanned],
    offer: Offer,
    kept: HeaderFolder,
    place: Path,
    make: Make,
) -> dict[str, str]:
    """Make the headers that sampled compiles use."""
    outputs = {step.output for step in sample}
    found: dict[str, str] = {}
    good: dict[str, bool] = {}
    for each, source in scanned:
        header = offer.largest(source) if each.output in outputs else None
        if header is None:
            continue
        path = place / f"{header.name}.hpp"
        if header.name not in good:
            words = making_command(header, str(kept.write_source(header)), f"{path}.gch")
            good[header.name] = make(words, Path(each.folder))
        if good[header.name]:
            found[each.output] = str(path)
    return found
