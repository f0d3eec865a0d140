"""Builds in a job of a CI system, and the composite action of GitHub."""

import os
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from ruamel.yaml import YAML

from builds import Project
from conftest import Need, Stoker

ROOT = Path(__file__).parents[2]
ACTION = ROOT / "action.yml"


@pytest.fixture
def project(stoker: Stoker, tmp_path: Path, need: Need) -> Project:
    need("ninja")
    return Project(stoker, tmp_path, "mini-cmake")


@pytest.mark.slow
def test_a_failed_build_in_github_actions(project: Project, tmp_path: Path) -> None:
    project.change("src/mean.cpp", "return", "retrun")
    page, junit = tmp_path / "summary.md", tmp_path / "junit.xml"
    page.write_text("from an earlier step\n")
    done = project.build(
        "--target", "all", "--junit", str(junit),
        GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=str(page), GITHUB_WORKSPACE=str(project.tree),
    )  # fmt: skip
    assert done.returncode != 0
    lines = done.stderr.splitlines()
    groups = [line for line in lines if line.startswith("::group::")]
    assert len(groups) == lines.count("::endgroup::") > 0
    (error,) = (line for line in lines if line.startswith("::error "))
    assert "file=src/mean.cpp,line=" in error
    text = page.read_text()
    assert text.startswith("from an earlier step\n### stoker build")
    assert "| compile | failed |" in text
    (failure,) = ElementTree.parse(junit).getroot().iter("failure")
    assert "mean.cpp" in (failure.text or "")


@pytest.mark.slow
def test_a_build_in_gitlab(project: Project, tmp_path: Path) -> None:
    junit = tmp_path / "junit.xml"
    done = project.build("--target", "all", "--junit", str(junit), GITLAB_CI="true")
    assert done.returncode == 0, done.stderr
    assert "section_start:" in done.stderr
    assert done.stderr.count("section_start:") == done.stderr.count("section_end:")
    assert "::" not in done.stderr.replace("section_", "")
    assert ElementTree.parse(junit).getroot().get("failures") == "0"


def test_a_summary_that_cannot_be_written_does_not_fail_the_command(
    stoker: Stoker, tmp_path: Path
) -> None:
    done = stoker(
        "run", "--", "true", GITHUB_ACTIONS="true", GITHUB_STEP_SUMMARY=str(tmp_path / "no/page")
    )
    assert done.returncode == 0
    assert "stoker: cannot write" in done.stderr


def test_the_action_is_valid() -> None:
    checker = Path(sys.executable).with_name("check-jsonschema")
    words = [str(checker), "--builtin-schema", "vendor.github-actions", str(ACTION)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


class Job:
    """Runs the last step of the action as a runner does: bash, and inputs as variables."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.page, self.output = folder / "page.md", folder / "output"
        self.page.touch()
        self.output.touch()

    def build(self, command: str, memory: str = "") -> "subprocess.CompletedProcess[str]":
        (step,) = (s for s in YAML(typ="safe").load(ACTION)["runs"]["steps"] if s.get("id"))
        inputs = {"inputs.command": command, "inputs.memory": memory}
        given = {n: inputs[v.strip("${} ")] for n, v in step["env"].items()}
        assert "${{" not in step["run"]  # text of a user in the script would be run as code
        return subprocess.run(
            ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
            cwd=self.folder,
            env={
                **os.environ,
                **given,
                "RUNNER_TEMP": str(self.folder),
                "GITHUB_ACTIONS": "true",
                "GITHUB_STEP_SUMMARY": str(self.page),
                "GITHUB_OUTPUT": str(self.output),
            },
            capture_output=True,
            text=True,
            check=False,
        )


def test_the_action_governs_the_build(tmp_path: Path, need: Need) -> None:
    need("gcc")
    job = Job(tmp_path)
    (tmp_path / "a.c").write_text("int a;\n")
    done = job.build("gcc -c a.c -o a.o\necho built", memory="1G")
    assert done.returncode == 0, done.stdout
    assert "built" in done.stdout
    assert "1 step in" in job.page.read_text()
    name = job.output.read_text().strip().removeprefix("summary=")
    assert '"limit_bytes": 1073741824' in Path(name).read_text()


def test_the_action_fails_with_the_build_and_names_the_cause(tmp_path: Path, need: Need) -> None:
    need("gcc")
    job = Job(tmp_path)
    (tmp_path / "a.c").write_text("int main(void) { return x; }\n")
    done = job.build("gcc -c a.c -o a.o\necho not reached")
    assert done.returncode == 1
    assert "not reached" not in done.stdout
    assert "::error " in done.stderr
    assert "file=a.c,line=1" in done.stderr
    assert "failed with status 1" in job.page.read_text()
