"""What `stoker build` and `stoker develop` share: from options to a build that is shown."""

import io
import sys
from typing import Any

import click

from stoker.cli.request import read_request


def perform(options: dict[str, Any], *, editable: bool = False) -> None:
    import msgspec

    from stoker.flows.building import Watcher, build
    from stoker.flows.governed import RunOptions
    from stoker.model.build import BuildRequest, Isolation
    from stoker.model.scratch import Tmp
    from stoker.report.building import end_lines, stage_line
    from stoker.report.progress import Progress, make_view, summary_text

    isolation = options.get("isolation")
    request = BuildRequest(
        source=options["source"] or ".",
        out=options.get("out") or "dist",
        mode=options.get("mode") or "plain",
        target=options.get("target"),
        install_tree=options.get("install_tree", False),
        editable=editable,
        fresh=options["fresh"],
        verbose=options["verbose"],
        isolation=Isolation(isolation) if isolation else None,
    )
    governing = RunOptions(
        **{name: options[name] for name in ("memory", "keep_free", "cpus", "nice", "policy")},
        tmp=Tmp(options["tmp"]),
    )
    # Where stderr is closed, Python has none.
    view = make_view(Progress(options["progress"]), sys.stderr or io.StringIO())
    watcher = Watcher(
        show=view.show,
        tell=lambda result: view.write(stage_line(result)),
        say=lambda text: view.write(f"stoker: {text}\n"),
        echo=(lambda chunk: view.write(chunk.decode(errors="replace")))
        if options["verbose"]
        else None,
        shell_on_failure=options["shell_on_failure"],
    )
    try:
        built = build(read_request(options), request, governing, watcher)
    finally:
        view.close()
    if built.record.summary and built.record.summary.steps:
        view.write(summary_text(built.record.summary))
    view.write(end_lines(built.record, built.folder))
    if options["as_json"]:
        click.echo(msgspec.json.format(msgspec.json.encode(built)).decode())
    else:
        for path in built.record.outputs:
            click.echo(path)
