"""`stoker simulate`: predict the time of a measured build on another machine."""

import click

from stoker.model.errors import ExitStatus, UsageError
from stoker.model.units import byte_count, whole_number

_MOST_DIGITS = 6  # of a number of CPUs


def _counts(_: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:
    counts = [whole_number(word, _MOST_DIGITS) for word in value.split(",")]
    if not all(counts):
        raise UsageError(f"--{parameter.name} {value}: not numbers", hints=["try 16,64"])
    return tuple(count for count in counts if count)


def _sizes(_: click.Context, parameter: click.Parameter, value: str) -> tuple[int, ...]:
    sizes = [byte_count(word) for word in value.split(",")]
    if not all(sizes):
        raise UsageError(f"--{parameter.name} {value}: not amounts", hints=["try 8G,16G"])
    return tuple(size for size in sizes if size)


def _words(_: click.Context, __: click.Parameter, value: str) -> tuple[str, ...]:
    return tuple(value.split(","))


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
    callback=_words,
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
@click.option("--json", "as_json", is_flag=True, help="Print the results as JSON.")
def command(
    source: str,
    cpus: tuple[int, ...],
    memory: tuple[int, ...],
    policies: tuple[str, ...],
    cold: bool,
    scatter: float,
    as_json: bool,
) -> int:
    """Predict how long a measured build takes on another machine or under another policy.

    RUN is a number from `stoker history`; TRACE is a file that `stoker history --export` wrote. All
    combinations of the CPUs, memory sizes and policies are simulated. The exit status is 1 if a
    step runs out of memory in a simulation.

    \b
    stoker simulate 12 --cpus 16,64 --memory 64G,128G
    """
    from stoker.flows.simulating import SimulationOptions, simulate_build
    from stoker.report.console import print_json, show
    from stoker.report.simulation import simulation_page

    options = SimulationOptions(
        cpus=cpus, memory=memory, policies=policies, cold=cold, scatter=scatter / 100
    )
    trace, results = simulate_build(source, options)
    if as_json:
        value = {"trace": trace.what, "steps": len(trace.steps), "results": results}
        print_json(value)
    else:
        show(simulation_page(trace, results))
    return ExitStatus.FAILED if any(result.failed for result in results) else ExitStatus.OK
