"""Reads the graph of a build folder, and what was measured of its steps."""

from pathlib import Path
from posixpath import normpath

from msgspec.structs import replace

from stoker.govern.history.past_runs import timings_of
from stoker.model.errors import UsageError
from stoker.outside.long_work import Say
from stoker.report.graphs.analysis import find_impact, make_build_graph
from stoker.report.graphs.build_graph import BuildGraph
from stoker.report.graphs.owners import Owners
from stoker.report.graphs.steps import NeededSteps
from stoker.source.cmake_api import cmake_sources, read_targets
from stoker.source.ninja import find_build, read_discovered, read_graph

_MOST_SHOWN = 5  # files with the same name in an error


def graph_of(place: Path, *, impact: str | None = None, say: Say) -> BuildGraph:
    """Return the graph of a build, and what a change to the file ``impact`` rebuilds.

    ``place`` is a build folder, or a source tree that was built; then ``say`` is told which build
    folder is used.
    """
    folder = find_build(place)
    if folder != place.absolute():
        say(f"the build folder is {folder}")
    steps = NeededSteps(str(folder), read_graph(folder))
    if not steps.real:
        raise UsageError(f"{folder / 'build.ninja'} has no steps")
    reply = read_targets(folder)
    owners, timings = Owners(steps, reply), timings_of(folder)
    graph = make_build_graph(steps, owners, timings, folder=str(folder), has_reply=bool(reply))
    if impact is None:
        return graph
    discovered = read_discovered(folder)
    file = _file(impact, folder, steps.files(discovered))
    return replace(graph, impact=find_impact(steps, owners, timings, file, discovered))


def _file(word: str, folder: Path, known: "set[str]") -> str:
    """Return the absolute path of a file: from here, from the build folder or the source tree, or
    the end of the path of a single file of the build.
    """
    bases = (Path.cwd(), folder, cmake_sources(folder))
    paths = [normpath(base / word) for base in bases if base]
    paths += [str(Path(path).resolve()) for path in paths]
    for path in paths:
        if path in known:
            return path
    ending = sorted(path for path in known if path.endswith(f"/{word}"))
    if len(ending) == 1:
        return ending[0]
    if ending:
        shown = ending[:_MOST_SHOWN]
        raise UsageError(f"{len(ending)} files of the build are called {word}", hints=shown)
    existing = next((path for path in paths if Path(path).exists()), None)
    if existing is None:
        raise UsageError(f"there is no file {word}, and the build does not use one")
    return existing
