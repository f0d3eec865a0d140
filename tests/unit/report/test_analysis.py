"""Analyses of small runs, compared with figures computed by hand."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from governed_steps import GB, profile, run_summary
from stoker.model.govern import Basis, Collector, CompileMode, Role, Step, StepRecord
from stoker.model.runs import Attempt, Explanation, Outcome, Run
from stoker.report.analysis import RecordedRun, analyse, records, target_of
from stoker.report.dependencies import Dependencies
from stoker.report.reported import RunAnalysis
from stoker.source.ninja import Edge

NO_GRAPH = Dependencies({})
NOTHING = RecordedRun()
SUMMARY = run_summary(steps=0, wall_s=10.0, cpu_s=0.0, peak_bytes=3 * GB, limit_bytes=4 * GB)
RUN = Run(id=1, started=0.0, ended=10.0, command="ninja", directory="/src", summary=SUMMARY)


def attempt(
    name: str,
    started: float,
    seconds: float,
    *,
    cpu: float | None = None,
    peak: float = GB,
    outcome: Outcome = Outcome.DONE,
    role: Role = Role.CXX,
    threads: int = 1,
    archs: Sequence[str] = (),
    asked: float | None = None,
    needs: float = GB,
    basis: Basis = Basis.PRIOR,
) -> Attempt:
    step = Step(
        key=name,
        role=role,
        source=f"{name}.cpp",
        output=f"{name}.o",
        directory="/src/build",
        threads=threads,
        archs=tuple(archs),
    )
    record = StepRecord(
        step=step,
        wall_s=seconds,
        cpu_s=seconds if cpu is None else cpu,
        peak_bytes=round(peak),
        byte_seconds=seconds * peak,
    )
    explanation = None
    if asked is not None:
        explanation = Explanation(asked=asked, needs_bytes=round(needs), basis=basis)
    return Attempt(record=record, started=started, outcome=outcome, explanation=explanation)


def analysed(*attempts: Attempt, dependencies: Dependencies = NO_GRAPH) -> RunAnalysis:
    return analyse(RUN, attempts, NOTHING, dependencies)


def share(analysis: RunAnalysis, name: str) -> float:
    return next(bound.share for bound in analysis.bounds if bound.name == name)


def test_bounds_are_shares_of_the_wall_time() -> None:
    found = analysed(attempt("a", 0, 8, peak=2 * GB), attempt("b", 0, 4, peak=3 * GB))
    # 12 CPU seconds on 2 CPUs; 16 + 12 GB s within 4 GB; the longest step takes 8 of 10 seconds.
    assert share(found, "CPU") == pytest.approx(0.6)
    assert share(found, "memory") == pytest.approx(0.7)
    assert share(found, "critical path") == pytest.approx(0.8)
    assert [bound.name for bound in found.bounds] == ["critical path", "memory", "CPU"]


def test_a_step_that_shared_its_cpu_counts_with_its_cpu_time() -> None:
    found = analysed(attempt("a", 0, 8, cpu=4, peak=2 * GB))
    assert share(found, "critical path") == pytest.approx(0.4)
    assert share(found, "memory") == pytest.approx(0.2)


def test_the_bound_of_a_step_that_ran_in_a_slow_mode_is_that_of_a_faster_one() -> None:
    plain = attempt("a", 0, 8, peak=2 * GB)
    gcc = replace(plain.record, step=replace(plain.record.step, collector=Collector.FREE))
    default = replace(plain, record=gcc)
    low = replace(plain, record=replace(gcc, mode=CompileMode.LOW))
    assert share(analysed(low), "critical path") < share(analysed(default), "critical path")


def test_killed_attempts_are_no_part_of_a_bound() -> None:
    lost = attempt("a", 0, 3, outcome=Outcome.PREEMPTED)
    found = analysed(lost, attempt("a", 3, 5))
    assert share(found, "CPU") == pytest.approx(0.25)
    assert (found.steps, found.lost) == (1, 1)


def test_cpu_time_is_split_without_rest() -> None:
    # 0-2 s: one step runs and another waits. 2-6 s: both run. 6-10 s: nothing runs or waits.
    # The first step computes during 5 of its 6 seconds.
    found = analysed(attempt("a", 0, 6, cpu=5, asked=0), attempt("b", 2, 4, asked=0)).cpu_time
    assert found
    assert (found.computing, found.repeated, found.stalled) == (9, 0, 1)
    assert (found.held, found.idle) == (2, 8)


def test_cpu_time_of_killed_attempts_is_repeated() -> None:
    lost = attempt("a", 0, 3, outcome=Outcome.OOM)
    found = analysed(lost, attempt("a", 3, 5)).cpu_time
    assert found
    assert (found.computing, found.repeated, found.held, found.idle) == (5, 3, None, 12)


def test_nvcc_with_threads_holds_several_cpus() -> None:
    cuda = attempt("a", 0, 10, cpu=20, role=Role.CUDA, threads=2, archs=["sm_80", "sm_90"])
    found = analysed(cuda).cpu_time
    assert found
    assert (found.computing, found.stalled, found.idle) == (20, 0, 0)


def test_overlapping_attempts_have_different_lanes() -> None:
    steps = attempt("a", 0, 4), attempt("b", 1, 5), attempt("c", 4, 1), attempt("d", 5, 1)
    assert [span.lane for span in analysed(*steps).spans] == [0, 1, 0, 0]


def graph() -> Dependencies:
    """gen -> (phony) -> a; a, b -> lib."""
    edges = (
        Edge(outputs=("gen.h", "gen.o"), rule="CUSTOM", needs=()),
        Edge(outputs=("order",), rule="phony", needs=("gen.h",)),
        Edge(outputs=("a.o",), rule="CXX", needs=("../a.cpp",), after=("order",)),
        Edge(outputs=("b.o",), rule="CXX", needs=("../b.cpp",)),
        Edge(outputs=("lib.o",), rule="LINK", needs=("a.o", "b.o")),
    )
    return Dependencies({"/src/build": edges})


def test_the_critical_path_follows_the_graph() -> None:
    steps = attempt("gen", 0, 2), attempt("b", 0, 4), attempt("a", 2, 3), attempt("lib", 5, 1)
    found = analysed(*steps, dependencies=graph())
    assert [found.spans[index].step.output for index in found.path] == ["gen.o", "a.o", "lib.o"]
    assert found.path_s == 6
    assert share(found, "critical path") == pytest.approx(0.6)


def test_without_a_graph_the_critical_path_is_the_longest_step() -> None:
    found = analysed(attempt("a", 0, 2), attempt("b", 0, 4))
    assert [found.spans[index].step.output for index in found.path] == ["b.o"]
    assert not found.has_graph


def test_a_circular_graph_counts_as_none() -> None:
    edges = (
        Edge(outputs=("a.o",), rule="CXX", needs=("b.o",)),
        Edge(outputs=("b.o",), rule="CXX", needs=("a.o",)),
    )
    assert not Dependencies({"/src/build": edges})


def test_needs_of_a_simulation_skip_what_was_not_measured() -> None:
    steps = attempt("gen", 0, 2), attempt("a", 2, 3), attempt("lib", 5, 1)
    found = records(analysed(*steps).spans, graph(), "/src")
    needs = {record.step.output: record.needs for record in found}
    assert needs == {
        "/src/build/gen.o": (),
        "/src/build/a.o": ("/src/build/gen.o",),
        "/src/build/lib.o": ("/src/build/a.o",),
    }


def test_the_accuracy_of_predictions_by_their_basis() -> None:
    steps = (
        attempt("a", 0, 2, peak=3 * GB, asked=0, needs=2 * GB, basis=Basis.FOLDER),
        attempt("b", 0, 2, peak=GB, asked=0, needs=2 * GB, basis=Basis.FOLDER),
        attempt("c", 0, 2, peak=GB, asked=0, basis=Basis.EXACT),
        attempt("d", 0, 2, peak=9 * GB, asked=0, outcome=Outcome.OOM),
        attempt("e", 0, 2),
    )
    exact, folder = analysed(*steps).accuracy
    assert (exact.basis, exact.steps, exact.ratio, exact.above) == (Basis.EXACT, 1, 1.0, 0.0)
    assert (folder.basis, folder.steps, folder.ratio, folder.above) == (Basis.FOLDER, 2, 1.0, 0.5)


def test_a_run_that_was_killed_is_analysed_as_far_as_it_went() -> None:
    run = replace(RUN, ended=None, summary=None)
    found = analyse(run, [attempt("a", 0, 4)], RecordedRun(cpus=4), NO_GRAPH)
    assert not found.complete
    assert (found.wall_s, found.cpus, found.limit, found.peak) == (4, 4, None, GB)
    assert found.bounds == ()  # those of a part of the steps say nothing about the build


def test_totals_add_up_by_target() -> None:
    steps = attempt("CMakeFiles/x.dir/a", 0, 4), attempt("CMakeFiles/x.dir/b", 0, 2)
    (total,) = analysed(*steps).targets
    assert (total.name, total.steps, total.seconds, total.byte_seconds) == ("x", 2, 6, 6 * GB)


@pytest.mark.parametrize(
    ("output", "role", "expected"),
    [
        ("caffe2/CMakeFiles/torch_cpu.dir/__/a.cpp.o", Role.CXX, "torch_cpu"),
        ("lib/libtorch_cpu.so", Role.LINK, "libtorch_cpu.so"),
        ("a.o", Role.CXX, "src/ops"),
    ],
)
def test_targets(output: str, role: Role, expected: str) -> None:
    step = Step(key="", role=role, source="src/ops/a.cpp", output=output)
    assert target_of(step) == expected


def test_profiles_are_kept() -> None:
    wanted = profile(20, 100)
    shaped = attempt("a", 0, 4)
    shaped = replace(shaped, record=replace(shaped.record, profile=wanted))
    assert analysed(shaped).spans[0].record.profile == wanted
