"""The command line that the stoker inside a container is given."""

import pytest

from stoker.cli.build import build as command
from stoker.cli.containing import words_again


@pytest.mark.parametrize(
    ("said", "again"),
    [
        ("", ""),
        ("tree --out here --memory 4G --json --progress quiet --tag v1", ""),
        ("--container root --engine podman --env A=1 --ipc host --keep", ""),
        ("-D A=1 --variant cpu -D B", "--variant cpu -D A=1 -D B"),
        ("--no-kineto --cudnn --fresh", "--cudnn --no-kineto --fresh"),
        ("--keep-free 1G --cpus 3 --nice", "--keep-free 1G --cpus 3 --nice"),
    ],
)
def test_only_what_was_said_and_is_not_the_containers(said: str, again: str) -> None:
    context = command.make_context("build", said.split())
    assert " ".join(words_again(context)) == again
