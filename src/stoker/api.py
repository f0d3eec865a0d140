"""The Python interface. Its functions return the values that the commands print with ``--json``.

    >>> import stoker
    >>> stoker.inspect("torch-2.9.1-cp312-cp312-manylinux_2_28_x86_64.whl").device_code

``msgspec.json.encode`` makes JSON of a value. Each function raises ``StokerError``, whose ``hints``
say what to do next.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stoker.diagnose.values import Diagnosis
    from stoker.govern.client.running import Finished
    from stoker.model.artifact import ArtifactFacts
    from stoker.model.events import AnyEvent
    from stoker.model.plan import Plan
    from stoker.model.runs import Attempt, Run


def inspect(target: str | os.PathLike[str]) -> "ArtifactFacts":
    """Return what a wheel, a library, a folder or an installed distribution contains."""
    from stoker.wheel.inspect.inspecting import inspect

    return inspect(os.fspath(target))


def plan(
    variant: str = "native",
    *,
    source: str | os.PathLike[str] | None = None,
    options: Mapping[str, str] = {},
    defines: Mapping[str, str] = {},
) -> "Plan":
    """Return the settings of a build of the source tree for a variant, such as ``h100``.

    ``options`` are those of `stoker plan` without their dashes, such as ``{"blas": "openblas"}``.
    """
    from stoker.plan.survey import plan
    from stoker.settings.declared import CommandLine

    chosen = {name.replace("-", "_"): value for name, value in options.items()}
    chosen["variant"] = variant
    if source is not None:
        chosen["source"] = os.fspath(source)
    return plan(CommandLine(options=chosen, defines=dict(defines)))


def diagnose(log: str | os.PathLike[str]) -> "Diagnosis":
    """Return the causes of a failed build with evidence and fixes, from its log, its run folder or
    the number of its run.
    """
    from stoker.diagnose.diagnosing import diagnose_what

    return diagnose_what(os.fspath(log))


def history() -> "tuple[Run, ...]":
    """Return all runs, the newest first."""
    from stoker.govern.history.past_runs import runs

    return runs()


def steps(run: int) -> "tuple[Attempt, ...]":
    """Return what each step of a run needed."""
    from stoker.govern.history.past_runs import attempts_of, measured_run

    return attempts_of(measured_run(str(run)))


def run(
    command: Sequence[str],
    *,
    show: "Callable[[AnyEvent], None]" = lambda _: None,
    **settings: str | int,
) -> "Finished":
    """Run a build command under the governor. It inherits the environment, the folder and the
    output of this process. Each event is passed to ``show``. ``settings`` are options of
    `stoker run`, such as ``memory="16G"``; the others come from stoker.toml as there.
    """
    from stoker.cache.run_cache import run_cache
    from stoker.cli.chosen import run_options, with_settings
    from stoker.govern.client.running import run
    from stoker.model.errors import UsageError
    from stoker.settings.declared import OPTIONS, SettingGroup

    known = [
        name
        for name, one in OPTIONS.items()
        if one.group in (SettingGroup.GOVERN, SettingGroup.CHAIN)
    ]
    if unknown := settings.keys() - set(known):
        raise UsageError(
            f"run has no setting {min(unknown)!r}", hints=[f"it has {', '.join(known)}"]
        )
    options = run_options(with_settings(dict.fromkeys(known) | settings), own_cache=True)
    return run(command, options, run_cache(options.chain), show)
