"""Comparing two runs: matching steps, and reasons for differences."""

from collections.abc import Sequence

from stoker.model.govern import Role, Step, StepRecord
from stoker.model.runs import Attempt, Outcome, Run
from stoker.report.analysis import RecordedRun, analyse
from stoker.report.comparison import compare_runs
from stoker.report.dependencies import Dependencies
from stoker.report.reported import Comparison, RunAnalysis


def step(
    name: str,
    *,
    output: str | None = None,
    seconds: float = 10.0,
    cpu: float | None = None,
    peak: int = 10**9,
    key: str = "",
    compiler: str = "c++",
    flags: Sequence[str] = (),
    archs: Sequence[str] = (),
    role: Role = Role.CXX,
    inputs: int = 0,
) -> Attempt:
    made = Step(
        key=key or name,
        role=role,
        source=name,
        output=f"{name}.o" if output is None else output,
        compiler=compiler,
        flags=tuple(flags),
        archs=tuple(archs),
        input_bytes=inputs,
    )
    record = StepRecord(
        step=made, wall_s=seconds, cpu_s=seconds if cpu is None else cpu, peak_bytes=peak
    )
    return Attempt(record=record, started=0.0, outcome=Outcome.DONE)


def analysed(*steps: Attempt) -> RunAnalysis:
    run = Run(id=1, started=0.0, ended=None, command="", directory="/", summary=None)
    return analyse(run, steps, RecordedRun(), Dependencies({}))


def compared(before: Sequence[Attempt], after: Sequence[Attempt]) -> Comparison:
    return compare_runs(analysed(*before), analysed(*after))


def reasons(before: Attempt, after: Attempt) -> tuple[str, ...]:
    (change,) = compared([before], [after]).changes
    return change.why


def test_figures_are_after_minus_before() -> None:
    (change,) = compared([step("a")], [step("a", seconds=13, peak=3 * 10**9)]).changes
    assert (change.cpu_s, change.seconds, change.peak) == (3, 3, 2 * 10**9)


def test_steps_of_one_run_only_are_listed_apart() -> None:
    found = compared([step("a"), step("old")], [step("a"), step("new")])
    assert (len(found.changes), found.added, found.removed) == (1, (1,), (1,))


def test_a_step_with_another_output_is_found_by_its_source() -> None:
    found = compared([step("a", output="x.o")], [step("a", output="y.o")])
    assert len(found.changes) == 1


def test_a_source_that_two_steps_compile_is_not_mixed_up() -> None:
    before = [step("a", output="x.o"), step("a", output="y.o", seconds=20)]
    after = [step("a", output="y.o", seconds=21), step("a", output="x.o")]
    assert sorted(change.cpu_s for change in compared(before, after).changes) == [0, 1]


def test_flags_compilers_and_gpu_targets_that_differ_are_named() -> None:
    before = step("a", key="1", flags=("-O2", "-g"), archs=("sm_80",))
    after = step("a", key="2", flags=("-O3", "-g"), archs=("sm_80", "sm_90"), compiler="clang++")
    assert reasons(before, after) == (
        "compiler: c++ before, clang++ now",
        "GPU targets added: sm_90",
        "flags added: -O3",
        "flags removed: -O2",
    )


def test_differences_are_summed_up_over_steps() -> None:
    before = [step("a", key="1"), step("b", key="2"), step("c", key="3")]
    after = [
        step("a", key="4", flags=["-O3"], seconds=13),
        step("b", key="5", flags=["-O3"], seconds=14, peak=3 * 10**9),
        step("c", key="6", compiler="clang++", seconds=9),
    ]
    flags, compiler = compared(before, after).causes
    assert (flags.text, flags.steps, flags.cpu_s, flags.peak) == (
        "flags added: -O3",
        2,
        7,
        2 * 10**9,
    )
    assert (compiler.steps, compiler.cpu_s) == (1, -1)


def test_many_flags_are_shortened() -> None:
    (text,) = reasons(step("a", key="1"), step("a", key="2", flags=[f"-D{n}" for n in range(9)]))
    assert text == "flags added: -D0 -D1 -D2 -D3 -D4 -D5 and 3 more"


def test_larger_inputs_of_a_link_are_named() -> None:
    before = step("lib", role=Role.LINK, inputs=10 << 20)
    assert "inputs: 10.0 MiB before, 20.0 MiB now" in reasons(
        before, step("lib", role=Role.LINK, inputs=20 << 20)
    )


def test_the_same_command_is_told_from_busier_cpus() -> None:
    before = step("a", seconds=10, cpu=10)
    (text,) = reasons(before, step("a", seconds=15, cpu=10))
    assert text == "same command and CPU time: the CPUs or disks were shared differently"
    (text,) = reasons(before, step("a", seconds=15, cpu=15))
    assert text == "same command: its source, a header or the speed of the machine changed"
    assert reasons(before, step("a", seconds=10.1, cpu=10.1)) == ()
