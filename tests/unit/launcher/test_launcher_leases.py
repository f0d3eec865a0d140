"""A command of a family that is known to be short takes a place from the page without asking."""

import fcntl
import os
import signal
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from conftest import missing
from stoker.govern.server.leases import Leases, make_files, remove_files
from unit.launcher.scripted import (
    REPEATABLE,
    Conversation,
    Launch,
    ScriptedGovernor,
    Word,
    pids_in,
    result,
    until,
)

MIB = 1 << 20


class Page:
    """The files beside the governor's socket, and the governor's side of them."""

    def __init__(self, governor: ScriptedGovernor):
        self.socket = str(governor.path)
        make_files(self.socket)
        self.leases = Leases(self.socket)
        self.family = self.places = 0
        self._ends = threading.Event()
        self._beats = threading.Thread(target=self._beat)
        self._beats.start()

    def _beat(self) -> None:
        """Grant the places again and again, as a governor does."""
        while not self._ends.wait(0.02):
            self.leases.grant(self.places)

    def fall_silent(self) -> None:
        self._ends.set()
        self._beats.join()

    def close(self) -> None:
        self.fall_silent()
        self.leases.close()

    def offer(self, family: int) -> None:
        for _ in range(8):
            self.leases.note(family, peak=MIB, seconds=0.1)
        self.family = family
        self.grant(1)

    def grant(self, places: int) -> None:
        self.places = places
        until(lambda: self.leases.places == places, f"{places} places are granted")

    @contextmanager
    def occupied(self) -> Iterator[None]:
        """Hold the first place, for however long it takes: a step would soon outgrow its lease."""
        lock = struct.pack("@hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0)
        with Path(f"{self.socket}.page").open("r+b") as file:
            fcntl.fcntl(file, getattr(fcntl, "F_OFD_SETLK", 37), lock)
            yield

    def report(self) -> dict[bytes, list[bytes]]:
        """The lines of the next step that ran by a lease, by their words."""
        found: list[list[bytes]] = []

        def is_there() -> bool:
            found.extend(self.leases.reports())
            return bool(found)

        until(is_there, "a report")
        return {line.split(b"\t")[0]: line.split(b"\t")[1:] for line in found[0]}


@pytest.fixture
def page(governor: ScriptedGovernor) -> Iterator[Page]:
    made = Page(governor)
    yield made
    made.close()


@pytest.fixture
def offered(page: Page, launch: Launch, governor: ScriptedGovernor) -> Page:
    """A page that offers one place to the family of all scripts of these tests."""
    launch.script("exit 0")
    conversation = governor.accept()
    family, asked, started = map(int, conversation.expect("lease"))
    conversation.expect("ask")
    conversation.permit()
    conversation.expect("done")
    assert 0 < asked <= time.monotonic_ns() // 1000
    assert started == 0
    page.offer(family)
    return page


def asking(governor: ScriptedGovernor) -> Conversation:
    """Accept a launcher that was to take a place, and asks because it has none."""
    conversation = governor.accept()
    conversation.expect("lease")
    conversation.expect("ask")
    return conversation


def test_it_starts_without_asking_and_is_reported(
    offered: Page, launch: Launch, governor: ScriptedGovernor
) -> None:
    assert result(launch.script("echo out; echo err >&2")) == (0, b"out\n", b"err\n")
    report = offered.report()
    asked, started = int(report[b"lease"][1]), int(report[b"lease"][2])
    assert asked <= started <= time.monotonic_ns() // 1000
    assert b"echo out; echo err >&2" in report[b"ask"]
    assert report[b"done"][:2] == [b"0", b"0"]
    assert offered.leases.taken() == 0
    assert not governor.is_asked()


def test_it_waits_for_a_place(offered: Page, launch: Launch, tmp_path: Path) -> None:
    first = launch.script('echo > "$1/up"; while [ ! -e "$1/go" ]; do sleep 0.01; done', tmp_path)
    until((tmp_path / "up").exists, "the first one runs")
    second = launch.script('echo > "$1/second"', tmp_path)
    time.sleep(0.2)  # in which one that did not wait would start
    assert offered.leases.taken() == 1
    assert not (tmp_path / "second").exists()
    (tmp_path / "go").touch()
    assert result(first)[0] == 0
    assert result(second)[0] == 0
    assert (tmp_path / "second").exists()


def test_all_take_the_places_that_are_added(
    offered: Page, launch: Launch, governor: ScriptedGovernor, tmp_path: Path
) -> None:
    script = 'echo > "$1/up-$2"; while [ ! -e "$1/go-$2" ]; do sleep 0.01; done'
    first = launch.script(script, tmp_path, "first")
    until((tmp_path / "up-first").exists, "the first one runs")
    others = [launch.script(script, tmp_path, str(number)) for number in range(3)]
    offered.grant(3)
    (tmp_path / "go-first").touch()
    assert result(first)[0] == 0
    until(lambda: len(list(tmp_path.glob("up-?"))) == 3, "the others run at the same time")
    for number in range(3):
        (tmp_path / f"go-{number}").touch()
    assert [result(other)[0] for other in others] == [0, 0, 0]
    assert not governor.is_asked()


@pytest.mark.parametrize("why", ["no places", "no beat", "another family", "no page", "open page"])
def test_it_asks_if_there_is_no_lease_for_it(
    offered: Page, launch: Launch, governor: ScriptedGovernor, why: str
) -> None:
    match why:
        case "no places":
            offered.grant(0)
        case "no beat":
            offered.fall_silent()
            time.sleep(1.1)
        case "another family":
            offered.leases.note(offered.family, peak=1 << 40, seconds=0.1)
        case "no page":
            remove_files(offered.socket)
        case "open page":
            Path(f"{offered.socket}.page").chmod(0o644)
    launch.script("exit 0")
    governor.accept().expect("ask" if "page" in why else "lease")


@pytest.mark.usefixtures("offered")
def test_what_may_not_be_repeated_asks(launch: Launch, governor: ScriptedGovernor) -> None:
    launch("/bin/true")
    governor.asked()


def test_one_that_waits_asks_when_the_places_are_withdrawn(
    offered: Page, launch: Launch, governor: ScriptedGovernor
) -> None:
    with offered.occupied():
        step = launch.script("exit 0")
        time.sleep(0.2)  # in which it comes to wait, if the machine is not too busy
        offered.grant(0)
    conversation = asking(governor)
    conversation.permit()
    conversation.expect("done")
    assert result(step)[0] == 0


def test_the_governor_sends_one_that_asked_to_the_page(
    offered: Page, launch: Launch, governor: ScriptedGovernor
) -> None:
    offered.grant(0)
    step = launch.script("echo done")
    conversation = asking(governor)
    offered.grant(1)
    conversation.say("lease")
    assert result(step) == (0, b"done\n", b"")
    assert offered.report()[b"done"][:2] == [b"0", b"0"]


@pytest.mark.usefixtures("page")
def test_one_whose_page_offers_nothing_is_not_sent_there_again(
    launch: Launch, governor: ScriptedGovernor
) -> None:
    """It has opened the page of a governor that died; the next one has another."""
    step = launch.script("echo done")
    conversation = asking(governor)
    conversation.say("lease")
    conversation = governor.accept()
    conversation.expect("ask")
    conversation.permit()
    conversation.expect("done")
    assert result(step) == (0, b"done\n", b"")


@pytest.mark.parametrize("what", ["memory", "time"])
def test_one_that_outgrows_its_lease_is_governed(
    offered: Page, launch: Launch, governor: ScriptedGovernor, what: str
) -> None:
    grow = 'x=$(head -c 300000000 /dev/zero | tr "\\0" x); ' if what == "memory" else ""
    step = launch.script(f"{grow}sleep 1000")
    conversation = governor.accept()
    lease = conversation.expect("lease")
    assert int(lease[2]) > 0
    conversation.expect("ask")
    assert offered.leases.taken() == 1
    conversation.permit()
    until(lambda: offered.leases.taken() == 0, "it gives its place back")
    assert step.poll() is None
    if what == "memory":
        while int(conversation.expect("memory")[0]) < 256 * MIB:
            pass
    conversation.say("kill")
    conversation.expect("killed")
    conversation.permit()  # it may be repeated like any other
    conversation.expect("memory")


@pytest.mark.usefixtures("offered")
def test_the_governor_decides_about_one_that_failed(
    launch: Launch, governor: ScriptedGovernor, tmp_path: Path
) -> None:
    text = '[ -e "$1/before" ] && echo now && exit 0; echo > "$1/before"; echo first; exit 1'
    step = launch.script(text, tmp_path)
    conversation = governor.accept()
    assert int(conversation.expect("lease")[2]) > 0
    conversation.expect("ask")
    conversation.say("run", "7")
    conversation.expect("started")
    assert conversation.expect("done")[:2] == [b"1", b"0"]
    conversation.say("again")
    conversation.permit()
    conversation.expect("done")
    assert result(step) == (0, b"now\n", b"")


@pytest.mark.parametrize("victims", ["launcher", "keeper", "both"])
def test_a_place_returns_however_its_step_ends(
    offered: Page, launch: Launch, tmp_path: Path, victims: str
) -> None:
    step = launch.script('echo $PPID > "$1/keeper"; sleep 1000', tmp_path)
    (keeper,) = pids_in(tmp_path / "keeper", 1)
    assert offered.leases.taken() == 1
    os.kill(step.pid, signal.SIGSTOP)  # so that it notices nothing before it dies
    if victims != "launcher":
        os.kill(keeper, signal.SIGKILL)
    if victims != "keeper":
        os.kill(step.pid, signal.SIGKILL)
    os.kill(step.pid, signal.SIGCONT)
    until(lambda: offered.leases.taken() == 0, "the place is free")
    assert result(launch.script("exit 0"))[0] == 0
    assert offered.report()[b"done"][:2] == [b"0", b"0"]


def test_a_place_returns_with_the_pid_namespace_of_its_step(
    offered: Page, launch: Launch, tmp_path: Path, need: Callable[[str], str]
) -> None:
    if os.geteuid() != 0:
        missing("the right to make pid namespaces")
    first = ["sh", "-c", '"$@"; exit $?', "sh"]  # the first process of the namespace
    inside: list[Word] = [need("unshare"), "--pid", "--fork", "--kill-child", *first]
    words: list[Word] = [
        launch.compiler,
        "-c",
        'echo > "$1/up"; sleep 1000',
        "sh",
        tmp_path,
        *REPEATABLE,
    ]
    step = launch.program([*inside, launch.launcher, *words], stdout=subprocess.DEVNULL)
    until((tmp_path / "up").exists, "the command runs")
    assert offered.leases.taken() == 1
    step.kill()
    until(lambda: offered.leases.taken() == 0, "the place is free")


@pytest.mark.usefixtures("offered")
def test_a_long_command_is_reported_over_the_socket(
    launch: Launch, governor: ScriptedGovernor
) -> None:
    step = launch.script("exit 0", "x" * 5000)
    conversation = governor.accept()
    assert int(conversation.expect("lease")[2]) > 0
    assert b"x" * 5000 in conversation.expect("ask")
    conversation.expect("started")
    assert conversation.expect("done")[:2] == [b"0", b"0"]
    assert result(step)[0] == 0


def test_reports_that_have_no_space_go_over_the_socket(
    offered: Page, launch: Launch, governor: ScriptedGovernor
) -> None:
    pipe = os.open(f"{offered.socket}.reports", os.O_WRONLY | os.O_NONBLOCK)
    with suppress(BlockingIOError):
        while True:
            os.write(pipe, b"x" * 4096)
    os.close(pipe)
    step = launch.script("exit 0")
    conversation = asking(governor)
    conversation.expect("started")
    conversation.expect("done")
    assert result(step)[0] == 0


@pytest.mark.usefixtures("page")
def test_files_do_not_make_a_family(launch: Launch, governor: ScriptedGovernor) -> None:
    def family(*words: str) -> int:
        launch(launch.compiler, *words)
        return int(governor.accept().expect("lease")[0])

    one = family("-c", "a.c", "-O2", "-o", "a.o", "-MD", "-MF", "a.d")
    assert one == family("-c", "b.c", "-O2", "-o", "b.o", "-MMD", "-MF", "b.d")
    assert one != family("-c", "b.c", "-O3", "-o", "b.o", *REPEATABLE)
