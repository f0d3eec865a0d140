"""A matrix on the terminal: the list of what is to be made, and the table of what was made."""

from collections.abc import Sequence

from stoker.builds.matrices.decisions import whole_time
from stoker.builds.matrices.matrix import MatrixEnd, MatrixJob, MatrixResult, WheelFrom
from stoker.model.value import duration, size
from stoker.outside.terminal import Group, Listing, Page, Text

_STYLES = {
    MatrixEnd.DONE: "ok",
    MatrixEnd.UNCHANGED: "ok",
    MatrixEnd.FAILED: "error",
    MatrixEnd.INTERRUPTED: "warning",
}


def jobs_page(jobs: Sequence[MatrixJob]) -> Page:
    """Return the jobs in their order, with an estimate for each."""
    table = Listing("name", "Python", "variant", "label", "from", ">time")
    for job in jobs:
        amount = job.seconds.amount
        table.add(
            job.name,
            job.python or "",
            job.variant,
            f"+{job.label}",
            str(job.made_from),
            "unknown" if amount is None else duration(amount),
        )
    return Group(table, Text(whole_line(jobs)))


def whole_line(jobs: Sequence[MatrixJob]) -> str:
    """Return the number of wheels and the estimated time for all of them."""
    time = whole_time(jobs)
    count = f"{len(jobs)} wheel{'s' if len(jobs) != 1 else ''}"
    if time.unknown == len(jobs):
        return f"{count}; the time is unknown"
    known = f"about {duration(time.seconds)}"
    return f"{count}, {known}" + (f"; the time of {time.unknown} is unknown" * bool(time.unknown))


def job_begin_line(number: int, total: int, job: MatrixJob) -> str:
    how = "slimming" if job.made_from is WheelFrom.SLIM else "building"
    return f"stoker: {number} of {total}: {how} {job.title} ({job.variant})\n"


def job_end_line(result: MatrixResult) -> str:
    if result.end is MatrixEnd.INTERRUPTED:
        return f"stoker: {result.job.title}: interrupted; the same command continues the matrix\n"
    made = f": {result.wheel}" if result.ok and result.wheel else ""
    return f"stoker: {result.job.title}: {result.end} in {duration(result.wall_s)}{made}\n"


def results_page(results: Sequence[MatrixResult]) -> Page:
    table = Listing("name", "Python", "", ">time", ">size", ">cache", "verify", "wheel")
    for result in results:
        table.add(
            result.job.name,
            result.job.python or "",
            Text(str(result.end), style=_STYLES[result.end]),
            duration(result.wall_s),
            _size(result),
            _hit_rate(result),
            _verdict(result),
            result.wheel or result.error or "",
        )
    return table


def _verdict(result: MatrixResult) -> str:
    if result.original_errors:
        return f"{len(result.original_errors)} of the original"
    return "ok" if result.verified else ""


def _size(result: MatrixResult) -> str:
    if result.size_bytes is None:
        return ""
    share = f" ({result.size_bytes / result.before_bytes:.0%})" if result.before_bytes else ""
    return f"{size(result.size_bytes)}{share}"


def _hit_rate(result: MatrixResult) -> str:
    if not result.compiles or result.cache_hits is None:
        return ""
    return f"{result.cache_hits / result.compiles:.0%} of {result.compiles}"
