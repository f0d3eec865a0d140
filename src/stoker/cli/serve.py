"""`stoker serve`: a catalogue over HTTP on this machine, read-only."""

from contextlib import suppress

import click


@click.command()
@click.argument("index")
@click.option("--port", type=click.IntRange(0, 65535), default=8643, show_default=True)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--quiet", is_flag=True, help="Do not log requests.")
def command(index: str, port: int, host: str, quiet: bool) -> None:
    """Serve the folder of a catalogue over HTTP until it is interrupted, to try it out.

    Nothing can be changed through it. Any web server can serve the same folder to others.

    \b
    stoker serve /srv/wheels
    stoker serve wheels --port 0
    """
    from stoker.flows.publishing import serving

    def log(line: str) -> None:
        if not quiet:
            click.echo(line, err=True)

    with serving(index, host=host, port=port, log=log) as (running, url):
        click.echo(url)
        click.echo(f"install from it: stoker install {url} torch", err=True)
        with suppress(KeyboardInterrupt):
            running.serve_forever()
