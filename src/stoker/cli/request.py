"""Flags of the declared settings, of features and of CMake options, and what they were set to."""

import shlex
from collections.abc import Callable, Iterable, Sequence
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from stoker.model.errors import UnknownWordError, UsageError
from stoker.model.plan import OriginKind
from stoker.settings.declared import OPTIONS, CommandLine, Declared, SettingGroup, SettingKind

if TYPE_CHECKING:
    from stoker.govern.session import RunOptions
    from stoker.model.caching import ChainOptions
    from stoker.model.govern import TimeLimit
    from stoker.settings.user_options import UserOptions

F = TypeVar("F", bound=Callable[..., Any])
# Settings of a recorded build; only the command line replaces them.
_RECORDED = ("source", "mode", "isolation", "label")


_SHOW_ALL = "stoker.show-all"
_TOLD = "stoker.told"  # the settings that a command has named; it names them once


class Option(click.Option):
    """An option of stoker. ``--help`` leaves out a ``rare`` one, and ``--help-all`` shows it. One
    that is ``local`` means something on this machine and is not repeated in a container.
    """

    def __init__(self, *names: Any, rare: bool = False, local: bool = False, **others: Any):
        super().__init__(*names, **others)
        self.rare = rare
        self.local = local

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        if self.rare and not ctx.meta.get(_SHOW_ALL):
            return None
        return super().get_help_record(ctx)


def show_all_options(context: click.Context) -> None:
    """Let the help of this command list its rare options too."""
    context.meta[_SHOW_ALL] = True


def _help_all(function: F) -> F:
    """Add ``--help-all``, once."""
    if any(option.name == "help_all" for option in getattr(function, "__click_params__", ())):
        return function

    def show(context: click.Context, _: click.Parameter, asked: bool) -> None:
        if asked and not context.resilient_parsing:
            show_all_options(context)
            click.echo(context.get_help(), color=context.color)
            context.exit()

    return click.option(
        "--help-all",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=show,
        help="Show this message with all options and features.",
    )(function)


def variant_words(function: F) -> F:
    """Add the argument VARIANT, which may have several words; --variant says the same."""

    @wraps(function)
    def refuse_folders(words: tuple[str, ...], **options: Any) -> Any:
        try:
            return function(words=words, **options)
        except UnknownWordError as error:
            if error.text == " ".join(words):
                check_no_folder(words, "a variant")
            raise

    return click.argument("words", nargs=-1, metavar="[VARIANT]...")(cast("F", refuse_folders))


def check_no_folder(words: Sequence[str], what: str) -> None:
    """Raise an error for a folder among words that mean something else, as in `stoker plan .`."""
    for word in words:
        if Path(word).is_dir():
            context = click.get_current_context()
            command = context.info_name if "source" in context.params else "plan"
            others = [other for other in words if other != word]
            hint = f"`stoker {command} {shlex.join([*others, '--source', word])}`"
            raise UsageError(f"'{word}' is a folder, not {what}", hints=[hint])


def request_options(*, source: bool = True) -> Callable[[F], F]:
    """Add a flag for each setting of a plan, for each feature, and -D; --source if asked for."""

    def decorate(function: F) -> F:
        from stoker.knowledge.projects import features

        function = _help_all(function)
        for row in reversed(features().values()):
            function = click.option(
                f"--{row.name}/--no-{row.name}",
                f"feature_{row.name}",
                default=None,
                help=row.help,
                cls=Option,
                rare=True,
            )(function)
        function = click.option(
            "-D",
            "defines",
            multiple=True,
            metavar="NAME=VALUE",
            help="Set any other CMake option; `stoker options` lists them.",
        )(function)
        return setting_options(SettingGroup.PLAN, without=() if source else ("source",))(function)

    return decorate


def setting_options(group: SettingGroup, *, without: Iterable[str] = ()) -> Callable[[F], F]:
    """Add a flag for each setting of a group."""

    def decorate(function: F) -> F:
        function = _help_all(function)
        for option in reversed(OPTIONS.values()):
            if option.group is group and option.name not in without:
                function = _flag(option)(function)
        return _without_jobs(function) if group is SettingGroup.GOVERN else function

    return decorate


def _without_jobs(function: F) -> F:
    """Explain why there is no -j, which users of ninja and make expect."""

    def refuse(_: click.Context, __: click.Parameter, value: str | None) -> None:
        if value is not None:
            hints = ["--cpus N uses at most N CPUs, --memory SIZE at most that much memory"]
            why = "there is no number of jobs: as many steps run as fit in memory"
            raise UsageError(why, hints=hints)

    return click.option("-j", "--jobs", hidden=True, expose_value=False, callback=refuse)(function)


def _flag(option: Declared) -> Callable[[F], F]:
    how: dict[str, Any] = {
        "help": option.help,
        "cls": Option,
        "rare": option.rare,
        "local": option.local,
    }
    if option.kind is SettingKind.SWITCH:
        words = f"{option.flag}/--no-{option.flag.removeprefix('--')}"
        return click.option(words, option.name, default=None, **how)
    names = ("-o", option.flag) if option.name == "out" else (option.flag,)
    kind = click.Choice(option.choices) if option.choices else None
    metavar = option.metavar or None
    return click.option(*names, option.name, type=kind, metavar=metavar, **how)


def read_request(arguments: dict[str, Any]) -> CommandLine:
    """Return the values of these flags and arguments."""
    if words := " ".join(arguments.get("words", ())):
        if other := arguments.get("variant"):
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
        options={name: _as_text(value) for name, value in given.items()},
        features=tuple(name if on else f"no{name}" for name, on in switches.items()),
        defines=dict(_define(text) for text in arguments.get("defines", ())),
        file=arguments.get("file"),
    )


def told_request(arguments: dict[str, Any]) -> CommandLine:
    """Return the values of these flags, and name the stoker.toml that completes them."""
    from stoker.settings.user_options import read_user_options

    said = read_request(arguments)
    _tell(read_user_options(said))
    return said


def with_settings(arguments: dict[str, Any], *, recorded: bool = False) -> dict[str, Any]:
    """Return the arguments with each setting that the command line leaves open filled in from
    STOKER_ variables, stoker.toml and the defaults. Settings of the plan are left as they are.
    """
    from stoker.settings.user_options import read_user_options

    chosen = read_user_options(read_request(arguments))
    _tell(chosen)
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
    progress = chosen.text("progress")
    context = click.get_current_context(silent=True)
    if progress == "json" or (context and context.meta.setdefault(_TOLD, chosen) is not chosen):
        return
    for warning in chosen.warnings:
        click.echo(f"stoker: {warning}", err=True)
    by_file = chosen.values["progress"].origin.kind is OriginKind.FILE
    if chosen.file and (progress != "quiet" or by_file):
        click.echo(f"stoker: settings of {chosen.file}", err=True)


def run_options(settings: dict[str, Any]) -> "RunOptions":
    """Return the options of a governed run, from arguments with all settings filled in."""
    from stoker.govern.session import RunOptions, Via
    from stoker.model.govern import Gc, NvccThreads
    from stoker.model.machine import Tmp

    return RunOptions(
        **{name: settings[name] for name in ("memory", "keep_free", "cpus", "policy")},
        nice=bool(settings["nice"]),
        gc=Gc(settings["gc"]),
        nvcc_threads=NvccThreads(settings["nvcc_threads"]),
        tmp=Tmp(settings["tmp"]),
        via=Via(settings["via"]),
        time_limit=_time_limit(settings.get("stop_after"), settings.get("stop_grace")),
        chain=chain_options(settings),
    )


def _time_limit(seconds: float | None, grace: float | None) -> "TimeLimit | None":
    """Return when a run that starts now must end; the clock starts before sources are fetched."""
    import time

    from stoker.model.govern import TimeLimit

    return TimeLimit.starting_at(time.monotonic(), seconds, grace) if seconds else None


def chain_options(settings: dict[str, Any]) -> "ChainOptions":
    """Return the wanted cache, from arguments with all settings filled in."""
    from stoker.model.caching import CacheEngine, ChainOptions
    from stoker.model.govern import Linker

    return ChainOptions(
        cache=CacheEngine(settings["cache"]),
        remote=settings["cache_remote"],
        launcher=settings["compiler_launcher"],
        distribute=settings["distribute"],
        trust_network=bool(settings["trust_network"]),
        linker=Linker(settings.get("linker", "default")),
    )


def same_command() -> str:
    """Return the command line of this process, which continues what was not finished."""
    import sys

    from stoker.model.secrets import redact

    return redact(shlex.join(["stoker", *sys.argv[1:]]))


def _as_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _define(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name:
        raise UsageError(f"-D {text} has no name", hints=["for example: -D USE_CUDNN=0"])
    return name, value if equals else "ON"
