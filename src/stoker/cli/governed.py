"""What `stoker run` does with its arguments: it runs the command, then says how it went.

Independent of click, without which it starts sooner: ``read_arguments`` reads the usual arguments.
"""

import os
import shlex
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from stoker.cli.chosen import progress_view, run_options, same_command, with_settings
from stoker.model.errors import ExitStatus, StorageError
from stoker.model.value import count_of, indented_json
from stoker.outside.processes import end_by
from stoker.outside.streams import ci_system
from stoker.settings.declared import OPTIONS, SettingGroup, SettingKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from stoker.diagnose.sieve import Sieve
    from stoker.diagnose.values import Diagnosis
    from stoker.model.events import AnyEvent
    from stoker.model.runs import RunSummary

GROUPS = (SettingGroup.GOVERN, SettingGroup.CHAIN)


class Flag(NamedTuple):
    """An option of `stoker run` that is not a setting. Without ``metavar`` it takes no value."""

    flag: str
    name: str
    help: str
    metavar: str = ""


FLAGS = (
    Flag(
        "--respect-jobs",
        "respect_jobs",
        "Leave -jN of make and ninja as it is, and use N CPUs; also MAX_JOBS=N.",
    ),
    Flag("--summary", "summary_file", "Write the summary as JSON.", "FILE"),
    Flag("--explain", "explain", "Say why steps waited, were paused or were killed."),
)


class _Option(NamedTuple):
    """A word of the command line that sets ``name``: to ``value``, or to the next word."""

    name: str
    value: bool | None = None
    choices: tuple[str, ...] = ()


def read_arguments(words: Sequence[str]) -> dict[str, Any] | None:
    """Return the arguments of `stoker run` by name, as click does; ``None`` for what only click
    handles: help, wrong arguments, and options that are refused.
    """
    options = dict(_options())
    found: dict[str, Any] = {option.name: None for option in options.values()}
    found |= {each.name: False for each in FLAGS if not each.metavar}
    left = deque(words)
    while left and left[0].startswith("-") and left[0] != "-":
        word, equals, value = left.popleft().partition("=")
        if word == "--" and not equals:
            break
        option = options.get(word)
        needs_value = option is not None and option.value is None
        if option is None or (needs_value and not (equals or left)) or (equals and not needs_value):
            return None
        if needs_value and not equals:
            value = left.popleft()
        if option.choices and value not in option.choices:
            return None
        found[option.name] = value if needs_value else option.value
    return found | {"command": tuple(left)} if left else None


def _options() -> Iterator[tuple[str, _Option]]:
    for setting in OPTIONS.values():
        if setting.group in GROUPS and setting.kind is SettingKind.SWITCH:
            yield setting.flag, _Option(setting.name, value=True)
            yield setting.flag.replace("--", "--no-", 1), _Option(setting.name, value=False)
        elif setting.group in GROUPS:
            yield setting.flag, _Option(setting.name, choices=setting.choices)
    for each in FLAGS:
        yield each.flag, _Option(each.name, value=None if each.metavar else True)


def run_governed(
    command: tuple[str, ...],
    respect_jobs: bool,
    summary_file: str | None,
    explain: bool,
    **arguments: Any,
) -> int:
    """Run a command under the governor, and return the exit status."""
    from msgspec.structs import replace

    from stoker.cache.run_cache import run_cache
    from stoker.diagnose.sieve import Sieve
    from stoker.govern.client.explanation import RunExplanation, SerialBuild, with_decisions_logged
    from stoker.govern.client.running import jobs_of, kept_outputs, opened, run
    from stoker.govern.client.summary import summary_text, unseen_text

    settings = with_settings(arguments)
    if respect_jobs and (jobs := jobs_of(command) or count_of(os.environ.get("MAX_JOBS", ""))):
        settings["cpus"] = min(settings["cpus"] or jobs, jobs)
    progress = settings["progress"]
    outputs, output = kept_outputs(), Sieve()
    view = progress_view(settings)
    explanation, serial = RunExplanation(), SerialBuild()
    began = time.time()

    def show(event: "AnyEvent") -> None:
        view.show(event)
        explanation.show(event)
        serial.show(event)

    try:
        options = replace(run_options(settings, own_cache=True), respect_jobs=respect_jobs)
        finished = run(
            command, options, run_cache(options.chain), with_decisions_logged(show), output.feed
        )
    finally:
        view.close()
    if finished.summary and progress not in ("quiet", "json"):
        view.write(summary_text(finished.summary) + serial.text(finished.summary.cpus))
    if explain:
        view.write(explanation.text())
    if finished.unfinished:
        resumable = finished.status == ExitStatus.UNFINISHED
        continues = f"; `{same_command()}` continues" if resumable else ""
        view.write(f"stoker: {finished.unfinished}{continues}\n")
    if finished.unseen_cpu_seconds:
        view.write(unseen_text(finished.unseen_cpu_seconds))
    if summary_file:
        view.write(_write(Path(summary_file), finished.summary))
    quiet, in_ci = progress in ("quiet", "json"), ci_system(os.environ)
    diagnosis = None
    if finished.status and not finished.interrupted and not finished.unfinished:
        for stream in opened(outputs):
            output.feed_all(stream)
        write = view.write
        diagnosis = _diagnosis(output, command, finished.summary, write, began=began, quiet=quiet)
    if in_ci:
        from stoker.cli.ci import CiReport

        CiReport(view.write_own).ran(shlex.join(command), finished, diagnosis)
    if finished.ended_by:
        end_by(finished.ended_by)
    return finished.status


def _diagnosis(
    output: "Sieve",
    command: tuple[str, ...],
    summary: "RunSummary | None",
    write: "Callable[[str], None]",
    *,
    began: float,
    quiet: bool,
) -> "Diagnosis | None":
    """Keep the output of a command that failed, and write and return its diagnosis."""
    from stoker.diagnose.run_diagnoses import keep_run
    from stoker.diagnose.texts import short_diagnosis
    from stoker.diagnose.values import FailedRun
    from stoker.outside.folders import current_folder

    failed = FailedRun(command=shlex.join(command), folder=str(current_folder()))
    try:
        diagnosis = keep_run(output.content(), failed, summary, began)
    except StorageError as error:
        write(f"stoker: the output was not kept: {error}\n")
        return None
    if not quiet:
        write(short_diagnosis(diagnosis))
    return diagnosis


def _write(path: Path, summary: "RunSummary | None") -> str:
    """Write the summary; return a message if that failed. The exit status stays the command's."""
    from stoker.outside.files import write_named

    if summary is None:
        return f"stoker: no summary in {path}: there is no governor\n"
    try:
        write_named(path, indented_json(summary) + b"\n")
    except StorageError as error:
        return f"stoker: {error}\n"
    return ""
