"""Builders for steps, requests and states, with defaults that do not matter to the test."""

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st
from msgspec.structs import replace

from stoker.govern.policy.open_steps import urgency
from stoker.govern.policy.profile import Profile
from stoker.model.govern import (
    PARTS,
    Basis,
    Prediction,
    Request,
    Role,
    Running,
    State,
    Step,
    StepRecord,
)
from stoker.model.runs import RunSummary

GB = 10**9


def profile(*percent: int) -> Profile:
    """Return a profile with these levels in equal times: ``profile(20, 100)`` jumps halfway."""
    return tuple(percent[part * len(percent) // PARTS] for part in range(PARTS))


def record(
    name: str,
    *,
    seconds: float = 10.0,
    peak: float = GB,
    needs: Sequence[str] = (),
    byte_seconds: float | None = None,
    profile: Profile = (),
    role: Role = Role.CXX,
) -> StepRecord:
    return StepRecord(
        step=Step(key=name, role=role, source=f"src/{name}", output=name),
        wall_s=seconds,
        cpu_s=seconds,
        peak_bytes=round(peak),
        byte_seconds=byte_seconds,
        profile=profile,
        needs=tuple(needs),
    )


def step(
    source: str = "src/core/a.cpp",
    *,
    key: str | None = None,
    role: Role = Role.CXX,
    archs: tuple[str, ...] = (),
    threads: int = 1,
    input_bytes: int = 0,
) -> Step:
    return Step(
        key=key or f"key of {source}",
        role=role,
        source=source,
        archs=archs,
        threads=threads,
        input_bytes=input_bytes,
    )


def row(
    measured: Step,
    peak: float,
    *,
    seconds: float = 10.0,
    share: float | None = None,
    profile: Profile = (),
) -> StepRecord:
    return StepRecord(
        step=measured,
        wall_s=seconds,
        cpu_s=seconds,
        peak_bytes=round(peak),
        byte_seconds=None if share is None else share * peak * seconds,
        profile=profile,
    )


def killed(measured: Step, peak: float, seconds: float) -> StepRecord:
    return replace(row(measured, peak, seconds=seconds), killed=True)


def run_summary(**changes: Any) -> RunSummary:
    """Return the summary of a run of one step."""
    usual = RunSummary(
        status=0,
        steps=1,
        wall_s=1.0,
        cpu_s=1.0,
        governor_cpu_s=0.1,
        peak_bytes=1,
        limit_bytes=2,
        oom_kills=0,
        preemptions=0,
        retries=0,
        lower_bound_s=None,
        policy="adaptive",
        cpus=2,
    )
    return replace(usual, **changes)


def prediction(
    peak: float,
    *,
    high: float | None = None,
    profile: Profile = (),
    seconds: float | None = 10.0,
    basis: Basis = Basis.EXACT,
) -> Prediction:
    return Prediction(
        peak=round(peak),
        high=round(peak if high is None else high),
        profile=profile,
        seconds=seconds,
        basis=basis,
    )


def request(
    identity: int,
    peak: float = GB,
    *,
    asked: float = 0.0,
    path: float = 0.0,
    slots: int = 1,
    high: float | None = None,
    profile: Profile = (),
    seconds: float | None = 10.0,
    basis: Basis = Basis.EXACT,
) -> Request:
    return Request(
        id=identity,
        asked=asked,
        path=path,
        slots=slots,
        prediction=prediction(peak, high=high, profile=profile, seconds=seconds, basis=basis),
    )


def running(
    asked: Request,
    *,
    started: float = 0.0,
    current: float = 0,
    peak: float | None = None,
    on_trial: bool = False,
    stopping: bool = False,
    paused_at: float | None = None,
) -> Running:
    seen = current if peak is None else peak
    return Running(
        request=asked,
        started=started,
        on_trial=on_trial,
        current=round(current),
        peak=round(seen),
        stopping=stopping,
        paused_at=paused_at,
    )


def state(
    *,
    cpus: int = 8,
    limit: float = 8 * GB,
    now: float = 100.0,
    steps: Sequence[Running] = (),
    waiting: Sequence[Request] = (),
    other_usage: float = 0,
    growth: float = 0.0,
    pressure: float = 0.0,
) -> State:
    return State(
        now=now,
        cpus=cpus,
        limit=round(limit),
        used=sum(step.current for step in steps) + round(other_usage),
        growth=growth,
        pressure=pressure,
        running=tuple(steps),
        waiting=sorted(waiting, key=urgency),
    )


def oldest(state: State) -> Running | None:
    """Return the oldest running step that is not being stopped."""
    live = [step for step in state.running if not step.stopping]
    return min(live, key=lambda step: (step.started, step.id), default=None)


def profiles() -> st.SearchStrategy[Profile]:
    """Generate no profile, or one with up to six levels that reaches its peak."""
    steps = st.lists(st.integers(0, 100), max_size=5)
    reaching = st.builds(
        lambda before, after: profile(*before, 100, *after[: 5 - len(before)]), steps, steps
    )
    return st.just(()) | reaching


def predictions() -> st.SearchStrategy[Prediction]:
    """Generate all predictions that a predictor could make, and some more."""
    return st.builds(
        lambda peak, width, profile, seconds, waves, basis: Prediction(
            peak=peak,
            high=round(peak * width),
            profile=profile,
            seconds=seconds,
            waves=waves,
            basis=basis,
        ),
        st.integers(0, 10 * GB),
        st.floats(1, 3),
        profiles(),
        st.none() | st.floats(0.01, 1000),
        st.integers(1, 3),
        st.sampled_from(Basis),
    )


def requests(first: int, count: int) -> st.SearchStrategy[list[Request]]:
    one = st.builds(
        Request,
        id=st.just(0),
        asked=st.floats(0, 100),
        path=st.floats(0, 1000),
        slots=st.integers(0, 6),
        prediction=predictions(),
        preemptions=st.integers(0, 3),
        ooms=st.integers(0, 2),
        restarts=st.booleans(),
    )
    return st.lists(one, max_size=count).map(
        lambda found: [replace(each, id=first + index) for index, each in enumerate(found)]
    )


@st.composite
def states(draw: st.DrawFn) -> State:
    """Return any state of a daemon, also overcommitted or with a hostile other process."""
    steps = [
        running(
            asked,
            started=draw(st.floats(0, 50)),
            paused_at=draw(st.none() | st.floats(50, 100)),
            stopping=draw(st.booleans()),
            current=(current := draw(st.integers(0, 6 * GB))),
            peak=current + draw(st.integers(0, GB)),
            on_trial=draw(st.booleans()),
        )
        for asked in draw(requests(1, 8))
    ]
    return state(
        cpus=draw(st.integers(1, 12)),
        limit=draw(st.integers(1, 20 * GB)),
        steps=steps,
        waiting=draw(requests(100, 12)),
        other_usage=draw(st.integers(0, 10 * GB)),
        growth=draw(st.floats(-5e9, 5e9)),
        pressure=draw(st.sampled_from([0.0, 50.0])),
    )


@st.composite
def builds(draw: st.DrawFn, *, largest: float = 4 * GB) -> tuple[StepRecord, ...]:
    """Generate the steps of a small build, with dependencies on earlier steps."""
    steps: list[StepRecord] = []
    for index in range(draw(st.integers(1, 25))):
        needs = draw(st.sets(st.sampled_from(steps), max_size=2)) if steps else set()
        steps.append(
            record(
                f"{index}.cpp",
                seconds=draw(st.floats(0, 20)),
                peak=draw(st.floats(0, largest)),
                profile=draw(profiles()),
                needs=sorted(need.step.output for need in needs),
            )
        )
    return tuple(steps)
