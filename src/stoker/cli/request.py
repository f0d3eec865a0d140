"""The options that plan, doctor and build share, derived from what is declared elsewhere."""

from collections.abc import Callable
from typing import Any, TypeVar

import click

from stoker.knowledge.features import features
from stoker.model.errors import UsageError
from stoker.settings.declared import OPTIONS, Request

F = TypeVar("F", bound=Callable[..., Any])


def request_options(*, variant: bool, source: bool = True) -> Callable[[F], F]:
    """Add a flag for every declared option and feature, and -D; those of the two only if asked."""
    left_out = {name for name, wanted in (("variant", variant), ("source", source)) if not wanted}

    def decorate(function: F) -> F:
        for row in reversed(features().values()):
            function = click.option(
                f"--{row.name}/--no-{row.name}",
                f"feature_{row.name}",
                default=None,
                help=row.help,
            )(function)
        function = click.option(
            "-D",
            "defines",
            multiple=True,
            metavar="NAME=VALUE",
            help="Any other CMake option; `stoker options` lists them.",
        )(function)
        for option in reversed(OPTIONS.values()):
            if option.name not in left_out:
                function = click.option(
                    option.flag, option.name, metavar=option.metavar, help=option.help
                )(function)
        return function

    return decorate


def read_request(arguments: dict[str, Any]) -> Request:
    """What the flags above were given, as the flow wants it."""
    words = {
        name.removeprefix("feature_"): on
        for name, on in arguments.items()
        if name.startswith("feature_") and on is not None
    }
    return Request(
        options={name: arguments[name] for name in OPTIONS if arguments.get(name) is not None},
        features=tuple(name if on else f"no{name}" for name, on in words.items()),
        defines=dict(_define(text) for text in arguments["defines"]),
    )


def _define(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name:
        raise UsageError(f"-D {text} has no name", hints=["for example: -D USE_CUDNN=0"])
    return name, value if equals else "ON"
