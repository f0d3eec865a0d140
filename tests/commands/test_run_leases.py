"""Real builds of short compiles: most of them run by leases, and the governor knows all of them."""

import os
import signal

from governed import Build, finished, wait_until
from stoker.model.govern import Basis
from stoker.model.runs import Attempt

STEPS = 200


def at_once(attempts: list[Attempt]) -> int:
    """Return the most attempts that ran at one time."""
    moments = [(each.started, 1) for each in attempts]
    moments += [(each.started + each.record.wall_s, -1) for each in attempts]
    running = most = 0
    for _, change in sorted(moments):
        running += change
        most = max(most, running)
    return most


def test_every_step_is_known_and_places_are_respected(build: Build) -> None:
    for number in range(STEPS):
        build.step(f"step{number}", ":")
    summary = build.summary(options=["--cpus", "2"])
    build.wait_for_end()
    attempts = build.attempts()
    assert summary.steps == len(attempts) == len(build.made()) == STEPS
    explained = [(each, each.explanation) for each in attempts if each.explanation]
    leased = [(each, why) for each, why in explained if why.basis is Basis.LEASE]
    assert len(leased) > STEPS / 2
    assert all(why.asked <= each.started for each, why in leased)
    all_cpus = len(os.sched_getaffinity(0))
    assert at_once(attempts) <= (2 if all_cpus > 2 else 2 + 2)  # short steps may exceed all CPUs


def test_a_build_outlives_its_governor(build: Build) -> None:
    for number in range(STEPS):
        build.step(f"step{number}", ":")
    run = build.start(options=["--cpus", "2"])
    wait_until(lambda: len(build.made()) > STEPS / 2, "half of the steps are done")
    os.kill(build.governors()[0], signal.SIGKILL)
    assert finished(run).status == 0
    assert len(build.made()) == STEPS
