"""`stoker build --container`: the same command line for the stoker inside."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from stoker.cli.chosen import progress_view, read_request, with_settings
from stoker.cli.ci import CiReport
from stoker.model.errors import UsageError

if TYPE_CHECKING:
    from stoker.builds.building import Built


def perform_inside(options: dict[str, Any], wanted: dict[str, Any]) -> None:
    """Build in a container. ``wanted`` are the options of the container itself."""
    from stoker.builds.containers.container_build import build_inside
    from stoker.builds.containers.engine import EngineKind
    from stoker.builds.containers.inside import ContainerWatcher, Inside
    from stoker.builds.repeating import read_recorded
    from stoker.diagnose.run_diagnoses import diagnose_folder
    from stoker.outside.terminal import print_json

    if options["shell_on_failure"]:
        hints = ["--keep, and then `stoker container shell`"]
        raise UsageError("--shell-on-failure has no terminal in a container", hints=hints)
    record = Path(options["from_record"]).absolute() if options["from_record"] else None
    asked = read_request(options)
    options = with_settings(options, recorded=record is not None)
    source = read_recorded(record).request.source if record else "."
    engine = wanted["engine"]
    inside = Inside(
        source=options["source"] or source,
        tag=options["tag"],
        out=options["out"],
        container=wanted["container"],
        words=(
            *words_again(click.get_current_context()),
            *(("--from-record", str(record)) if record else ()),
        ),
        engine=EngineKind(engine) if engine else None,
        memory=options["memory"],
        ipc=wanted["ipc"],
        keep=wanted["keep"],
        record=str(record) if record else None,
        variables=dict(map(_variable, wanted["env"])),
    )
    view = progress_view(options)
    ci = CiReport(view.write_own, junit=options["junit"])

    def end(built: "Built") -> None:
        if options["as_json"]:
            print_json(built)
        ci.built(built, diagnose_folder(Path(built.folder)) if built.record.error else None)

    watcher = ContainerWatcher(
        say=lambda text: view.write(f"stoker: {text}\n"), show=view.show, write=view.write, end=end
    )
    try:
        built = build_inside(asked, inside, watcher)
    finally:
        view.close()
    if not options["as_json"]:
        for path in built.record.outputs:
            click.echo(path)


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals and name not in os.environ:
        raise UsageError(f"--env {name}: it is not set here", hints=[f"--env {name}=VALUE"])
    return name, value if equals else os.environ[name]


def words_again(context: click.Context) -> Iterator[str]:
    """Yield the words of the command line again, option by option."""
    for option in context.command.params:
        name = option.name or ""
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        local = getattr(option, "local", False)
        if given and not local and isinstance(option, click.Option):
            value = context.params[name]
            if option.is_flag:
                yield (option.opts if value else option.secondary_opts)[0]
            else:
                for one in value if option.multiple else (value,):
                    yield from (option.opts[0], str(one))
