"""What a compile on a worker costs the machine that builds, as measured with a real distcc.

`benchmarks/distribute_client.py` measures it. The simulator applies the medians to every compile of
a trace, in proportion to its duration.
"""

from functools import cache

from stoker.knowledge import Row, load


class ClientCosts(Row, frozen=True, kw_only=True):
    """The costs of one compile. Shares are of the seconds that it takes on one machine."""

    cpu_share: float  # of the preprocessor and the client here
    worker_share: float  # of the compiler on the worker
    sent_per_client_second: float  # bytes to the worker, compressed
    object_per_second: float  # bytes from the worker
    peak: int  # bytes of memory while it preprocesses
    rest: int  # bytes while the worker compiles
    preprocessors: int  # that run at once on a machine with fewer CPUs
    basis: str


class _Table(Row, frozen=True, kw_only=True):
    client: ClientCosts


@cache
def client_costs() -> ClientCosts:
    return load("distribution", _Table).client
