"""Every option of `stoker build` and `stoker develop` reaches what it belongs to."""

import click
import pytest

from stoker.builds.containers.inside import Inside
from stoker.cli.build import build, develop
from stoker.cli.build_options import Part, names_of, taken
from stoker.cli.containing import words_again
from stoker.model.build import BuildRequest
from stoker.settings.declared import OPTIONS


@pytest.mark.parametrize("command", [build, develop])
def test_every_option_is_a_setting_or_declared_with_its_part(command: click.Command) -> None:
    declared = {name for part in Part for name in names_of(part)}
    names = {option.name or "" for option in command.params if option.expose_value}
    others = {name for name in names if not name.startswith("feature_")} - OPTIONS.keys()
    assert others - declared <= {"defines", "source"}


def test_a_request_has_a_field_for_each_of_its_options() -> None:
    assert set(names_of(Part.REQUEST)) <= set(BuildRequest.__struct_fields__)


def test_a_container_is_told_each_of_its_options() -> None:
    renamed = {"env": "variables"}
    names = {renamed.get(name, name) for name in names_of(Part.CONTAINER)}
    assert names <= set(Inside.__struct_fields__)


def test_no_option_belongs_to_two_parts_and_what_is_taken_is_gone() -> None:
    names = [name for part in Part for name in names_of(part)]
    assert len(names) == len(set(names))
    options = {"keep": True, "fresh": True}
    assert taken(options, Part.CONTAINER)["keep"] is True
    assert options == {"fresh": True}


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
def test_a_container_is_told_what_was_said_and_is_not_its_own(said: str, again: str) -> None:
    context = build.make_context("build", said.split())
    assert " ".join(words_again(context)) == again
