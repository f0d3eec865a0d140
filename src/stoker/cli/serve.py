"""`stoker serve`: serve a catalogue over HTTP, read-only."""

from contextlib import suppress

import click


@click.command()
@click.argument("index")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8643, show_default=True, help="0 chooses one."
)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option("--quiet", is_flag=True, help="Do not log requests.")
def command(index: str, port: int, host: str, quiet: bool) -> None:
    """Serve a catalogue folder over HTTP for testing, until you press Ctrl-C.

    The server is read-only. For production, any web server can serve the same folder.

    \b
    stoker serve /srv/wheels
    stoker serve wheels --port 0
    """
    from stoker.catalogue.publishing import serving

    def log(line: str) -> None:
        if not quiet:
            click.echo(line, err=True)

    with serving(index, host=host, port=port, log=log) as (running, url):
        click.echo(url)
        click.echo(f"install from it: stoker install {url} torch", err=True)
        with suppress(KeyboardInterrupt):
            running.serve_forever()
