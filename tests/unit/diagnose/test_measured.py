"""What the governor measured decides whether memory ran out."""

from io import BytesIO

from msgspec.structs import replace

from governed_steps import run_summary
from stoker.diagnose.about import About
from stoker.diagnose.measured import Measured, of_attempts, of_summary, with_measured
from stoker.diagnose.sieve import read_log
from stoker.diagnose.texts import sureness
from stoker.diagnose.values import Diagnosis, FailedRun, Status
from stoker.diagnose.verdict import diagnose, merged
from stoker.model.govern import Role, Step, StepRecord
from stoker.model.runs import Attempt, Outcome, RunSummary

GIBIBYTE = 1024**3


def of_log(*lines: str) -> Diagnosis:
    return diagnose(read_log(BytesIO("\n".join(lines).encode())))


def attempt(outcome: Outcome, role: Role = Role.CUDA, key: str = "a") -> Attempt:
    step = Step(key=key, role=role, source=f"csrc/{key}.cu")
    record = StepRecord(step=step, wall_s=30.0, cpu_s=20.0, peak_bytes=7 * GIBIBYTE)
    return Attempt(record=record, started=0.0, outcome=outcome, status=137)


def summary(status: int, oom_kills: int) -> RunSummary:
    most = 8 * GIBIBYTE
    return run_summary(status=status, oom_kills=oom_kills, peak_bytes=most, limit_bytes=most)


def test_what_a_log_hints_at_is_certain_when_the_counter_moved() -> None:
    log = of_log("nvcc error   : 'cicc' died due to signal 9 (Kill signal)")
    found = with_measured(log, of_summary(summary(1, 2)), About()).findings[0]
    assert (found.cause, found.confidence) == ("oom-nvcc", 1.0)
    assert found.evidence[0].line == 0
    assert "killed 2 processes" in found.evidence[0].text
    assert "8 GiB of 8 GiB" in found.evidence[0].text.replace(".0", "")


def test_a_process_that_was_killed_in_a_run_with_enough_memory_is_only_a_guess() -> None:
    log = of_log("g++: fatal error: Killed signal terminated program cc1plus")
    assert log.findings[0].confidence > 0.8
    measured = of_summary(summary(1, 0))
    assert with_measured(log, measured, About()) == log  # near its limit
    few = replace(measured, peak=GIBIBYTE)
    found = with_measured(log, few, About()).findings[0]
    assert (found.cause, sureness(found)) == ("oom-host-compiler", "a guess")
    assert "killed no process" in found.evidence[0].text
    assert "1.0 GiB of 8.0 GiB" in found.evidence[0].text
    exhausted = of_log("cc1plus: out of memory allocating 65536 bytes after a total of 0 bytes")
    assert with_measured(exhausted, few, About()) == exhausted  # by a limit of its own


def test_a_step_whose_last_attempt_was_killed_is_the_cause_whatever_the_log_says() -> None:
    measured = of_attempts([attempt(Outcome.OOM)], summary(1, 1))
    found = with_measured(of_log("a.cpp:1:2: error: what"), measured, About())
    assert found.status is Status.FAILED
    assert (found.findings[0].cause, found.findings[0].confidence) == ("oom-nvcc", 1.0)
    assert any("csrc/a.cu" in evidence.text for evidence in found.findings[0].evidence)


def test_the_host_compiler_is_told_from_nvcc() -> None:
    measured = of_attempts([attempt(Outcome.OOM, Role.CXX)], summary(1, 1))
    assert with_measured(merged([]), measured, About()).findings[0].cause == "oom-host-compiler"


def test_a_kill_that_was_made_good_is_not_the_cause_of_another_failure() -> None:
    attempts = [attempt(Outcome.OOM), attempt(Outcome.DONE)]
    log = of_log("nvcc fatal   : Unsupported gpu architecture 'compute_30'")
    found = with_measured(log, of_attempts(attempts, summary(1, 1)), About()).findings
    assert [one.cause for one in found] == ["unsupported-gpu-arch-dropped"]


def test_a_run_that_ended_well_has_no_cause() -> None:
    measured = of_attempts([attempt(Outcome.OOM), attempt(Outcome.DONE)], summary(0, 1))
    assert with_measured(merged([]), measured, About()).status is Status.NOTHING_FAILED


def test_a_failed_step_without_a_log_is_unknown_but_named() -> None:
    found = with_measured(
        merged([]), of_attempts([attempt(Outcome.FAILED)], summary(1, 0)), About()
    )
    assert found.status is Status.UNKNOWN
    assert "csrc/a.cu" in found.unexplained[0].text


def test_without_measurements_the_log_has_the_word() -> None:
    log = of_log("a.cpp:1:2: error: what")
    assert with_measured(log, Measured(), About()) == log


def test_fewer_steps_at_once_are_no_answer_where_one_alone_ran_out_of_memory() -> None:
    about = About(run=FailedRun(command="ninja"))
    log = diagnose(
        read_log(BytesIO(b"g++: fatal error: Killed signal terminated program cc1plus\n")),
        about=about,
    )
    assert "--cpus" in str(log.findings[0].advice)
    measured = of_attempts([attempt(Outcome.OOM, Role.CXX)], summary(1, 1))
    fix = with_measured(log, measured, about).findings[0].advice
    assert "7.0 GiB of 8.0 GiB" in fix[0].text
    assert not any(word in str(fix) for word in ("--cpus", "MAX_JOBS"))
    small = replace(measured, limit=64 * GIBIBYTE)
    assert "--cpus" in str(with_measured(log, small, about).findings[0].advice)
