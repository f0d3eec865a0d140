"""`stoker simulate`: predict the time of a measured build on another machine."""

import click

from stoker.model.errors import ExitStatus, UsageError
from stoker.model.value import byte_count, count_of, second_count

_LEAST_BYTES = 1 << 20


def _counts(_: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:
    counts = [count_of(word) for word in value.split(",")]
    if not all(counts):
        raise UsageError(f"--{parameter.name} {value}: not numbers", hints=["try 16,64"])
    return tuple(count for count in counts if count)


def _sizes(_: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:
    sizes = [byte_count(word) for word in value.split(",")]
    found = [size for size in sizes if size and size >= _LEAST_BYTES]
    if len(found) < len(sizes):
        raise UsageError(
            f"--{parameter.name} {value}: not amounts of memory from 1M on", hints=["try 8G,16G"]
        )
    return tuple(found)


def _distributions(
    _: click.Context, parameter: click.Parameter, value: str | None
) -> tuple[tuple[int, int] | None, ...]:
    """Return workers and jobs of each; none stands for a build without workers."""
    sizes: list[tuple[int, int] | None] = []
    for word in value.split(",") if value else ["none"]:
        workers, jobs = (count_of(part) for part in word.partition("x")[::2])
        if word != "none" and not (workers and jobs):
            wrong = f"--{parameter.name} {value}: not workers and jobs"
            raise UsageError(wrong, hints=["try 4x16 for 4 workers with 16 jobs each"])
        sizes.append((workers, jobs) if workers and jobs else None)
    return tuple(sizes)


def _seconds(_: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    if value is None or (seconds := second_count(value)):
        return None if value is None else seconds
    raise UsageError(f"--{parameter.name} {value}: not a time", hints=["try 6h or 5h30m"])


@click.command()
@click.argument("source", metavar="RUN|TRACE")
@click.option(
    "--cpus",
    required=True,
    callback=_counts,
    metavar="N,...",
    help="Numbers of CPUs, such as 16,64.",
)
@click.option(
    "--memory",
    required=True,
    callback=_sizes,
    metavar="SIZE,...",
    help="Memory sizes, such as 64G,128G.",
)
@click.option(
    "--policy",
    "policies",
    default="adaptive",
    callback=lambda _, __, value: tuple(value.split(",")),
    metavar="NAME,...",
    help="Policies, such as adaptive,fixed:8,levels,two-phase. Default: adaptive.",
)
@click.option(
    "--cold", is_flag=True, help="Simulate a first build: no measurement of its steps is known."
)
@click.option(
    "--scatter",
    type=click.FloatRange(0, 90),
    default=0,
    metavar="PERCENT",
    help="Change each peak at random by up to this percentage.",
)
@click.option(
    "--distribute",
    callback=_distributions,
    metavar="WORKERSxJOBS,...",
    help="Let workers compile C and C++, such as 4x16,16x16; none stands for no workers.",
)
@click.option(
    "--bandwidth",
    type=click.FloatRange(1, 1e6),
    default=1000,
    show_default=True,
    metavar="MBIT",
    help="Megabits a second that this machine's link to the workers carries.",
)
@click.option(
    "--shards",
    callback=lambda context, option, value: _counts(context, option, value) if value else (),
    metavar="N,...",
    help="Split the compiles into so many jobs, each on such a machine, and one that links.",
)
@click.option(
    "--limit",
    callback=_seconds,
    metavar="TIME",
    help="With --shards: the time limit of a job, such as 6h; another job continues its work.",
)
@click.option(
    "--setup",
    callback=_seconds,
    metavar="TIME",
    help="With --shards: what each job takes before its first step, such as 5m.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def simulate(
    source: str,
    cpus: tuple[int, ...],
    memory: tuple[int, ...],
    policies: tuple[str, ...],
    cold: bool,
    scatter: float,
    distribute: tuple[tuple[int, int] | None, ...],
    bandwidth: float,
    shards: tuple[int, ...],
    limit: float | None,
    setup: float | None,
    as_json: bool,
) -> int:
    """Predict how long a measured build takes on another machine or under another policy.

    RUN is a number from `stoker history` or the run folder of a build; TRACE is a file that
    `stoker history --export` wrote. All combinations of the CPUs, memory sizes, workers and
    policies are simulated. The exit status is 1 if a step runs out of memory in a simulation.

    \b
    stoker simulate 12 --cpus 16,64 --memory 64G,128G
    stoker simulate 12 --cpus 16 --memory 32G --distribute none,4x16,16x16
    stoker simulate 12 --cpus 4 --memory 16G --shards 1,4,8,16 --limit 6h
    """
    if shards:
        return _farm(source, cpus, memory, shards, limit=limit, setup=setup or 0.0, as_json=as_json)
    if limit or setup:
        raise UsageError("--limit and --setup belong to --shards")
    from stoker.govern.history.simulating import SimulationOptions, simulate_build, simulation_page
    from stoker.model.simulation import SimulatedWorkers
    from stoker.outside.terminal import print_json, show

    options = SimulationOptions(
        cpus=cpus,
        memory=memory,
        policies=policies,
        cold=cold,
        scatter=scatter / 100,
        distributions=tuple(
            size and SimulatedWorkers(workers=size[0], jobs=size[1], bandwidth=bandwidth * 1e6 / 8)
            for size in distribute
        ),
    )
    trace, results = simulate_build(source, options)
    if as_json:
        value = {"trace": trace.what, "steps": len(trace.steps), "results": results}
        print_json(value)
    else:
        show(simulation_page(trace, results))
    return ExitStatus.FAILED if any(result.failed for result in results) else ExitStatus.OK


def _farm(
    source: str,
    cpus: tuple[int, ...],
    memory: tuple[int, ...],
    shards: tuple[int, ...],
    *,
    limit: float | None,
    setup: float,
    as_json: bool,
) -> int:
    """Simulate a build in several jobs."""
    from stoker.builds.jobs.simulation import farm_page, simulate_farm
    from stoker.govern.history.past_runs import find_trace
    from stoker.outside.terminal import print_json, show
    from stoker.settings.toml import own_prices

    trace = find_trace(source)
    results = [
        simulate_farm(trace.steps, shards=count, cpus=c, memory=m, limit=limit, setup=setup)
        for c in cpus
        for m in memory
        for count in shards
    ]
    if as_json:
        print_json({"trace": trace.what, "steps": len(trace.steps), "results": results})
    else:
        show(farm_page(trace, results, own_prices()))
    failed = any(result.failed or result.too_long for result in results)
    return ExitStatus.FAILED if failed else ExitStatus.OK
