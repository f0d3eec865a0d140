"""Renders a build in shards as the jobs of a CI system or a cluster.

Every job calls `stoker build` with a checkpoint and a time limit that is shorter than its own. What
continues a job that ends with status 75 is up to the system: a second round of jobs on GitHub, a
retry on GitLab, the queue of Slurm, another pod on Kubernetes.
"""

import shlex
from collections.abc import Callable, Iterable
from typing import Any

from stoker.export.files import (
    identifier,
    size_values,
    slurm_values,
    words_of_script,
)
from stoker.export.filling import fill_template, fill_yaml, filled_yaml
from stoker.export.quoting import github_command, without_variables
from stoker.knowledge.export_targets import (
    Export,
    ExportedFile,
    ExportFormat,
    ExportJob,
    github_runner,
    most_jobs,
)
from stoker.model.errors import UsageError
from stoker.model.value import Value

_USED = 11 / 12  # of the time limit; the rest is for installing, transfers and the last steps
_ROUNDS = 2  # of jobs on GitHub, which cannot repeat one
_RETRIES_PER_SHARD = 2  # of pods that fail


class JobCount(Value, frozen=True, kw_only=True):
    """The jobs that build all variants. ``rounds`` is how often a job may continue elsewhere."""

    variants: int
    shards: int
    rounds: int

    def __str__(self) -> str:
        jobs = self.variants * (self.shards + 1)
        each = f"{self.shards} shards and a job that links"
        text = f"{jobs} jobs: {each} for each of {self.variants} variants"
        text = text if self.variants > 1 else f"{jobs} jobs: {each}"
        return f"{text}; {jobs * self.rounds} if time runs out" if self.rounds > 1 else text


def count_jobs(export: Export) -> JobCount:
    """Return how many jobs a build in shards has; raise UsageError if the system allows fewer."""
    github = export.format is ExportFormat.GITHUB_ACTIONS
    rounds, variants = _ROUNDS if github else 1, len(export.jobs)
    matrices = variants * rounds if github else 1
    jobs, most = export.shards * matrices, most_jobs(export.format)
    if most is not None and jobs > most:
        many = f"the matrices of {variants} variants can start {jobs} jobs in {rounds} rounds"
        message = f"{many}, and GitHub allows {most}" if github else f"GitLab allows {most} shards"
        hints = [f"--shards {most // matrices}"] if most // matrices > 1 else []
        hints += ["--only TEXT exports fewer variants"] if matrices > rounds else []
        raise UsageError(message, hints=hints)
    return JobCount(variants=variants, shards=export.shards, rounds=rounds)


def render_farm(export: Export) -> tuple[ExportedFile, ...]:
    """Return the files of a build in shards."""
    renderer = _RENDERERS.get(export.format)
    if renderer is None:
        hints = [f"--shards is for {', '.join(_RENDERERS)}"]
        raise UsageError(f"{export.format} has no jobs that follow each other", hints=hints)
    return tuple(renderer(export))


def _common(export: Export) -> dict[str, object]:
    stop_after = round(export.size.seconds * _USED)
    return {**size_values(export), "shards": export.shards, "stop_after": stop_after}


def _github(export: Export) -> Iterable[ExportedFile]:
    jobs = dict(pair for job in export.jobs for pair in _github_jobs(export, job))
    text = fill_yaml("farm-github-actions", {**_common(export), "jobs": jobs})
    yield ExportedFile(path=".github/workflows/wheels.yml", text=text)


def _github_jobs(export: Export, job: ExportJob) -> Iterable[tuple[str, Any]]:
    """Yield the jobs of a variant with their identities."""
    name = identifier(job.name)[:40]
    values = {
        **_common(export),
        "runner": github_runner(job),
        "image": job.image,
        "path": ":".join(job.folders),
        "requirement": github_command([export.requirement]),
    }
    numbers = list(range(1, export.shards + 1))
    compiling: dict[str, object] = {
        "strategy": {"fail-fast": False, "matrix": {"shard": numbers}},
        "pattern": f"checkpoint-{name}-${{{{ matrix.shard }}}}",
        "command": github_command(job.command),
        "part": f"--shard ${{{{ matrix.shard }}}}/{export.shards}",
        "results": [_upload(f"checkpoint-{name}-${{{{ matrix.shard }}}}", "checkpoint")],
    }
    linking: dict[str, object] = {
        "strategy": None,
        "pattern": f"checkpoint-{name}-*",
        "command": github_command([*job.command, "--out", "wheels"]),
        "part": "--finish",
        "results": [
            _upload(f"checkpoint-{name}-finish", "checkpoint"),
            _upload(name, "wheels/*.whl", when="steps.build.outputs.unfinished != 'true'"),
        ],
    }
    before: list[str] = []
    for kind, own in (("shards", compiling), ("wheel", linking)):
        for number in range(1, _ROUNDS + 1):
            identity = f"{name}-{kind}-{number}"
            own |= {
                "title": f"{job.name} {kind} {number}",
                "needs": before or None,
                "condition": _condition(before, again=number > 1),
            }
            yield identity, filled_yaml("farm-github-job", values | own)
            before = [identity, *before]


def _condition(before: list[str], *, again: bool) -> str:
    """Return when a job runs. One of a later round runs if time was over."""
    over = f" && needs.{before[0]}.outputs.unfinished == 'true'" if again else ""
    return f"${{{{ !cancelled(){over} }}}}"


def _upload(name: str, path: str, *, when: str = "always()") -> dict[str, object]:
    return {
        "uses": "actions/upload-artifact@v4",
        "if": f"${{{{ {when} }}}}",
        "with": {"name": name, "path": path, "overwrite": True},
    }


def _gitlab(export: Export) -> Iterable[ExportedFile]:
    jobs = []
    for job in export.jobs:
        values = {
            "id": identifier(job.name),
            "image": job.image,
            "path": ":".join(job.folders),
            "command": without_variables(shlex.join(job.command)),
        }
        jobs.append(fill_yaml("farm-gitlab-job", _common(export) | values))
    requirement = without_variables(export.requirement)
    common = fill_yaml("farm-gitlab", {**_common(export), "requirement": requirement})
    yield ExportedFile(path=".gitlab-ci.yml", text="".join([common, *jobs]))


def _slurm(export: Export) -> Iterable[ExportedFile]:
    file = "wheels.sh"
    values = _common(export) | slurm_values(export, file)
    yield ExportedFile(path=file, text=fill_template("farm-slurm", values))


def _kubernetes(export: Export) -> Iterable[ExportedFile]:
    shard = f"--shard $((JOB_COMPLETION_INDEX + 1))/{export.shards}"
    for stage, part, count in (("shards", shard, export.shards), ("finish", "--finish", 1)):
        texts = [
            fill_yaml(
                "farm-kubernetes",
                _common(export)
                | {
                    "name": job.name,
                    "id": identifier(job.name)[:50],
                    "stage": stage,
                    "part": part,
                    "completions": count,
                    "retries": _RETRIES_PER_SHARD * count,
                    "image": job.image,
                    "path": ":".join(job.folders),
                    "words": words_of_script(export, job),
                },
            )
            for job in export.jobs
        ]
        yield ExportedFile(path=f"{stage}.yaml", text="---\n".join(texts))


_RENDERERS: dict[ExportFormat, Callable[[Export], Iterable[ExportedFile]]] = {
    ExportFormat.GITHUB_ACTIONS: _github,
    ExportFormat.GITLAB: _gitlab,
    ExportFormat.SLURM: _slurm,
    ExportFormat.KUBERNETES: _kubernetes,
}
