"""`stoker variants`: list the words of variants, or explain one variant."""

import click

from stoker.cli.request import variant_words


@click.command()
@variant_words
@click.option(
    "--json", "as_json", is_flag=True, help="Print the list, or the explanation, as JSON."
)
def command(words: tuple[str, ...], as_json: bool) -> None:
    """List the words of variants; with VARIANT, explain it and list the GPUs that run it.

    \b
    stoker variants
    stoker variants h100 avx512
    stoker variants "NVIDIA GeForce RTX 3090"
    """
    from stoker.outside.terminal import print_json, show
    from stoker.plan.shown import catalogue_page, explained_page
    from stoker.plan.survey import catalogue, explain

    if words:
        explained = explain(" ".join(words))
        print_json(explained) if as_json else show(explained_page(explained))
    else:
        listed = catalogue()
        print_json(listed) if as_json else show(catalogue_page(listed))
