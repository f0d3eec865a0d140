import pytest

from stoker.export.workers import allowed_networks, worker_size
from stoker.model.errors import UsageError
from stoker.model.govern import Role, Step, StepRecord

MIB = 1 << 20


def record(mib: int, role: Role = Role.CXX) -> StepRecord:
    step = Step(key="", role=role)
    return StepRecord(step=step, wall_s=1.0, cpu_s=1.0, peak_bytes=mib * MIB)


MEASURED = [record(mib) for mib in range(1, 101)]


def test_memory_is_the_95th_percentile_times_the_jobs() -> None:
    found = worker_size(MEASURED, cpus=8, memory=None)
    assert found.memory_bytes == pytest.approx(16 * 95.95 * MIB, rel=0.001)
    assert "95th percentile of 100 compiles" in found.basis
    assert "the largest needed 100 MiB" in found.basis


def test_only_compiles_that_are_distributed_count() -> None:
    links = [record(9000, Role.LINK)]
    assert worker_size(MEASURED + links, 8, None) == worker_size(MEASURED, 8, None)
    found = worker_size([*MEASURED, record(9000, Role.CUDA)], cpus=8, memory=None)
    assert found.memory_bytes >= 9000 * MIB


def test_the_largest_compile_fits_into_one_worker() -> None:
    found = worker_size([*MEASURED, record(5000)], cpus=2, memory=None)
    assert found.memory_bytes == 5000 * MIB


def test_given_memory_limits_the_cpus_for_which_a_worker_gets_jobs() -> None:
    found = worker_size(MEASURED, cpus=8, memory=500 * MIB)
    assert (found.cpus, found.memory_bytes) == (2, 500 * MIB)
    assert "enough for 5 jobs" in found.basis
    with pytest.raises(UsageError, match="single compile"):
        worker_size(MEASURED, cpus=8, memory=99 * MIB)


def test_without_history_a_shipped_figure_is_assumed() -> None:
    found = worker_size(MEASURED[:19], cpus=4, memory=None)
    assert found.memory_bytes == 8_000_000_000
    assert "assumed" in found.basis


@pytest.mark.parametrize("text", ["", "10.0.0.1/24", "::1", "10.0.0.0/33", "0.0.0.0/0", "8.8.8.8"])
def test_networks_that_are_none_or_public_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--allow"):
        allowed_networks([text], trusted=False)


def test_trusted_and_private_networks_are_allowed() -> None:
    assert allowed_networks(["10.0.0.5", "100.64.0.0/16"], trusted=False) == (
        "10.0.0.5/32",
        "100.64.0.0/16",
    )
    assert allowed_networks(["8.8.8.0/24"], trusted=True) == ("8.8.8.0/24",)
