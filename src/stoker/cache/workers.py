"""Workers of distcc: whether they answer, and whether they make the same objects."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import StrEnum
from pathlib import Path
from tempfile import gettempdir

from stoker.outside import process
from stoker.outside.files import folder_of_process

_TIMEOUT_S = 10.0
_MOST = 32  # workers that are asked at once
_PROBE = "probe.cpp"
# Instructions, a name that is mangled and a constant: enough to tell compilers apart, which also
# write their version into each object.
_TEXT = "double probe(double x, long n) { return n > 3 ? x * n : 0.1; }\n"


class WorkerProblem(StrEnum):
    SILENT = "it does not compile"
    DIFFERENT = "its compiler makes another object than the one here"


def worker_problems(
    program: str, workers: Sequence[str], compiler: str, environment: Mapping[str, str]
) -> dict[str, WorkerProblem]:
    """Have each worker compile a small file; return what is wrong with those that differ from
    ``compiler`` here. Nothing is known if that does not compile either.
    """
    parent = Path(gettempdir())
    with folder_of_process(parent, "stoker-workers-") as folder, ThreadPoolExecutor(_MOST) as pool:
        (folder / _PROBE).write_text(_TEXT)
        own = {**environment, "DISTCC_DIR": str(folder), "DISTCC_FALLBACK": "0"}
        expected = _object([compiler], folder, "here", environment)

        def problem(number: int) -> WorkerProblem | None:
            hosts = own | {"DISTCC_HOSTS": workers[number]}
            made = _object([program, compiler], folder, str(number), hosts)
            if made is None:
                return WorkerProblem.SILENT
            return None if made == expected else WorkerProblem.DIFFERENT

        found = pool.map(problem, range(len(workers) if expected else 0))
        return {worker: each for worker, each in zip(workers, found, strict=False) if each}


def _object(
    words: Sequence[str], folder: Path, name: str, environment: Mapping[str, str]
) -> bytes | None:
    """Return the object that a command makes of the probe, or None if it fails."""
    made = folder / f"{name}.o"
    command = [*words, "-c", _PROBE, "-o", made.name]
    done = process.run(command, timeout=_TIMEOUT_S, env=environment, cwd=folder)
    return made.read_bytes() if done.ok and made.exists() else None
