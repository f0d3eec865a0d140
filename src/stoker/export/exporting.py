"""Decides how many compiles a worker of a distributed compiler runs, and in how much memory."""

import re
import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from ipaddress import IPv4Network
from pathlib import Path
from statistics import quantiles

from msgspec.structs import replace
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename

from stoker.builds.acquire.naming import Named, parse_source
from stoker.export.files import PYTORCH
from stoker.govern.history import History
from stoker.knowledge.export_targets import (
    BuilderSize,
    ClusterEngine,
    ClusterExport,
    EngineRow,
    Export,
    ExportedFile,
    ExportFormat,
    ExportJob,
    WorkerSize,
    cluster_engine,
    clusters,
)
from stoker.knowledge.projects import builder_image, projects
from stoker.knowledge.steps import prior_of
from stoker.model.errors import UsageError
from stoker.model.govern import Role, Step, StepRecord
from stoker.model.plan import Backend, Plan
from stoker.model.recipe import ProjectRecipe
from stoker.model.source import SourceKind
from stoker.model.value import Value, size
from stoker.outside.files import write_whole
from stoker.outside.folders import current_folder
from stoker.plan.grammar import name as variant_name
from stoker.plan.survey import plan
from stoker.settings.declared import CommandLine
from stoker.settings.toml import find_file, variant_names
from stoker.settings.user_options import UserOptions, read_user_options

_ENOUGH = 20  # compiles, so that a 95th percentile means something


def worker_size(
    records: Iterable[StepRecord], engine: EngineRow, cpus: int, memory: int | None
) -> WorkerSize:
    """Return the size of a worker. With ``memory``, run only as many jobs as fit into it.

    The limit is never below the largest compile that was measured, so that no file is killed on
    every worker.
    """
    peaks = [record.peak_bytes for record in records if record.step.role in engine.roles]
    per_job, largest, source = _memory_of_a_job(peaks)
    jobs = cpus * engine.jobs_per_cpu
    needed = max(per_job * jobs, largest)
    if memory is None:
        basis = f"{size(needed)}: {jobs} jobs of {size(per_job)} each"
        return _sized(cpus, jobs, needed, f"{basis}, {source}")
    if memory < largest:
        raise UsageError(
            f"--memory {size(memory)} is less than a single compile needs",
            hints=[f"at least {size(largest)}: {source}"],
        )
    jobs = max(1, min(jobs, memory // per_job))
    basis = f"{size(memory)} as given, enough for {jobs} jobs of {size(per_job)} each"
    return _sized(cpus, jobs, memory, f"{basis}, {source}")


def _sized(cpus: int, jobs: int, memory: int, basis: str) -> WorkerSize:
    return WorkerSize(cpus=cpus, jobs=jobs, memory_bytes=memory, basis=basis)


def _memory_of_a_job(peaks: Sequence[int]) -> tuple[int, int, str]:
    """Return the usual memory of a compile, the most that any needs, and where both come from."""
    if len(peaks) < _ENOUGH:
        prior = prior_of(Step(key="", role=Role.CXX))
        assumed = round(prior.high)
        return assumed, assumed, f"assumed, because the history has no {_ENOUGH} such compiles"
    per_job, largest = round(quantiles(peaks, n=20)[-1]), max(peaks)
    source = f"the 95th percentile of {len(peaks)} compiles in the history"
    return min(per_job, largest), largest, f"{source}; the largest needed {size(largest)}"


def allowed_networks(texts: Iterable[str], *, trusted: bool) -> tuple[str, ...]:
    """Return networks in their usual form; raise UsageError for a text that is none, and for a
    public network that the user does not trust.
    """
    private = [IPv4Network(text) for text in clusters().private]
    found = [_network(text) for text in texts]
    for network in found:
        if not trusted and not any(network.subnet_of(other) for other in private):
            hints = ["the engines have no authentication: name a private network"]
            raise UsageError(
                f"--allow {network} has public addresses", hints=[*hints, "or add --trust-network"]
            )
    return tuple(map(str, found))


def _network(text: str) -> IPv4Network:
    try:
        return IPv4Network(text)
    except ValueError as error:
        hints = ["such as 10.0.0.0/24 or 10.0.0.5"]
        raise UsageError(f"--allow {text} is not an IPv4 network", hints=hints) from error


# -- exporting -------------------------------------------------------------------------------------
# `stoker export`: jobs that build variants on another system, and workers for a cluster.


_PYTHON = "3.12"  # where the variant names none
_IMAGE = re.compile(r"[\w][\w./:@-]*", re.ASCII)
_CLUSTERS = (ExportFormat.KUBERNETES, ExportFormat.SLURM, ExportFormat.COMPOSE)
_WITHOUT_IMAGE = (ExportFormat.SLURM, ExportFormat.NIX, ExportFormat.FLOX)
_WITHOUT_STOKER = (ExportFormat.NIX, ExportFormat.FLOX)  # they build with their own recipes
_BY_URL = "--stoker https://HOST/stoker-VERSION.whl names a wheel on a server"
_EXAMPLE = "https://github.com/pytorch/pytorch@v2.9.1"


class ClusterWanted(Value, frozen=True, kw_only=True):
    """What the command line asks for with ``--cluster``."""

    format: ExportFormat
    engine: ClusterEngine
    workers: int
    cpus: int
    memory_bytes: int | None
    disk_bytes: int
    seconds: int
    image: str | None = None
    allow: tuple[str, ...] = ()
    trust_network: bool = False


class StokerOrigin(Value, frozen=True, kw_only=True):
    """``wheel`` has to be in the folder of the exported files."""

    requirement: str
    wheel: Path | None = None


class ExportWanted(Value, frozen=True, kw_only=True):
    """What the command line asks for. ``image`` replaces the usual one of each variant."""

    format: ExportFormat
    source: str | None
    matrix: bool = False  # all variants of stoker.toml whose name contains ``only``
    only: str = ""
    size: BuilderSize
    stoker: str | None  # a wheel, a URL or a requirement
    torch: str | None = None  # that an extension is compiled with
    image: str | None = None
    shards: int = 0


def export(wanted: ExportWanted, request: CommandLine) -> Export:
    """Plan each variant and return the jobs that build them."""
    if wanted.format is ExportFormat.COMPOSE:
        raise UsageError(
            "compose files are for the workers of a cluster",
            hints=[f"--cluster {' or '.join(ClusterEngine)}", "`stoker export dockerfile` builds"],
        )
    chosen = read_user_options(request)
    given = wanted.source or chosen.text("source")
    if given is None:
        raise UsageError("no SOURCE", hints=[f"for example {_EXAMPLE}"])
    named = parse_source(given)
    source, project = _portable(named), _project(named)
    if project and project.torch and not wanted.torch:
        raise UsageError(
            f"{project.name} is compiled with PyTorch, which the other machine has to install",
            hints=["name its version: --torch 2.9.1"],
        )
    more = ["--torch", wanted.torch] if wanted.torch else []
    requests = [
        replace(request, options={**request.options, "variant": name})
        for name in _variants(wanted, request, chosen)
    ]
    plans = [plan(one) for one in requests]
    jobs = tuple(
        _job(planned, [source, *_defines(one), *more], _image(wanted, planned, project))
        for planned, one in zip(plans, requests, strict=True)
    )
    for job in jobs:
        _check_machine(wanted, job)
    return Export(
        format=wanted.format,
        source=source,
        requirement=origin_of_stoker(wanted.stoker, wanted.format).requirement,
        size=wanted.size,
        shards=wanted.shards,
        jobs=jobs,
        project=project.name if project else None,
    )


def export_cluster(wanted: ClusterWanted) -> ClusterExport:
    """Return workers whose memory limit follows from the history of this machine."""
    engine = cluster_engine(wanted.engine)
    if wanted.format not in _CLUSTERS:
        raise UsageError(
            f"{wanted.format} has no workers: --cluster is for {', '.join(_CLUSTERS)}",
            hints=[f"for example: stoker export kubernetes --cluster {engine.name}"],
        )
    if wanted.format is ExportFormat.SLURM and engine.slurm is None:
        raise UsageError(
            f"the workers of {engine.name} must run as root, and a Slurm job does not",
            hints=["--cluster distcc or --cluster icecc", "or kubernetes or compose"],
        )
    if wanted.allow and wanted.format is ExportFormat.SLURM and not engine.host:
        raise UsageError(
            f"{engine.name} cannot check who connects, so --allow has no effect on Slurm",
            hints=["--cluster distcc can", "or let a firewall protect the nodes"],
        )
    allowed = allowed_networks(wanted.allow, trusted=wanted.trust_network)
    if wanted.format is ExportFormat.COMPOSE and len(allowed) > 1:
        hints = ["name the subnet that the containers get"]
        raise UsageError("compose makes one network: --allow can be given once", hints=hints)
    with History() as history:
        records = history.recent()
    return ClusterExport(
        format=wanted.format,
        engine=wanted.engine,
        image=_checked_image(wanted.image or f"stoker-{engine.name}:bookworm"),
        workers=wanted.workers,
        worker=worker_size(records, engine, wanted.cpus, wanted.memory_bytes),
        disk_bytes=wanted.disk_bytes,
        seconds=wanted.seconds,
        allowed=allowed,
    )


def _checked_image(name: str) -> str:
    if not _IMAGE.fullmatch(name):
        raise UsageError(f"{name!r} is not the name of an image")
    return name


def _variants(wanted: ExportWanted, request: CommandLine, chosen: UserOptions) -> tuple[str, ...]:
    if not wanted.matrix:
        if wanted.only:
            raise UsageError("--only belongs to --matrix")
        if chosen.text("variant") in (None, "native"):
            raise UsageError(
                "an export needs a variant, because another machine builds it",
                hints=["--variant cu130-sm90, or --matrix for all variants of stoker.toml"],
            )
        return (str(chosen.text("variant")),)
    if "variant" in request.options:
        raise UsageError("--variant and --matrix exclude each other")
    return variant_names(find_file(current_folder()), wanted.only)


def _portable(named: Named) -> str:
    """Return a source that another machine can fetch, pinned to a tag, commit or version."""
    if named.kind not in (SourceKind.GIT, SourceKind.INDEX) or Path(named.place).exists():
        raise UsageError(
            f"another machine cannot fetch {named.shown}",
            hints=["name a git URL with a tag, such as https://HOST/GROUP/NAME@v1.0, or NAME==1.0"],
        )
    if not named.reference:
        raise UsageError(
            f"{named.shown} is not pinned", hints=[f"add a tag or commit: {named.shown}@v1.0"]
        )
    if re.search(r"\$\{\{|[\x00-\x1f]", named.shown):
        raise UsageError(f"{named.shown!r} contains characters that a workflow would expand")
    return named.shown


def _project(named: Named) -> ProjectRecipe | None:
    """Return the recipe that the name of a source tells; the tree itself is not here."""
    name = named.place.rstrip("/").rpartition("/")[2].removesuffix(".git")
    name = canonicalize_name(name)
    found = (one for one in projects().values() if name in (one.name, *one.packages))
    return next(found, None)


def _check_machine(wanted: ExportWanted, job: ExportJob) -> None:
    """Refuse a wheel of stoker that does not run where the job does."""
    file = (wanted.stoker or "").partition("#")[0].rpartition("/")[2]
    with suppress(InvalidWheelFilename):
        platforms = {tag.platform for tag in parse_wheel_filename(file)[3]}
        cpu = job.plan.platform.cpu
        if not any(platform == "any" or platform.endswith(cpu) for platform in platforms):
            raise UsageError(
                f"{file} does not run on {job.plan.platform}, where {job.name} is built",
                hints=[f"name the wheel of stoker for {cpu}, or the platform: --platform OS-CPU"],
            )


def _image(wanted: ExportWanted, planned: Plan, project: ProjectRecipe | None) -> str:
    """Return the builder image of a job; nothing for a format that uses none."""
    if wanted.format in _WITHOUT_IMAGE:
        if wanted.image:
            raise UsageError(f"--image is not for {wanted.format}: its file uses no image")
        return ""
    variant, platform = planned.variant, planned.platform
    # A project without GPU code needs no toolkit; PyTorch's images have those of all others.
    plain = variant.backend is Backend.CPU and not (project and project.name == PYTORCH)
    kind = "" if plain else PYTORCH
    usual = builder_image(kind, platform.cpu, variant.backend, variant.toolkit)
    if found := wanted.image or usual:
        return _checked_image(found)
    raise UsageError(
        f"no builder image is known for {planned.name} on {platform}",
        hints=["name one with --image", "a CUDA variant needs a version, such as cu130-sm90"],
    )


def _job(planned: Plan, words: list[str], image: str) -> ExportJob:
    variant = planned.variant
    python = variant.python or _PYTHON
    name = variant_name(replace(variant, platform=None))
    return ExportJob(
        plan=planned,
        name=name,
        command=("stoker", "build", *words, "--variant", name),
        image=image,
        folders=tuple(f"/opt/python/{_tag(version)}/bin" for version in _pythons(python)),
        python=python,
    )


def _pythons(python: str) -> tuple[str, ...]:
    """Return the Python of the wheel, and after it the one that runs stoker."""
    return (python,) if python == _PYTHON else (python, _PYTHON)


def _tag(version: str) -> str:
    digits = version.replace(".", "")
    return f"cp{digits.rstrip('t')}-cp{digits}"


def _defines(request: CommandLine) -> list[str]:
    """Return the CMake options that the user set; the variant's name carries everything else."""
    defines = read_user_options(request).defines
    return [word for name, found in defines.items() for word in ("-D", f"{name}={found.value}")]


def origin_of_stoker(given: str | None, form: ExportFormat) -> StokerOrigin:
    """Return where the other machine gets stoker from: a URL, a wheel that goes along with the
    files, or a requirement that the user's own package index has.
    """
    if form in _WITHOUT_STOKER:
        return StokerOrigin(requirement="")
    if given is None:
        raise UsageError(
            "an export installs stoker on the other machine, and stoker is not on PyPI",
            hints=["`make dist` builds its wheel: --stoker dist/stoker-VERSION.whl", _BY_URL],
        )
    if "://" in given:
        return StokerOrigin(requirement=f"stoker[tools] @ {given}")
    if not given.endswith(".whl"):
        return StokerOrigin(requirement=given)
    wheel = Path(given)
    if not wheel.is_file() or not wheel.name.startswith("stoker-"):
        raise UsageError(f"--stoker {given} is not a wheel of stoker", hints=[_BY_URL])
    if form is ExportFormat.KUBERNETES:
        raise UsageError("a Kubernetes job cannot read a file of this machine", hints=[_BY_URL])
    if form is ExportFormat.SLURM:  # its nodes share the file system
        return StokerOrigin(requirement=f"{wheel.resolve()}[tools]")
    return StokerOrigin(requirement=f"./{wheel.name}[tools]", wheel=wheel)


def write(
    files: tuple[ExportedFile, ...], folder: Path, *, wheel: Path | None = None, force: bool
) -> None:
    """Write all files below a folder. Without ``force``, refuse to replace a file that differs.

    ``wheel`` is copied to the folder, where the files expect it.
    """
    changed = [
        file
        for file in files
        if not (path := folder / file.path).is_file() or path.read_text() != file.text
    ]
    existing = [file.path for file in changed if (folder / file.path).exists()]
    if existing and not force:
        raise UsageError(
            f"{', '.join(existing)} exists already in {folder}",
            hints=["--force replaces it", "--out names another folder"],
        )
    for file in changed:
        path = folder / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, file.text)
    if wheel and wheel.resolve() != (folder / wheel.name).resolve():
        shutil.copyfile(wheel, folder / wheel.name)
