"""Launchers in a pid namespace of their own, where /proc may show ids of another namespace."""

import signal
from pathlib import Path

import pytest

from conftest import Need, as_root
from unit.launcher.scripted import (
    Launch,
    ScriptedGovernor,
    alive,
    children,
    process_and_namespace,
    result,
    until,
)

pytestmark = as_root
# Numbers of the innermost namespace; the shell, its child and an orphan in a session of its own.
TREE = "sleep 1000 & sh -c 'setsid sleep 1000 &'; echo > \"$1\"; wait"


@pytest.fixture(params=[[], ["--mount-proc"]], ids=["outer /proc", "own /proc"])
def inside(request: pytest.FixtureRequest, need: Need) -> list[str]:
    """The words before a command that bring it into a new namespace."""
    return [need("unshare"), "--pid", "--fork", "--kill-child", *request.param]


def below(pid: int) -> list[int]:
    found = children(pid)
    return [*found, *(each for child in found for each in below(child))]


def test_a_command_runs_there(
    launch: Launch, governor: ScriptedGovernor, inside: list[str]
) -> None:
    """Behind the shell of a builder, whose death would be the launcher's."""
    governor.permit_everything()
    script = f"sleep 0.3 & sleep 0.2 & {launch.launcher} sh -c 'sleep 0.6; exit 3'; exit $?"
    process = launch.program([*inside, "sh", "-c", f"sh -c '{script.replace(chr(39), chr(34))}'"])
    assert result(process) == (3, b"", b"")


def test_its_memory_is_measured(
    launch: Launch, governor: ScriptedGovernor, inside: list[str]
) -> None:
    text = "import time; memory = b'x' * (64 << 20); time.sleep(0.5)"
    launch.program([*inside, launch.launcher, "python3", "-I", "-S", "-c", text])
    step = governor.permitted()
    _, _, _, _, peak, *_ = step.expect("done")
    assert 64 << 20 <= int(peak) < 256 << 20


def test_it_is_killed_there_and_nothing_else_is(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path, inside: list[str]
) -> None:
    beside = "for i in 1 2 3 4 5 6 7 8; do sleep 1000 & done"
    command = f'{launch.launcher} sh -c "$0" sh {tmp_path}/up & wait $!'
    outside = launch.program([*inside, "sh", "-c", f"{beside}; {command}", TREE])
    step = governor.asked()
    keeper = step.permit()
    until((tmp_path / "up").exists, "the command runs")
    tree = below(keeper)
    assert len(tree) == 3
    bystanders = [pid for pid in below(outside.pid) if pid not in (keeper, *tree)]
    step.say("pause")
    step.say("resume")
    step.kill()
    assert not any(alive(pid) for pid in (keeper, *tree))
    assert all(alive(pid) for pid in bystanders)


def test_a_run_in_another_namespace_is_not_looked_for(
    launch: Launch, governor: ScriptedGovernor, inside: list[str]
) -> None:
    """Its number may be that of any process here, which may end at any time."""
    governor.permit_everything()
    launch.environment["STOKER_PROCESS"] = process_and_namespace(3)
    script = f"sleep 0.3 & sleep 0.3 & {launch.launcher} sleep 1; echo status $?"
    assert result(launch.program([*inside, "sh", "-c", script])) == (0, b"status 0\n", b"")


def test_numbers_for_a_signal_never_come_from_a_message(
    launch: Launch, governor: ScriptedGovernor
) -> None:
    process = launch("/bin/sleep", "1000")
    step = governor.asked()
    step.say("run", "7")
    assert step.expect("started") == []
    assert step.keeper == children(process.pid)[0]
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == -signal.SIGTERM
