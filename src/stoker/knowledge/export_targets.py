"""What the systems that `stoker export` writes files for call their machines and packages."""

from functools import cache

from stoker.knowledge import Row, load


class MachineType(Row, frozen=True, kw_only=True):
    name: str
    cpus: int
    memory_gb: int


class _Table(Row, frozen=True, kw_only=True):
    cloudbuild: tuple[MachineType, ...]  # smallest first
    github_runner: dict[str, str]
    nix_blas: dict[str, str]


@cache
def _table() -> _Table:
    return load("export_targets", _Table)


def cloud_build_machine(cpus: int, memory_bytes: int) -> MachineType:
    """Return the smallest machine type that is large enough, or the largest of all."""
    rows = _table().cloudbuild
    fitting = (r for r in rows if r.cpus >= cpus and r.memory_gb * 10**9 >= memory_bytes)
    return next(fitting, rows[-1])


def github_runner(machine: str) -> str | None:
    return _table().github_runner.get(machine)


def nix_blas() -> dict[str, str]:
    return _table().nix_blas
