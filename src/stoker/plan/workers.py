"""Decides how many compiles a worker of a distributed compiler runs, and in how much memory."""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Network
from statistics import quantiles

from stoker.knowledge.export_targets import EngineRow, WorkerSize, clusters
from stoker.knowledge.steps import prior_of
from stoker.model.errors import UsageError
from stoker.model.govern import Role, Step, StepRecord
from stoker.model.value import size

_ENOUGH = 20  # compiles, so that a 95th percentile means something


def worker_size(
    records: Iterable[StepRecord], engine: EngineRow, cpus: int, memory: int | None
) -> WorkerSize:
    """Return the size of a worker. With ``memory``, run only as many jobs as fit into it.

    The limit is never below the largest compile that was measured, so that no file is killed on
    every worker.
    """
    peaks = [record.peak for record in records if record.step.role in engine.roles]
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
