"""Flags of the declared settings, of features and of CMake options."""

import sys
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import click

from stoker.model.errors import UsageError
from stoker.settings.declared import OPTIONS, Declared, SettingGroup, SettingKind

# A command that an option is added to.
F = TypeVar("F", bound=Callable[..., Any])

_SHOW_ALL = "stoker.show-all"


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


def request_options(*, source: bool = True) -> Callable[[F], F]:
    """Add a flag for each setting of a plan, for each feature, and -D; --source if asked for."""

    def decorate(function: F) -> F:
        from stoker.knowledge.features import features

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
            help="Set any other CMake option; `stoker plan --options` lists them.",
        )(function)
        return setting_options(SettingGroup.PLAN, without=() if source else ("source",))(function)

    return decorate


def setting_options(
    group: SettingGroup, *, without: Iterable[str] = (), only: Iterable[str] | None = None
) -> Callable[[F], F]:
    """Add a flag for each setting of a group, or for some of them."""

    def decorate(function: F) -> F:
        function = _help_all(function)
        for option in reversed(OPTIONS.values()):
            wanted = option.name not in without if only is None else option.name in only
            if option.group is group and wanted:
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


def may_remove(what: str) -> bool:
    """Ask whether something may be removed."""
    if not sys.stdin or not sys.stdin.isatty():
        raise UsageError("nothing was removed: there is no terminal to ask on", hints=["add --yes"])
    return click.confirm(f"remove {what}?", err=True)
