"""What is said at the end of a governed run: its summary, and why steps were not started."""

import signal
from collections.abc import Iterator, Sequence
from operator import itemgetter

from stoker.model.caching import CacheUse
from stoker.model.errors import StokerError, UnfinishedError
from stoker.model.events import StepTooLate
from stoker.model.govern import CompileMode
from stoker.model.runs import RunSummary
from stoker.model.terms import TimeLimit
from stoker.model.value import counted, duration, size

_BY_SIGNAL = 128  # what a shell adds to the number of a signal
_NOTABLE_SHARE = 0.1  # of the CPUs, or of the CPU time


def unseen_text(cpu_seconds: float) -> str:
    return (
        f"stoker: {duration(cpu_seconds)} of CPU time went to programs that it did not govern.\n"
        "  The command is a static program, which cannot load stoker's library. If it starts "
        "compilers: configure the build with `stoker run --via launcher -- cmake ...`\n"
    )


def cache_text(use: CacheUse) -> str:
    """``41 of 43 compiles found (95%): C++ 40 of 41, CUDA 1 of 2; 12 in the remote``."""
    total = use.total
    text = f"{total.hits} of {total.hits + total.misses} compiles found ({total.rate or 0:.0%})"
    if len(use.languages) > 1:
        rows = (f"{name} {r.hits} of {r.hits + r.misses}" for name, r in use.languages.items())
        text += f": {', '.join(rows)}"
    return f"{text}; {use.remote_hits} in the remote" if use.remote_hits else text


def _mode_lines(summary: RunSummary) -> Iterator[str]:
    """Yield what was added to the commands of steps."""
    saving = {mode: count for mode, count in summary.modes.items() if mode.is_collector}
    if faster := saving.pop(CompileMode.FAST, 0):
        gained = duration(max(0.0, -summary.mode_cpu_s.get(CompileMode.FAST, 0.0)))
        taken = size(max(0, summary.mode_bytes.get(CompileMode.FAST, 0)))
        yield (
            f"  gcc collected garbage less often in {counted(faster, 'step')}: about {gained} less "
            f"CPU time, {taken} more memory (sum of peaks)"
        )
    if saving:
        less = size(max(0, -sum(summary.mode_bytes.get(mode, 0) for mode in saving)))
        cost = max(0.0, sum(summary.mode_cpu_s.get(mode, 0.0) for mode in saving))
        yield (
            f"  gcc collected garbage more often in {counted(sum(saving.values()), 'step')}: about "
            f"{less} less memory (sum of peaks), {duration(cost)} more CPU time"
        )
    if threaded := summary.modes.get(CompileMode.THREADS):
        saved = duration(summary.threads_saved_s)
        yield (
            f"  nvcc used idle CPUs for {counted(threaded, 'step')}, several GPU targets at once: "
            f"about {saved} of compile time saved"
        )
    if summary.linker.is_linker:
        used = ((mode, count) for mode, count in summary.modes.items() if mode.is_linker)
        others = ", ".join(f"{count} {mode.value}" for mode, count in used)
        links = (others or "default linker") if summary.links else "none"
        yield f"  links: {links} (--linker {summary.linker}){_link_gain(summary)}"


def _link_gain(summary: RunSummary) -> str:
    now, before = summary.link_s, summary.default_link_s
    took = f": {duration(now)}; the default linker took {duration(before)} before"
    return took if before >= 1 else ""


def summary_text(summary: RunSummary) -> str:
    """Return the summary of a run as a few lines."""
    if not (summary.steps or summary.cache_hits or summary.oom_kills or summary.peak_bytes):
        return f"stoker: 0 steps in {duration(summary.wall_s)}: no compile or link was governed\n"
    cpus = counted(summary.cpus, "CPU")
    took = f"{counted(summary.steps, 'step')} in {duration(summary.wall_s)} on {cpus}"
    if summary.remote_steps:
        took += f", {summary.remote_steps} of them compiled by workers"
    limit = size(summary.limit_bytes)
    # If no step asked for a permit, the memory of the build is unknown.
    memory = (
        f"peak {size(summary.peak_bytes)} of {limit}" if summary.peak_bytes else f"limit {limit}"
    )
    lost = (
        f"{counted(summary.oom_kills, 'OOM kill')}, {counted(summary.preemptions, 'preemption')}, "
        f"{counted(summary.retries, 'attempt')} repeated"
    )
    if summary.pauses:
        lost += f", {counted(summary.pauses, 'pause')}"
    end = f"; {_how_it_ended(summary.status)}" if summary.status else ""
    lines = [f"stoker: {took} ({summary.policy}){end}", f"  memory: {memory}; {lost}"]
    if summary.cache and summary.cache.languages:
        lines.append(f"  cache: {cache_text(summary.cache)}")
    if summary.cache and summary.cache.workers:
        jobs = (f"{name} {count}" for name, count in sorted(summary.cache.workers.items()))
        lines.append(f"  jobs of workers: {', '.join(jobs)}")
    lines += _mode_lines(summary)
    lines += _once_lines(summary)
    if summary.written_bytes is not None:
        lines.append(f"  disk: {size(summary.written_bytes)} written")
    # A build that has not reached its end has no minimum.
    if summary.lower_bound_s and summary.governed_s and not summary.status:
        share = summary.lower_bound_s / summary.governed_s
        bound, took = duration(summary.lower_bound_s), duration(summary.governed_s)
        lines.append(f"  theoretical minimum {bound}, {share:.0%} of the {took} in which steps ran")
    lines += _other_lines(summary)
    return "\n".join(lines) + "\n"


def _how_it_ended(status: int) -> str:
    stopped = status - _BY_SIGNAL in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return "interrupted" if stopped else f"the command failed with status {status}"


def _once_lines(summary: RunSummary) -> Iterator[str]:
    """Yield why steps were never preempted, if they took much of the CPU time."""
    share = sum(summary.once_cpu_s.values()) / summary.cpu_s if summary.cpu_s else 0.0
    if share >= _NOTABLE_SHARE:
        why, _ = max(summary.once_cpu_s.items(), key=itemgetter(1))
        yield (
            f"  {share:.0%} of the CPU time was in steps that are never preempted, because they "
            f"must not be started twice (mostly: {why})"
        )


def _other_lines(summary: RunSummary) -> Iterator[str]:
    """Yield what others took of the CPUs, if it is much. The system counts their time in ticks and
    from before the first step on, so a share of less than a second says nothing.
    """
    whole = summary.wall_s * summary.cpus if summary.wall_s >= 1 else 0.0
    for seconds, text in (
        (summary.other_cpu_s or 0.0, "other programs used {share} of the CPUs"),
        (summary.stolen_cpu_s, "the host gave {share} of the CPUs to other virtual machines"),
    ):
        share = min(1.0, seconds / whole) if whole else 0.0
        if share >= _NOTABLE_SHARE and seconds >= 1:
            took = f"({duration(seconds)} of CPU time)"
            yield f"  {text.format(share=f'{share:.0%}')} meanwhile {took}"


def unfinished(
    late: Sequence[StepTooLate], limit: TimeLimit | None, *, advanced: bool
) -> StokerError:
    """Return the error for steps that were not started, or ended before their end. ``advanced``:
    others have ended well.
    """
    longest = max(late, key=lambda step: step.seconds)
    time_given = duration(limit.seconds) if limit else "its time"
    about = f"{longest.title}, which takes about {duration(longest.seconds)}"
    ended = [step for step in late if step.ran_s]
    if ended:
        longest = max(ended, key=lambda step: step.ran_s)
        about = f"{longest.title}, which ran for {duration(longest.ran_s)}"
    if not (advanced and any(step.fits for step in late)):
        text = f"no step could be started in {time_given}; the longest is {about}"
        if ended:
            text = f"{about}, does not end in {time_given}"
        return StokerError(text, hints=["a longer --stop-after"])
    if ended:
        were = f"{counted(len(ended), 'step')} {'were' if len(ended) > 1 else 'was'}"
        return UnfinishedError(
            f"the {time_given} of --stop-after are over: {were} stopped before the end; "
            f"the longest is {about}"
        )
    steps = f"{counted(len(late), 'waiting step')} {'were' if len(late) > 1 else 'was'}"
    return UnfinishedError(
        f"the {time_given} of --stop-after are almost over: {steps} not started; the longest is "
        f"{about}"
    )
