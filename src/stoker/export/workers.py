"""The workers of sccache-dist: how many compiles each runs, in how much memory, and who may use
them. `cluster.py` renders them.
"""

import re
from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network
from statistics import quantiles

from stoker.govern.history.store import History
from stoker.knowledge.export_targets import (
    ClusterExport,
    ExportFormat,
    WorkerSize,
    clusters,
)
from stoker.knowledge.steps import prior_of
from stoker.model.errors import UsageError
from stoker.model.govern import Role, Step, StepRecord
from stoker.model.value import Value, counted, size

_ENOUGH = 20  # compiles, so that a 95th percentile means something
_IMAGE = re.compile(r"[\w][\w./:@-]*", re.ASCII)
_CLUSTERS = (ExportFormat.KUBERNETES, ExportFormat.SLURM, ExportFormat.COMPOSE)


def worker_size(records: Iterable[StepRecord], cpus: int, memory: int | None) -> WorkerSize:
    """Return the size of a worker. With ``memory``, it has only the CPUs whose jobs fit into it:
    sccache-dist has no option for the number of jobs.

    The limit is never below the largest compile that was measured, so that no file is killed on
    every worker.
    """
    peaks = [record.peak_bytes for record in records if record.step.role in clusters().roles]
    per_job, largest, source = _memory_of_a_job(peaks)
    jobs = cpus * clusters().jobs_per_cpu
    if memory is None:
        memory = max(per_job * jobs, largest)
        basis = f"{size(memory)}: {jobs} jobs of {size(per_job)} each"
    elif memory < largest:
        raise UsageError(
            f"--memory {size(memory)} is less than a single compile needs",
            hints=[f"at least {size(largest)}: {source}"],
        )
    else:
        cpus = max(1, min(jobs, memory // per_job) // clusters().jobs_per_cpu)
        fitting = counted(memory // per_job, "job")
        basis = f"{size(memory)} as given, enough for {fitting} of {size(per_job)} each"
    return WorkerSize(cpus=cpus, memory_bytes=memory, basis=f"{basis}, {source}")


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
            hints = ["everyone there can read the tokens: name a private network"]
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


class ClusterWanted(Value, frozen=True, kw_only=True):
    """What the command line asks for with ``--cluster``."""

    format: ExportFormat
    workers: int
    cpus: int
    memory_bytes: int | None
    disk_bytes: int
    seconds: int
    image: str | None = None
    allow: tuple[str, ...] = ()
    trust_network: bool = False


def export_cluster(wanted: ClusterWanted) -> ClusterExport:
    """Return workers whose memory limit follows from the history of this machine."""
    if wanted.format not in _CLUSTERS:
        raise UsageError(
            f"{wanted.format} has no workers: --cluster is for {', '.join(_CLUSTERS)}",
            hints=["for example: stoker export kubernetes --cluster"],
        )
    if wanted.allow and wanted.format is ExportFormat.SLURM:
        raise UsageError(
            "--allow has no effect on Slurm: sccache-dist accepts everyone who has a token",
            hints=["let a firewall protect the nodes"],
        )
    allowed = allowed_networks(wanted.allow, trusted=wanted.trust_network)
    if wanted.format is ExportFormat.COMPOSE and len(allowed) > 1:
        hints = ["name the subnet that the containers get"]
        raise UsageError("compose makes one network: --allow can be given once", hints=hints)
    with History() as history:
        records = history.recent()
    return ClusterExport(
        format=wanted.format,
        image=checked_image(wanted.image or "stoker-workers:bookworm"),
        workers=wanted.workers,
        worker=worker_size(records, wanted.cpus, wanted.memory_bytes),
        disk_bytes=wanted.disk_bytes,
        seconds=wanted.seconds,
        allowed=allowed,
    )


def checked_image(name: str) -> str:
    if not _IMAGE.fullmatch(name):
        raise UsageError(f"{name!r} is not the name of an image")
    return name
