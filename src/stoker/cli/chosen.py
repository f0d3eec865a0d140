"""What the flags of a command were set to, completed by the other settings.

Independent of click, because `stoker run` starts sooner without it.
"""

import io
import shlex
import sys
import time
from typing import TYPE_CHECKING, Any

from stoker.model.errors import UsageError
from stoker.model.setting import OriginKind
from stoker.outside.streams import told
from stoker.settings.declared import BUILD_SETTINGS, OPTIONS, CommandLine, SettingGroup

if TYPE_CHECKING:
    from stoker.govern.client.progress import View
    from stoker.govern.client.session import RunOptions
    from stoker.model.caching import ChainOptions
    from stoker.settings.user_options import UserOptions

# Settings of a recorded build; only the command line replaces them.
_RECORDED = ("source", *(name for name in BUILD_SETTINGS if name != "out"))


def read_request(arguments: dict[str, Any]) -> CommandLine:
    """Return the values of these flags and arguments."""
    if arguments.get("words"):
        words = " ".join(arguments["words"])
        if (other := arguments.get("variant")) is not None:
            hints = ["leave out --variant, or the words"]
            raise UsageError(f"two variants: '{words}' and --variant '{other}'", hints=hints)
        arguments = arguments | {"variant": words}
    switches = {
        name.removeprefix("feature_"): on
        for name, on in arguments.items()
        if name.startswith("feature_") and on is not None
    }
    given = {name: arguments[name] for name in OPTIONS if arguments.get(name) is not None}
    return CommandLine(
        options={
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in given.items()
        },
        features=tuple(name if on else f"no{name}" for name, on in switches.items()),
        defines=dict(_define(text) for text in arguments.get("defines", ())),
        file=arguments.get("file"),
    )


def told_request(arguments: dict[str, Any]) -> CommandLine:
    """Return the values of these flags, and name the stoker.toml that completes them."""
    said = read_request(arguments)
    told_options(said)
    return said


def told_options(said: CommandLine) -> "UserOptions":
    """Return all settings, and name the stoker.toml that completes the command line."""
    from stoker.settings.user_options import read_user_options

    chosen = read_user_options(said)
    _tell(chosen)
    return chosen


def with_settings(arguments: dict[str, Any], *, recorded: bool = False) -> dict[str, Any]:
    """Return the arguments with each setting that the command line leaves open filled in from
    STOKER_ variables, stoker.toml and the defaults. Settings of the plan are left as they are.
    """
    chosen = told_options(read_request(arguments))
    open_names = [
        name
        for name, option in OPTIONS.items()
        if name in arguments
        and (option.group is not SettingGroup.PLAN or (name == "source" and not arguments[name]))
        and not (recorded and name in _RECORDED and arguments[name] is None)
    ]
    return arguments | {name: chosen.value(name) for name in open_names}


def _tell(chosen: "UserOptions") -> None:
    """Name the stoker.toml in force, and what of it is ignored. A file cannot hide itself."""
    progress, said = chosen.text("progress"), (chosen.file, *chosen.warnings)
    if progress == "json" or said in told:
        return
    told.append(said)
    from stoker.outside.terminal import tell

    for warning in chosen.warnings:
        tell(f"stoker: {warning}")
    by_file = chosen.values["progress"].origin.kind is OriginKind.FILE
    if chosen.file and (progress != "quiet" or by_file):
        tell(f"stoker: settings of {chosen.file}")


def run_options(settings: dict[str, Any], *, own_cache: bool = False) -> "RunOptions":
    """Return the options of a governed run, from arguments with all settings filled in.
    ``own_cache``: unless a cache is asked for, only one that the project starts is used.
    """
    from stoker.govern.client.session import RunOptions, Via
    from stoker.model.machine import Tmp
    from stoker.model.terms import Gc, NvccThreads, TimeLimit

    # The clock starts before sources are fetched.
    seconds, grace = settings.get("stop_after"), settings.get("stop_grace")
    limit = TimeLimit.starting_at(time.monotonic(), seconds, grace) if seconds else None
    return RunOptions(
        **{name: settings[name] for name in ("memory", "keep_free", "cpus", "policy")},
        nice=bool(settings["nice"]),
        gc=Gc(settings["gc"]),
        nvcc_threads=NvccThreads(settings["nvcc_threads"]),
        tmp=Tmp(settings["tmp"]),
        via=Via(settings["via"]),
        time_limit=limit,
        chain=chain_options(settings, own_cache=own_cache),
    )


def progress_view(settings: dict[str, Any]) -> "View":
    """Return what shows the progress of a build on standard error, in the form that is wanted."""
    from stoker.govern.client.progress import Progress, make_view

    # Python has no stderr if it is closed.
    return make_view(Progress(settings["progress"]), sys.stderr or io.StringIO())


def chain_options(settings: dict[str, Any], *, own_cache: bool = False) -> "ChainOptions":
    """Return the wanted cache, from arguments with all settings filled in; see ``run_options``."""
    from stoker.model.caching import CacheEngine, ChainOptions
    from stoker.model.govern import CompileMode

    unasked = own_cache and not settings["cache_remote"]
    return ChainOptions(
        cache=CacheEngine(settings["cache"] or ("project" if unasked else "auto")),
        remote=settings["cache_remote"],
        launcher=settings["compiler_launcher"],
        distribute=settings["distribute"],
        trust_network=bool(settings["trust_network"]),
        linker=CompileMode(settings.get("linker", "default")),
    )


def same_command() -> str:
    """Return the command line of this process, which continues what was not finished."""
    from stoker.model.secrets import redact

    return redact(shlex.join(["stoker", *sys.argv[1:]]))


def _define(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name:
        raise UsageError(f"-D {text} has no name", hints=["for example: -D USE_CUDNN=0"])
    if not equals:
        hints = [f"for example: -D {name}=ON"]
        raise UsageError(f"-D {name} has no value", hints=hints)
    return name, value
