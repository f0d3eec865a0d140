"""`stoker completion`: print the script that completes commands and options in a shell."""

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(context: click.Context, shell: str) -> None:
    """Print the completion script for a shell.

    \b
    bash:  stoker completion bash >> ~/.bashrc
    zsh:   stoker completion zsh >> ~/.zshrc
    fish:  stoker completion fish > ~/.config/fish/completions/stoker.fish
    """
    completion = get_completion_class(shell)
    assert completion is not None  # click.Choice accepts no other name
    click.echo(completion(context.find_root().command, {}, "stoker", "_STOKER_COMPLETE").source())
