"""Exports of an extension of PyTorch, executed in containers of an image without PyTorch.

STOKER_EXPORT_ROOT names a tar file of a root folder that stands in for the images that exports
name. It has g++, git and Python 3.12, which /opt/python/cp312-cp312/bin contains:

    mmdebstrap --variant=minbase --include=g++,git,make,ca-certificates SUITE root.tar
"""

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from conftest import PROJECTS, Stoker, find_tool, missing
from repositories import git

pytestmark = [
    pytest.mark.heavy,
    pytest.mark.network,
    pytest.mark.timeout(3600),
    pytest.mark.usefixtures("git_alone"),
]
HERE = f"linux-{platform.machine()}"
BUILDER = f"quay.io/pypa/manylinux_2_28_{platform.machine()}"
LAST = "docker.io/library/python:3.12-slim"
PATH = "PATH=/opt/python/cp312-cp312/bin:/usr/local/bin:/usr/bin:/bin"
LIMITS = ("--network=host", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096")
BUILT = "import torch, mini_extension; print(mini_extension.__name__, torch.__version__)"


@pytest.fixture(scope="module")
def podman() -> Iterator[list[str]]:
    """podman, with the root folder under the names of the images."""
    root = os.environ.get("STOKER_EXPORT_ROOT") or missing("STOKER_EXPORT_ROOT names no tar file")
    words = [find_tool("podman"), "--runtime", find_tool("runc")]
    given = [
        f"{name}={os.environ[name]}" for name in ("PIP_CERT", "PIP_INDEX_URL") if name in os.environ
    ]
    changes = [word for line in (PATH, *given) for word in ("--change", f"ENV {line}")]
    for name in (BUILDER, LAST):
        subprocess.run([*words, "import", "--quiet", *changes, root, name], check=True)
    yield words
    subprocess.run([*words, "rmi", "--force", BUILDER, LAST], check=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this stoker."""
    folder = tmp_path_factory.mktemp("dist")
    words = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir"]
    subprocess.run([*words, str(folder), str(PROJECTS.parents[1])], check=True)
    (found,) = folder.iterdir()
    return found


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A folder that containers see under the same path, with a repository of the extension."""
    source = tmp_path / "mini-extension"
    subprocess.run(["cp", "-r", PROJECTS / source.name, source], check=True)
    git(source, "init", "--quiet")
    git(source, "add", ".")
    git(source, "commit", "--quiet", "--message", "first")
    git(source, "tag", "v1")
    return tmp_path


def export(stoker: Stoker, form: str, folder: Path, of_stoker: str) -> Path:
    words = ("--variant", "cpu", "--platform", HERE, "--torch", "2.9.1", "--stoker", of_stoker)
    source = f"file://{folder}/mini-extension@v1"
    done = stoker("export", form, source, *words, "--out", str(folder / "exported"))
    assert done.returncode == 0, done.stderr
    return folder / "exported"


def succeeded(words: list[str], folder: Path) -> str:
    done = subprocess.run(
        words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_a_dockerfile_builds_an_image_with_the_extension(
    stoker: Stoker, podman: list[str], wheel: Path, shared: Path
) -> None:
    folder = export(stoker, "dockerfile", shared, str(wheel))
    seen = ("--volume", f"{shared}:{shared}:ro")
    tag = f"stoker-test-{os.getpid()}"
    try:
        succeeded([*podman, "build", *LIMITS, *seen, "--tag", tag, "."], folder)
        words = [*podman, "run", "--rm", *LIMITS, tag, "python3", "-c", BUILT]
        assert "mini_extension 2.9.1" in succeeded(words, folder)
    finally:
        subprocess.run([*podman, "rmi", "--force", tag], check=False)


def script_of(form: str, folder: Path) -> str:
    """Return what a CI system or a cluster runs, as the script of one shell."""
    if form == "slurm":
        given = {"STOKER_VENV": "/opt/venv", "SLURM_ARRAY_TASK_ID": "0"}
        return "\n".join((*exports(given), "bash wheels.sbatch"))
    if form == "gitlab":
        job = yaml.safe_load((folder / ".gitlab-ci.yml").read_text())["wheel"]
        (row,) = job["parallel"]["matrix"]
        given = {"CI_PROJECT_DIR": str(folder), **row, **job["variables"]}
        given = {n: str(v).replace("$CI_PROJECT_DIR", str(folder)) for n, v in given.items()}
        return "\n".join((*exports(given), *job["script"]))
    if form == "github-actions":
        job = yaml.safe_load((folder / ".github/workflows/wheels.yml").read_text())["jobs"]["build"]
        (row,) = job["strategy"]["matrix"]["include"]
        lines = exports({"GITHUB_WORKSPACE": str(folder), "GITHUB_PATH": "/tmp/path"})
        for step in (each for each in job["steps"] if "run" in each):
            given = step.get("env", {})
            for name, value in row.items():
                given = {n: v.replace(f"${{{{ matrix.{name} }}}}", value) for n, v in given.items()}
            lines += [*exports(given), f"(\n{step['run']}\n)"]
        return "\n".join(lines)
    if form == "kubernetes":
        job = yaml.safe_load((folder / "wheels.yaml").read_text())
        (box,) = job["spec"]["template"]["spec"]["containers"]
        given = {one["name"]: one["value"] for one in box["env"]}
        words = [*box["command"], *box["args"]]
    else:
        (step,) = yaml.safe_load((folder / "cloudbuild.yaml").read_text())["steps"]
        given = dict(line.split("=", 1) for line in step["env"])
        words = [step["entrypoint"], *step["args"]]
    lines = exports(given)
    return "\n".join((*lines, shlex.join(word.replace("$$", "$") for word in words)))


def exports(given: dict[str, str]) -> list[str]:
    return [f"export {name}={shlex.quote(value)}" for name, value in given.items()]


@pytest.mark.parametrize("form", ["slurm", "gitlab", "github-actions", "kubernetes", "cloudbuild"])
def test_a_job_compiles_the_extension(
    stoker: Stoker, podman: list[str], wheel: Path, shared: Path, form: str
) -> None:
    (shared / wheel.name).write_bytes(wheel.read_bytes())
    of_stoker = str(shared / wheel.name)
    folder = export(
        stoker, form, shared, f"file://{of_stoker}" if form == "kubernetes" else of_stoker
    )
    seen = ("--volume", f"{shared}:{shared}", "--workdir", str(folder))
    words = ["run", "--rm", *LIMITS, *seen, BUILDER, "bash", "-euc", script_of(form, folder)]
    told = succeeded([*podman, *words], folder)
    assert "wheel      done" in told
    assert "mini_extension-0.3.1-cp312-cp312-" in told
