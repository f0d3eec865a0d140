"""Renders what `stoker tune` found: one table for each topic, then the settings."""

from collections import Counter
from collections.abc import Iterator

from stoker.model.tuning import RelativeChange, Topic, TrialResult, Tuning
from stoker.model.value import counted, duration
from stoker.outside.terminal import Group, Indented, Listing, Page, Text, whole

_TITLES = {
    Topic.MEMORY: "Memory modes of gcc",
    Topic.DEBUG: "Debug information",
    Topic.COMPILER: "Another compiler",
    Topic.CACHE: "Compiler cache",
    Topic.THREADS: "Threads of nvcc",
    Topic.LINKER: "Linkers",
}


_REMARKS = {
    Topic.DEBUG: "these objects are not the same; the flags belong to the project",
    Topic.COMPILER: "these objects are not the same; the compiler is chosen when the project is "
    "configured",
}


_NOTHING = 0.005  # a change that rounds to nothing


def page(tuning: Tuning) -> Page:
    kinds = Counter(step.kind.value for step in tuning.sample)
    counts = ", ".join(counted(count, kind) for kind, count in kinds.items())
    head = Text(tuning.folder, style="bold")
    head.append(
        f"\n{counts}, {tuning.rounds} rounds on {tuning.cpus} CPUs; one round as it is takes "
        f"{duration(tuning.baseline_s)}",
        style="not bold dim",
    )
    parts: list[Page] = [head]
    for topic in Topic:
        if results := [result for result in tuning.results if result.topic is topic]:
            parts += [Text(), *_topic(topic, results)]
    parts += [Text(), *_advice(tuning)]
    parts += [Indented(Text(note, style="dim"), 2) for note in tuning.notes]
    return Group(*parts)


def _topic(topic: Topic, results: list[TrialResult]) -> Iterator[Page]:
    alone = topic in (Topic.LINKER, Topic.THREADS)
    time = "time" if alone else "CPU time"
    listing = Listing("", time, "", "peak", "size", "output", title=_TITLES[topic], indent=2)
    for result in results:
        name = f"{result.steps[0]}: {result.trial}" if alone and result.steps else result.trial
        listing.add(
            name,
            _change(result.time),
            Text(_range(result.time), style="dim"),
            _change(result.peak),
            _change(result.size),
            _output(result),
        )
    yield listing
    if topic in _REMARKS:
        yield Indented(Text(_REMARKS[topic], style="dim"), 4)
    for result in results:
        for text in (*result.differences, *result.problems):
            yield Indented(Text(f"{result.trial}: {text}", style="dim"), 4)


def _change(change: RelativeChange | None) -> str:
    if change is None:
        return "-"
    if max(change.most - 1, 1 - change.least) < _NOTHING:
        return "same"
    if change.rounds == 1:
        return f"{_signed(change.ratio)} (once)"
    return _signed(change.ratio) if change.is_certain else "no gain"


def _signed(ratio: float) -> str:
    return "0 %" if abs(ratio - 1) < _NOTHING else f"{100 * (ratio - 1):+.0f} %"


def _range(change: RelativeChange | None) -> str:
    if change is None or change.rounds < 2:
        return ""
    return f"{_signed(change.least)} to {_signed(change.most)}, noise {100 * change.noise:.0f} %"


def _output(result: TrialResult) -> str:
    if not result.steps:
        return "failed"
    if result.topic is Topic.LINKER:
        return "equivalent" if result.is_same else "differs"
    if result.topic in (Topic.DEBUG, Topic.COMPILER):
        return f"of {len(result.steps)} objects"
    if result.topic is Topic.THREADS:
        return "same device code" if result.is_same else "other device code"
    return f"{result.same} of {len(result.steps)} objects identical"


def _advice(tuning: Tuning) -> Iterator[Page]:
    if not tuning.advice:
        yield Text("No setting of stoker makes this build faster, as far as was measured.")
        return
    yield Text("For [defaults] in stoker.toml", style="bold")
    for advice in tuning.advice:
        yield whole(f"  {advice.setting}")
        yield Indented(Text(advice.why, style="dim"), 4)
