"""Runs the jobs of an exported GitHub workflow here, step by step, to the finished wheel.

    python benchmarks/farm_workflow.py --stoker dist/stoker-*.whl --python PREFIX [--shards 2]

`stoker export github-actions` writes the workflow of a small project, and this script reads it as
GitHub does: jobs in the order of their needs, with their conditions, matrices, environments and
outputs. Every ``run`` step is executed as it stands, in a root of its own: an overlay of this
machine's file system that is thrown away after the job, with nothing of other jobs. Checkout and
artifacts are folders. PREFIX is a Python 3.12 that stands for the one of the builder image. Jobs
of a matrix run one after another. The wheel is compared with that of a single build in such a root,
and compiles are counted by the governor's own records. Needs root, ccache, and a package index for
pip. The result is added to results/farm.json.
"""

import argparse
import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]
from farm import keep
from farm_machines import ROLES, say, write_project

WORKSPACE = "/__w/kiln/kiln"  # of jobs in containers
OUTSIDE = "/home/runner/work/kiln/kiln"  # what the expression github.workspace says even there
PYTHON = "/opt/python/cp312-cp312"
# The upper layer is in memory: a layer below the folder that it covers is refused.
ENTER = r"""
set -eu
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
for folder in tmp home work var/tmp __w; do
    mkdir -p "$1/root/$folder" && mount -t tmpfs -o mode=1777 tmpfs "$1/root/$folder"
done
mkdir -p "$1/root$2" "$1/root/github/home" "$1/root/opt/python"
mount --bind "$3" "$1/root$2"
mount --bind "$4" "$1/root/github"
ln -s "$5" "$1/root/opt/python/cp312-cp312"
mount -t proc proc "$1/root/proc"
mount --rbind /dev "$1/root/dev"
mount --rbind /sys "$1/root/sys"
exec chroot "$1/root" /bin/bash -c 'cd "$0" && exec sh -e /github/script' "$2"
"""


class Runner:
    """A machine of one job: its workspace, and the files by which its steps talk to GitHub."""

    def __init__(self, folder: Path, options: argparse.Namespace):
        self.workspace, self.github = folder / "workspace", folder / "github"
        self._root = folder / "root"
        self._options = options
        for path in (self.workspace, self.github, self._root):
            path.mkdir(parents=True)
        (self.github / "home").mkdir()
        self._paths: list[str] = []
        self.outputs: dict[str, str] = {}

    def run(self, script: str, environment: Mapping[str, str]) -> int:
        """Run a script in a fresh root over the workspace; keep what it says to GitHub."""
        (self.github / "script").write_text(script)
        for name in ("output", "path"):
            (self.github / name).write_text("")
        usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        variables = {
            "PATH": ":".join([*reversed(self._paths), usual]),
            "HOME": "/github/home",
            "GITHUB_WORKSPACE": WORKSPACE,
            "GITHUB_OUTPUT": "/github/output",
            "GITHUB_PATH": "/github/path",
            "CI": "true",
            **{name: value for name, value in os.environ.items() if name.startswith("PIP_")},
            **environment,
        }
        places = (self._root, WORKSPACE, self.workspace, self.github, self._options.python)
        apart = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
        done = subprocess.run(
            [*apart, "sh", "-c", ENTER, "sh", *map(str, places)], env=variables, check=False
        )
        lines = (self.github / "output").read_text().splitlines()
        self.outputs = dict(line.partition("=")[::2] for line in lines)
        self._paths += (self.github / "path").read_text().split()
        return done.returncode


class Workflow:
    """What GitHub knows of a run: the artifacts, and the outputs of jobs that have ended."""

    def __init__(self, folder: Path, repository: Path, options: argparse.Namespace):
        (path,) = repository.glob(".github/workflows/*.yml")
        self._text = yaml.safe_load(path.read_text())
        self._repository = repository
        self._folder = folder
        self._options = options
        self.artifacts = folder / "artifacts"
        self.artifacts.mkdir()
        self._outputs: dict[str, dict[str, str]] = {}
        self.ran: list[str] = []
        self.skipped: list[str] = []
        self.runners: list[Runner] = []
        self._states: list[bool] = []  # whether each job succeeded

    def run(self) -> None:
        for name, job in self._text["jobs"].items():
            assert all(need in self._outputs for need in _words(job.get("needs", []))), name
            self._outputs[name] = {}
            if not self._holds(job["if"]):
                self.skipped.append(name)
                continue
            for values in _matrix(job.get("strategy", {})):
                self._job(name, job, values)

    def _job(self, name: str, job: Mapping[str, Any], matrix: Mapping[str, object]) -> None:
        title = " ".join([name, *map(str, matrix.values())])
        say(f"job {title}")
        runner = Runner(self._folder / f"job-{len(self.ran):02}", self._options)
        self.ran.append(title)
        self.runners.append(runner)
        context = {"github.workspace": OUTSIDE}
        context |= {f"matrix.{key}": str(value) for key, value in matrix.items()}
        failed = False
        for step in job["steps"]:
            if failed and "always()" not in step.get("if", ""):
                continue
            if "if" in step and not self._holds(step["if"], context):
                continue
            status = self._step(runner, step, context)
            failed = failed or (bool(status) and not step.get("continue-on-error"))
            for key, value in runner.outputs.items():
                context[f"steps.{step.get('id')}.outputs.{key}"] = value
        if failed:
            raise SystemExit(f"{title} failed")
        for key, text in job.get("outputs", {}).items():
            if value := _filled(text, context):  # an empty one does not replace another's
                self._outputs[name][key] = value

    def _step(self, runner: Runner, step: Mapping[str, Any], context: Mapping[str, str]) -> int:
        if "run" in step:
            wanted = {**self._text.get("env", {}), **step.get("env", {})}
            environment = {name: _filled(text, context) for name, text in wanted.items()}
            return runner.run(step["run"], environment)
        having = {name: _filled(str(text), context) for name, text in step.get("with", {}).items()}
        runner.outputs = {}
        match step["uses"].partition("@")[0]:
            case "actions/checkout":
                shutil.copytree(self._repository, runner.workspace, dirs_exist_ok=True)
            case "actions/download-artifact":
                for found in sorted(self.artifacts.iterdir()):
                    if fnmatch.fnmatchcase(found.name, having["pattern"]):
                        into = runner.workspace / having["path"]
                        shutil.copytree(found, into, dirs_exist_ok=True)
            case "actions/upload-artifact":
                self._upload(runner, having)
            case other:
                raise SystemExit(f"{other} is not known here")
        return 0

    def _upload(self, runner: Runner, having: Mapping[str, str]) -> None:
        """Keep files as the action does: nothing hidden, and relative to what is named."""
        target = self.artifacts / having["name"]
        if having.get("overwrite") == "True":
            shutil.rmtree(target, ignore_errors=True)
        for found in sorted(runner.workspace.glob(having["path"])):
            if found.is_dir():
                hidden = shutil.ignore_patterns(".*")
                shutil.copytree(found, target, dirs_exist_ok=True, ignore=hidden)
            else:
                target.mkdir(exist_ok=True)
                shutil.copy2(found, target)

    def _holds(self, condition: str, context: Mapping[str, str] | None = None) -> bool:
        """Return whether a condition of our workflows holds; another form is an error."""
        return all(
            self._term(term.strip(), context or {})
            for term in condition.removeprefix("${{").removesuffix("}}").split("&&")
        )

    def _term(self, term: str, context: Mapping[str, str]) -> bool:
        if term in ("always()", "!cancelled()"):
            return True
        name, operator, value = re.fullmatch(r"(\S+) (==|!=) '(\w*)'", term).groups()  # type: ignore[union-attr]
        found = context.get(name, "")
        if job := re.fullmatch(r"needs\.([\w-]+)\.outputs\.(\w+)", name):
            found = self._outputs[job[1]].get(job[2], "")
        return (found == value) is (operator == "==")


def _words(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def _matrix(strategy: Mapping[str, Any]) -> Iterator[dict[str, object]]:
    """Yield the values of each job of a matrix with one name, or none."""
    if not strategy:
        yield {}
        return
    ((name, values),) = strategy["matrix"].items()
    yield from ({name: value} for value in values)


def _filled(text: str, context: Mapping[str, str]) -> str:
    return re.sub(r"\$\{\{ *([\w.-]+) *\}\}", lambda found: context.get(found[1], ""), text)


# -- the comparison --------------------------------------------------------------------------------


def make_repositories(folder: Path, options: argparse.Namespace) -> Path:
    """Write a project with a tag, and beside it a repository with the workflow that builds it."""
    project, repository = folder / "project", folder / "repository"
    write_project(project, options.sources, 0, 4, work="light")
    git = ["git", "-C", str(project), "-c", "user.name=farm", "-c", "user.email=farm@localhost"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "kiln"], ["tag", "v1.0"]):
        subprocess.run([*git, *words], check=True)
    with (folder / "server.log").open("w") as log:
        words = ["git", "daemon", "--export-all", "--listen=127.0.0.1", f"--port={options.port}"]
        options.server = subprocess.Popen(
            [*words, f"--base-path={folder}", str(folder)], stdout=log, stderr=log
        )
    source = f"git://127.0.0.1:{options.port}/project@v1.0"
    stoker = Path(sys.executable).parent / "stoker"
    words = [str(stoker), "export", "github-actions", source, "--variant", "cpu"]
    words += ["--shards", str(options.shards), "--cpus", "2", "--memory", "4G", "--hours", "1"]
    words += ["--image", "builder", "--stoker", str(options.stoker), "--out", str(repository)]
    subprocess.run(words, check=True)
    return repository


def compiled(workspaces: list[Path]) -> Counter[str]:
    seen: Counter[str] = Counter()
    for workspace in workspaces:
        for file in workspace.glob(".stoker/state/runs/*/steps.json"):
            for step in json.loads(file.read_text())["steps"]:
                seen[Path(step["source"]).name] += step["role"] in ROLES
    return +seen


def single(folder: Path, repository: Path, workflow: Workflow, options: argparse.Namespace) -> str:
    """Build in one job, without a cache, by the commands of the last job; return the digest."""
    runner = Runner(folder / "single", options)
    shutil.copytree(repository, runner.workspace, dirs_exist_ok=True)
    *_, job = workflow._text["jobs"].values()
    install, build = (step for step in job["steps"] if "run" in step)
    env = {**workflow._text.get("env", {}), **install["env"]}
    runner.run(install["run"], {name: _filled(text, {}) for name, text in env.items()})
    words = build["env"]["WORDS"]
    script = f'export STOKER_HOME="$PWD/.stoker"\n.venv/bin/{words} --cache none --progress log'
    if runner.run(script, {}):
        raise SystemExit("the single build failed")
    return digest(runner.workspace / "wheels")


def digest(folder: Path) -> str:
    (wheel,) = folder.glob("*.whl")
    return sha256(wheel.read_bytes()).hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--stoker", type=Path, required=True, help="a wheel of stoker")
    parser.add_argument("--python", type=Path, required=True, help="the prefix of a Python 3.12")
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--sources", type=int, default=8)
    parser.add_argument("--port", type=int, default=9419)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="farm-") as name:
        folder = Path(name)
        repository = make_repositories(folder, options)
        try:
            workflow = Workflow(folder, repository, options)
            began = time.monotonic()
            workflow.run()
            seconds = time.monotonic() - began
            expected = single(folder, repository, workflow, options)
        finally:
            options.server.terminate()
            options.server.wait()
        counts = compiled([runner.workspace for runner in workflow.runners])
        found = {
            "jobs": workflow.ran,
            "skipped": workflow.skipped,
            "compile_steps": len(counts),
            "compiled_more_than_once": sum(count > 1 for count in counts.values()),
            "compiled_by_the_last_job": compiled([workflow.runners[-1].workspace]).total(),
            "same_wheel": digest(workflow.artifacts / "cpu") == expected,
            "seconds": round(seconds),
        }
        print("workflow", json.dumps(found))
        keep("workflow", {"shards": options.shards}, found)


if __name__ == "__main__":
    main()
