"""Leases: which families get them, how many places there are, and who has them."""

import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from scripted_governor import GIB, World, done, explanation
from stoker.govern.protocol import PAGE_ROOM, VERSION, Ask, Lease
from stoker.govern.server.leases import Leases, make_files, remove_files
from stoker.model.events import StepEnds, StepStarts
from stoker.model.govern import LEASE_BYTES, Basis, Decision, Role, Step
from stoker.model.terms import RunShare, RunTerms

FAMILY = 4711
MIB = 1 << 20


def lease(asked: float = 0.0, started: float = 0.0, family: int = FAMILY) -> Lease:
    return Lease(family=family, asked=asked, started=started)


def take(path: Path, place: int) -> int:
    """Take a place as a launcher does; return the open file that has it, or raise ``OSError``."""
    file = os.open(path, os.O_RDWR)
    try:
        kind = struct.pack("@hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, place, 1, 0)
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, kind)
    except OSError:
        os.close(file)
        raise
    return file


@pytest.fixture
def leases(tmp_path: Path) -> Iterator[Leases]:
    make_files(str(tmp_path / "governor.sock"))
    made = Leases(str(tmp_path / "governor.sock"))
    made.all_cpus = 4
    yield made
    made.close()


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return tmp_path / "governor.sock.page"


@pytest.fixture
def world(leases: Leases) -> World:
    """One whose family has leases, with one run."""
    for _ in range(8):
        leases.note(FAMILY, peak=20 * MIB, seconds=0.1)
    world = World(leases=leases)
    world.governor.join(100, RunTerms(), RunShare(cpus=4, cap=None), 0.0)
    return world


def test_a_family_gets_leases_when_enough_of_it_was_short_and_small(leases: Leases) -> None:
    for _ in range(7):
        leases.note(FAMILY, peak=20 * MIB, seconds=0.1)
    assert not leases.offers(FAMILY)
    leases.note(FAMILY, peak=30 * MIB, seconds=0.1)
    assert leases.offers(FAMILY)
    assert leases.largest(FAMILY) == 30 * MIB
    assert not leases.offers(0)


@pytest.mark.parametrize(("peak", "seconds"), [(LEASE_BYTES + 1, 0.1), (MIB, 1.1)])
def test_one_that_is_large_or_long_ends_the_leases_of_its_family(
    leases: Leases, peak: int, seconds: float
) -> None:
    for _ in range(8):
        leases.note(FAMILY, peak=MIB, seconds=0.1)
    leases.note(FAMILY, peak=peak, seconds=seconds)
    assert not leases.offers(FAMILY)
    for _ in range(8):
        leases.note(FAMILY, peak=MIB, seconds=0.1)
    assert not leases.offers(FAMILY)


def test_a_family_gets_leases_when_what_started_before_was_short_too(leases: Leases) -> None:
    for second in range(9):
        leases.note(FAMILY, peak=MIB, seconds=0.1, now=1.0 + second, running=iter([0.5]))
    assert not leases.offers(FAMILY)
    leases.note(FAMILY, peak=MIB, seconds=0.1, now=10.0, running=iter([7.9]))
    assert not leases.offers(FAMILY)
    leases.note(FAMILY, peak=MIB, seconds=0.1, now=11.0, running=iter([8.1, 9.0]))
    assert leases.offers(FAMILY)


def test_no_more_families_are_remembered_than_the_page_has_room_for(leases: Leases) -> None:
    for family in range(1, PAGE_ROOM + 1):
        leases.note(family, peak=MIB, seconds=0.1)
    for _ in range(8):
        leases.note(FAMILY, peak=MIB, seconds=0.1)
    assert not leases.offers(FAMILY)


def test_a_lease_counts_as_twice_the_largest_step_that_had_one(leases: Leases) -> None:
    assert leases.claim == 64 * MIB
    for _ in range(8):
        leases.note(FAMILY, peak=50 * MIB, seconds=0.1)
    assert leases.claim == 100 * MIB
    leases.note(FAMILY, peak=LEASE_BYTES, seconds=0.1)
    assert leases.claim == LEASE_BYTES


def test_without_files_there_are_no_leases(tmp_path: Path) -> None:
    leases = Leases(str(tmp_path / "governor.sock"))
    for _ in range(8):
        leases.note(FAMILY, peak=MIB, seconds=0.1)
    leases.grant(4)
    assert (leases.offers(FAMILY), leases.places, leases.taken()) == (False, 0, 0)
    assert list(leases.reports()) == []
    leases.close()


def test_nothing_is_left_when_it_is_closed(leases: Leases, tmp_path: Path) -> None:
    leases.close()
    assert list(tmp_path.iterdir()) == []


def test_a_report_is_complete_or_not_there(leases: Leases, tmp_path: Path) -> None:
    pipe = os.open(tmp_path / "governor.sock.reports", os.O_WRONLY)
    os.write(pipe, b"lease\t1\nask\t6\ndone\t0\nlease\t2\nask")
    assert list(leases.reports()) == [[b"lease\t1", b"ask\t6", b"done\t0"]]
    os.write(pipe, b"\t6\ndone\t1\n")
    os.close(pipe)
    assert list(leases.reports()) == [[b"ask\t6", b"done\t1"]]


def test_endless_bytes_are_not_kept(leases: Leases, tmp_path: Path) -> None:
    pipe = os.open(tmp_path / "governor.sock.reports", os.O_WRONLY)
    os.write(pipe, b"x" * 5000)
    assert list(leases.reports()) == []
    os.write(pipe, b"lease\t1\nask\t6\ndone\t0\n")
    os.close(pipe)
    assert list(leases.reports()) == [[b"lease\t1", b"ask\t6", b"done\t0"]]


def test_places_that_no_step_waits_for_are_for_leases(world: World, leases: Leases) -> None:
    world.ask(7, source="large.cpp")
    world.governor.decide(1.0)
    world.governor.offer_leases(1.0, allowed=True)
    assert leases.places == 3 + 3  # half as many more than all CPUs, and one
    world.governor.offer_leases(1.0, allowed=False)
    assert leases.places == 0
    world.governor.offer_leases(4.0, allowed=True)
    assert leases.places == 0  # no step has asked for one lately


def test_those_that_wait_for_a_place_only_are_sent_to_the_page(
    world: World, leases: Leases
) -> None:
    world.ask(7, lease=lease())
    world.ask(8, lease=lease())
    world.governor.offer_leases(1.0, allowed=True)
    assert world.words(7) == world.words(8) == ["lease"]
    assert leases.places == 4 + 3
    assert not world.governor.state(1.0).waiting


def test_a_run_with_fewer_cpus_than_the_machine_keeps_to_them(world: World, leases: Leases) -> None:
    leases.all_cpus = 8
    world.ask(7, lease=lease())
    world.governor.offer_leases(1.0, allowed=True)
    assert leases.places == 4


def test_without_a_free_cpu_there_are_no_leases(world: World, leases: Leases) -> None:
    for number in range(4):
        world.ask(number, source=f"large{number}.cpp")
    world.governor.decide(1.0)
    world.governor.offer_leases(1.0, allowed=True)
    assert leases.places == 0


@pytest.mark.parametrize("why", ["another waits", "one is paused", "no memory", "runs", "deadline"])
def test_there_are_no_leases_while_others_need_the_places(
    world: World, leases: Leases, why: str
) -> None:
    match why:
        case "another waits":
            world.ask(8, source="large.cpp")
        case "one is paused":
            world.ask(8, source="large.cpp")
            world.governor.decide(1.0)
            world.policy.next = Decision(pause=(1,))
            world.governor.decide(1.0)
        case "no memory":
            world.read(used=4 * GIB - 100 * MIB)
        case "runs":
            world.governor.join(101, RunTerms(), RunShare(cpus=4, cap=None), 0.0)
        case "deadline":
            world.governor.deadlines.limit(100, 10.0, 10.0, 1.0, grace=1.0)
    world.ask(7, lease=lease())
    world.governor.offer_leases(1.0, allowed=True)
    assert leases.places == 0
    assert "lease" not in world.words(7)


def test_what_runs_by_leases_takes_places_and_memory(world: World, page: Path) -> None:
    world.ask(7, lease=lease())
    world.governor.offer_leases(1.0, allowed=True)
    files = [take(page, place) for place in (3, 0)]
    world.governor.offer_leases(1.1, allowed=True)
    state = world.governor.state(1.1)
    assert (state.cpus, state.leased) == (2, 2 * 64 * MIB)
    assert world.governor.busy
    view = world.governor.overview(100, 1.1)
    assert (len(view.running), view.waiting, view.used) == (2, 0, 2 * 32 * MIB)
    for file in files:
        os.close(file)
    world.governor.offer_leases(1.2, allowed=True)
    assert world.governor.state(1.2).cpus == 4
    world.governor.offer_leases(9.0, allowed=True)
    assert not world.governor.busy


def test_a_step_that_ran_by_a_lease_is_known(world: World) -> None:
    ask = Ask(
        version=VERSION, run=100, directory="/b", cpus=1, command=("cc",), lease=lease(1.0, 1.5)
    )
    step = Step(key="a.c", role=Role.C, source="a.c", output="a.o", compiler="cc")
    world.governor.reported(ask, step, done(peak=30 * MIB), 4.0)
    (run, attempt), (started, ended) = (
        world.kept[0],
        [event for event in world.events if isinstance(event, StepStarts | StepEnds)],
    )
    assert (run, attempt.started, attempt.record.peak_bytes) == (100, 1.5, 30 * MIB)
    assert (started.at, ended.at) == (1.5, 3.5)
    assert (explanation(world).asked, explanation(world).basis) == (1.0, Basis.LEASE)
    assert explanation(world).needs_bytes == 20 * MIB


def test_one_that_outgrew_its_lease_runs_like_any_other(world: World, leases: Leases) -> None:
    world.policy.admits = False
    world.ask(7, lease=lease(asked=0.2, started=0.4))
    assert world.words(7) == ["run"]
    world.governor.grown(7, 2 * LEASE_BYTES, 2 * LEASE_BYTES, 1.5)
    (running,) = world.governor.state(1.5).running
    assert (running.started, running.current) == (0.4, 2 * LEASE_BYTES)
    world.policy.kill = (running.id,)
    world.governor.decide(1.5)
    assert world.words(7) == ["run", "kill"]
    world.governor.ended(7, done(peak=2 * LEASE_BYTES), 2.0)
    assert not leases.offers(FAMILY)


def test_a_step_that_is_known_to_be_large_has_no_lease(world: World, leases: Leases) -> None:
    world.build("large.cpp", {0.5: LEASE_BYTES + 1})
    world.ask(7, source="large.cpp", lease=lease())
    assert not leases.offers(FAMILY)
    world.governor.offer_leases(1.0, allowed=True)
    assert (leases.places, world.words(7)) == (0, [])


def test_one_that_has_outgrown_its_lease_ends_those_of_its_family(
    world: World, leases: Leases
) -> None:
    world.ask(7, lease=lease(asked=0.2, started=0.4))
    assert not leases.offers(FAMILY)


@pytest.mark.parametrize(("bytes_", "now"), [(LEASE_BYTES + 1, 1.5), (MIB, 2.1)])
def test_one_that_runs_large_or_long_ends_the_leases_of_its_family(
    world: World, leases: Leases, bytes_: int, now: float
) -> None:
    world.ask(7, lease=lease())
    world.governor.decide(1.0)
    world.governor.grown(7, bytes_, bytes_, now)
    world.governor.offer_leases(now, allowed=True)
    assert not leases.offers(FAMILY)


class Launchers(RuleBasedStateMachine):
    """Launchers take places, give them back and die in any order; the governor grants and
    withdraws. What it counts is always what they have.
    """

    folder: Path

    def __init__(self) -> None:
        super().__init__()
        self.socket = str(self.folder / "model.sock")
        make_files(self.socket)
        self.leases = Leases(self.socket)
        self.holders: dict[int, list[int]] = {}  # by place: the processes that have the file open

    def teardown(self) -> None:
        for files in self.holders.values():
            for file in files:
                os.close(file)
        self.leases.close()
        remove_files(self.socket)

    @rule(places=st.integers(0, 6))
    def grant(self, places: int) -> None:
        self.leases.grant(places)

    @precondition(lambda self: self.leases.places)
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, self.leases.places - 1))
        try:
            file = take(Path(f"{self.socket}.page"), place)
        except OSError:
            assert place in self.holders
        else:
            assert place not in self.holders
            self.holders[place] = [file, os.dup(file)]  # launcher and keeper

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        place = data.draw(st.sampled_from(sorted(self.holders)))
        unlock = struct.pack("@hhqqi4x", fcntl.F_UNLCK, os.SEEK_SET, place, 1, 0)
        files = self.holders.pop(place)
        fcntl.fcntl(files[0], fcntl.F_OFD_SETLK, unlock)
        for file in files:
            os.close(file)

    @precondition(lambda self: self.holders)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        """One of the two processes of a step dies; its place is free when both have."""
        place = data.draw(st.sampled_from(sorted(self.holders)))
        os.close(self.holders[place].pop())
        if not self.holders[place]:
            del self.holders[place]

    @invariant()
    def the_count_is_right(self) -> None:
        assert self.leases.taken() == len(self.holders)


def test_the_count_of_places_is_right_in_any_order(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    Launchers.folder = tmp_path_factory.mktemp("leases")
    run_state_machine_as_test(
        Launchers, settings=settings(max_examples=60, stateful_step_count=30, deadline=None)
    )
