"""Renders an Export as the files of another system. The templates lie in ``exports/``.

Each value is quoted for the language that it appears in, so that no name can escape.
"""

import json
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from importlib import resources
from string import Template

from stoker.knowledge.export_targets import (
    Export,
    ExportedFile,
    ExportFormat,
    ExportJob,
    cloud_build_machine,
    github_runner,
    nix_blas,
)
from stoker.model.errors import UsageError
from stoker.model.plan import Backend, OriginKind
from stoker.model.source import ProjectKind

OWN_PYTHON = "3.12"  # runs stoker itself in builder images, whatever Python the wheel is for


class _Template(Template):
    """Placeholders are written ``@@{name}``: every target language uses the dollar sign."""

    delimiter = "@@"


def render(export: Export) -> tuple[ExportedFile, ...]:
    """Return the files, with paths relative to the folder that they belong in."""
    return tuple(_RENDERERS[export.format](export))


def fill(name: str, values: Mapping[str, object]) -> str:
    """Return a template with its placeholders replaced."""
    text = resources.files(__package__).joinpath("templates", f"{name}.template").read_text()
    return _Template(text).substitute(values)


def _fill(export: Export, name: str, values: Mapping[str, object]) -> str:
    return fill(name, {**size_values(export), **values})


def size_values(export: Export) -> dict[str, object]:
    """Return the placeholders of all builds: what is installed, and the size of the machine."""
    size = export.size
    return {
        "requirement": shlex.quote(export.requirement),
        "own_python": OWN_PYTHON,
        "cpus": size.cpus,
        "memory_mb": size.memory_bytes >> 20,
        "disk_gb": -(-size.disk_bytes // 1024**3),
        "seconds": size.seconds,
        "minutes": -(-size.seconds // 60),
    }


def _of_job(job: ExportJob) -> dict[str, object]:
    return {
        "name": job.name,
        "id": identifier(job.name),
        "label": job.plan.label,
        "image": job.image,
        "python": job.python,
        "path": ":".join(job.folders),
        "command": shlex.join(job.command),
    }


def identifier(name: str) -> str:
    """Return a name as a DNS label: lower-case letters, digits and dashes, at most 63."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[:63].rstrip("-") or "variant"


def _dockerfiles(export: Export) -> Iterable[ExportedFile]:
    for job in export.jobs:
        # `stoker build` sets these itself; they stand here so that the image says what it is for.
        lines = [
            f"# {s.name}={s.value}"
            for s in job.plan.environment
            if s.origin.kind is not OriginKind.MACHINE and "\n" not in s.value
        ]
        values = {**_of_job(job), "tag": identifier(job.name), "environment": "\n".join(lines)}
        path = f"Dockerfile.{job.name}" if len(export.jobs) > 1 else "Dockerfile"
        yield ExportedFile(path=path, text=_fill(export, "dockerfile", values))


def _cloud_builds(export: Export) -> Iterable[ExportedFile]:
    machine = cloud_build_machine(export.size.cpus, export.size.memory_bytes)
    for job in export.jobs:
        file = f"cloudbuild.{job.name}.yaml" if len(export.jobs) > 1 else "cloudbuild.yaml"
        values = {
            **_of_job(job),
            "file": file,
            "machine_type": machine.name,
            "path_entry": json.dumps(f"STOKER_PATH={':'.join(job.folders)}"),
            "command": shlex.join(job.command).replace("$", "$$"),  # not a substitution
        }
        yield ExportedFile(path=file, text=_fill(export, "cloudbuild", values))


def _github(export: Export) -> Iterable[ExportedFile]:
    rows = []
    for job in export.jobs:
        machine = job.plan.platform.cpu
        runner = github_runner(machine)
        if runner is None:
            raise UsageError(f"GitHub has no hosted runner for {machine}")
        row = {"variant": job.name, "runner": runner, "image": job.image}
        row |= {"path": ":".join(job.folders), "command": shlex.join(job.command)}
        rows.append(_yaml_row(row, indent=10))
    text = _fill(export, "github-actions", {"matrix": "\n".join(rows)})
    yield ExportedFile(path=".github/workflows/wheels.yml", text=text)


def _gitlab(export: Export) -> Iterable[ExportedFile]:
    rows = []
    for job in export.jobs:
        row = {"VARIANT": job.name, "IMAGE": job.image, "FOLDERS": ":".join(job.folders)}
        row["COMMAND"] = shlex.join(job.command).replace("$", "$$")
        rows.append(_yaml_row(row, indent=6))
    text = _fill(export, "gitlab", {"matrix": "\n".join(rows)})
    yield ExportedFile(path=".gitlab-ci.yml", text=text)


def _yaml_row(values: Mapping[str, str], indent: int) -> str:
    """Return one item of a YAML list. JSON's strings are YAML's double-quoted ones."""
    lines = [f"{name}: {json.dumps(value)}" for name, value in values.items()]
    space = " " * indent
    return f"{space}- " + f"\n{space}  ".join(lines)


def _slurm(export: Export) -> Iterable[ExportedFile]:
    values = {
        "file": "wheels.sbatch",
        "last": len(export.jobs) - 1,
        "variants": "\n".join(f"    {shlex.quote(job.name)}" for job in export.jobs),
        "commands": "\n".join(f"    {shlex.quote(shlex.join(job.command))}" for job in export.jobs),
    }
    yield ExportedFile(path="wheels.sbatch", text=_fill(export, "slurm", values))


def _kubernetes(export: Export) -> Iterable[ExportedFile]:
    texts = [_fill(export, "kubernetes", _of_job(job)) for job in export.jobs]
    yield ExportedFile(path="wheels.yaml", text="---\n".join(texts))


def _nix(export: Export) -> Iterable[ExportedFile]:
    return _nix_files(export, "")


def _flox(export: Export) -> Iterable[ExportedFile]:
    return _nix_files(export, ".flox/pkgs/")


def _nix_files(export: Export, folder: str) -> Iterable[ExportedFile]:
    for job in export.jobs:
        if job.plan.recipe is not ProjectKind.PYTORCH:
            raise UsageError(
                f"{export.format} files are for PyTorch only: nixpkgs has its recipe",
                hints=["`stoker export dockerfile` works for any project"],
            )
        name = f"pytorch-{job.name}"
        text = _fill(export, "nix", {**_nix_values(job, name), "file": f"{name}.nix"})
        yield ExportedFile(path=f"{folder}{name}.nix", text=text)


def _nix_values(job: ExportJob, name: str) -> dict[str, object]:
    variant = job.plan.variant
    packages = f"python{job.python.replace('.', '')}Packages"
    arguments, overrides = [packages], []
    if variant.backend is Backend.CUDA:
        overrides.append("cudaSupport = true;")
        targets = [target.arch + ("+PTX" if target.ptx else "") for target in variant.gpus]
        overrides.append(f"gpuTargets = [ {' '.join(map(_nix_text, targets))} ];")
        if variant.toolkit:
            arguments.append(f"cudaPackages_{variant.toolkit.replace('.', '_')}")
            overrides.append(f"cudaPackages = {arguments[-1]};")
    elif variant.backend is Backend.ROCM:
        overrides.append("rocmSupport = true;")
        targets = [target.arch for target in variant.gpus]
        overrides.append(f"gpuTargets = [ {' '.join(map(_nix_text, targets))} ];")
    elif variant.backend is not Backend.CPU:
        raise UsageError(f"nixpkgs does not build PyTorch for {variant.backend}")
    if variant.blas:
        overrides += _nix_blas(variant.blas, arguments)
    flags = job.plan.value("CXXFLAGS")
    attributes = []
    if flags:
        attributes.append("env = (old.env or { }) // {")
        attributes.append("  NIX_CFLAGS_COMPILE =")
        attributes.append(
            f'    toString (old.env.NIX_CFLAGS_COMPILE or "") + {_nix_text(" " + flags)};'
        )
        attributes.append("};")
    return {
        "name": job.name,
        "arguments": ", ".join(arguments),
        "python_packages": packages,
        "overrides": "\n".join(f"  {line}" for line in overrides),
        "pname": _nix_text(name),
        "attributes": "\n".join(f"  {line}" for line in attributes),
    }


def _nix_blas(blas: str, arguments: list[str]) -> list[str]:
    attribute = nix_blas().get(blas)
    if attribute is None:
        raise UsageError(
            f"nixpkgs cannot build PyTorch with {blas}",
            hints=[f"it can with {', '.join(nix_blas())}"],
        )
    arguments += ["blas", attribute]
    return [f"blas = blas.override {{ blasProvider = {attribute}; }};"]


def _nix_text(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("${", "\\${")
    return f'"{escaped}"'


_RENDERERS: dict[ExportFormat, Callable[[Export], Iterable[ExportedFile]]] = {
    ExportFormat.DOCKERFILE: _dockerfiles,
    ExportFormat.CLOUDBUILD: _cloud_builds,
    ExportFormat.GITHUB_ACTIONS: _github,
    ExportFormat.GITLAB: _gitlab,
    ExportFormat.SLURM: _slurm,
    ExportFormat.KUBERNETES: _kubernetes,
    ExportFormat.NIX: _nix,
    ExportFormat.FLOX: _flox,
}
