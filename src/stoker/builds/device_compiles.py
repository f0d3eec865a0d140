"""The device compiles of a configured build, compared with the targets of the plan.

The commands come from ninja itself, which writes out every rule; ``stoker.plan.compiled`` judges
them. A device compile inside a script, as old FindCUDA and FindHIP write them, shows only when it
runs: then the governor checks it.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from stoker.govern.command_line import compiler_words, step_of
from stoker.model.errors import TargetsError
from stoker.model.value import UNDECODABLE, Value
from stoker.model.variant import PlannedTargets
from stoker.outside import process
from stoker.plan.compiled import DeviceCompile, device_compile, difference, unserved, where_from
from stoker.plan.left_out import VARIABLE, without
from stoker.source.ninja import compile_commands

_DEVICE = re.compile(r"nvcc|hipcc|--offload-arch|\.cu\b|\.hip\b|-x ?cu|-x ?hip")
_TIMEOUT_S = 120.0
# Messages of CMake and of setup.py about the back end, not paths that contain such a word.
_TELLING = re.compile(
    r"^(?:--|\[)(?!.*written to:).*(?:back ?end|cuda|hip|rocm|gpu|sycl)|^\w+=[01]$", re.IGNORECASE
)
_MOST_LINES = 4


class NinjaCommands(Value, frozen=True, kw_only=True):
    """The device compiles of a build folder. ``hidden``: some are inside scripts."""

    compiles: tuple[DeviceCompile, ...] = ()
    others: int = 0  # commands that compile no device code
    hidden: bool = False


def ninja_commands(folder: Path, root: Path, env: Mapping[str, str]) -> NinjaCommands | None:
    """Return what ninja would run in a folder; None if it cannot say."""
    told = process.run(
        ["ninja", "-C", str(folder), "-t", "compdb"], timeout=_TIMEOUT_S, env=dict(env)
    )
    try:
        entries = compile_commands(told.stdout)
    except UNDECODABLE:
        return None
    possible = [e for e in entries if _DEVICE.search(e.command) or _DEVICE.search(e.file)]
    found = [
        device_compile(step_of(compiler_words(entry.command), entry.directory, str(root)))
        for entry in possible
    ]
    left_out = env.get(VARIABLE, "").split()
    compiles = tuple(without(compiled, left_out) for compiled in found if compiled)
    hidden = any(".cmake" in entry.command for entry in possible)
    return NinjaCommands(compiles=compiles, others=len(entries) - len(compiles), hidden=hidden)


def check_configured(planned: PlannedTargets, found: NinjaCommands, log: str) -> None:
    """Raise TargetsError if the commands differ from the plan, before any of them runs."""
    for compiled in found.compiles:
        if differs := difference(planned, compiled):
            flags = f" ({' '.join(compiled.flags)})" if compiled.flags else ""
            raise TargetsError(f"{compiled.source}: {differs}{flags}", hints=where_from(planned))
    if found.compiles:
        if missing := unserved(planned, found.compiles):
            raise TargetsError(
                f"no command compiles for {', '.join(missing)}, which the plan states",
                hints=where_from(planned),
            )
    elif planned.compiles and not found.hidden:
        raise configured_without(planned, log, f"none of {found.others} commands")


def configured_without(planned: PlannedTargets, log: str, what: str) -> TargetsError:
    """Return the error of a build that would compile no device code, with what its log says."""
    lines = [line.strip() for line in log.splitlines() if _TELLING.search(line)]
    said = [f"the build says: {line}" for line in dict.fromkeys(lines)][:_MOST_LINES]
    return TargetsError(
        f"configured without {planned.backend}: {what} compiles device code",
        hints=[*said, *where_from(planned)],
    )


def compiled_below(folder: Path, root: Path, env: Mapping[str, str]) -> tuple[DeviceCompile, ...]:
    """Return the device compiles of every build.ninja below a folder."""
    graphs = sorted(folder.rglob("build.ninja"))[:20]
    listed = (ninja_commands(graph.parent, root, env) for graph in graphs)
    return tuple(compiled for each in listed if each for compiled in each.compiles)
