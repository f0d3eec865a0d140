"""A governor without sockets, with a policy that tests script."""

from collections.abc import Callable, Mapping

import pytest

from stoker.govern.policy.governor import Governor
from stoker.govern.policy.memory_view import MemoryReading
from stoker.govern.policy.predict import Predictor
from stoker.govern.protocol import VERSION, Ask, Done, Lease, Usage
from stoker.govern.server.leases import Leases
from stoker.model.events import AnyEvent
from stoker.model.govern import Collector, Decision, Role, State, Step
from stoker.model.runs import Attempt, Explanation
from stoker.model.terms import Gc

GIB = 1024**3
# What a driver says whose compiler was killed.
KILLED = b"g++: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.\n"


class Scripted:
    """A policy that admits every step and kills the steps that a test names."""

    name = "scripted"

    def __init__(self) -> None:
        self.kill: tuple[int, ...] = ()
        self.admits = True
        self.tries = False
        self.next: Decision | None = None

    def decide(self, state: State) -> Decision:
        if self.next is not None:
            decision, self.next = self.next, None
            return decision
        kill, self.kill = self.kill, ()
        waiting = tuple(request.id for request in state.waiting)
        if self.tries:
            return Decision(on_trial=waiting, kill=kill)
        return Decision(admit=waiting if self.admits else (), kill=kill)


class World:
    """A governor with everything it sends, emits and keeps."""

    def __init__(self, cap: int | None = None, gc: Gc = Gc.AUTO, leases: Leases | None = None):
        self.policy = Scripted()
        self.sent: list[tuple[int, bytes]] = []
        self.events: list[AnyEvent] = []
        self.kept: list[tuple[int, Attempt]] = []
        self.governor = Governor(
            policy=self.policy,
            predictor=Predictor(),
            cpus=4,
            cap=cap,
            send=lambda connection, message: self.sent.append((connection, message)),
            emit=self.events.append,
            keep=lambda run, attempt: self.kept.append((run, attempt)),
            gc=gc,
            leases=leases,
        )
        self.read()

    def read(self, used: int = GIB, kills: int = 0, now: float = 0.0) -> None:
        self.read_kills({100: kills}, used, now)

    def read_kills(self, kills: Mapping[int, int], used: int = GIB, now: float = 0.0) -> None:
        self.governor.read(MemoryReading(limit=4 * GIB, used=used, oom_kills=kills), now)

    def ask(
        self,
        connection: int = 7,
        run: int = 100,
        *,
        source: str = "a.cpp",
        path: Callable[[], float] = lambda: 0.0,
        custom: bool = False,
        once: str = "",
        remote: bool = False,
        within: int = 0,
        collector: Collector = Collector.NONE,
        command: tuple[str, ...] = (),
        archs: tuple[str, ...] = (),
        lease: Lease | None = None,
    ) -> None:
        ask = Ask(
            version=VERSION,
            run=run,
            directory="/b",
            cpus=0 if custom else 1,
            command=command or ("g++", source),
            custom=custom,
            once=once,
            remote=remote,
            within=within,
            lease=lease,
        )
        step = Step(
            key=source,
            role=Role.CUDA if archs else Role.CXX,
            source=source,
            output=f"{source}.o",
            compiler="g++",
            archs=archs,
            collector=collector,
        )
        self.governor.asked(connection, ask, step, path, 1.0)

    def build(self, source: str, memory: Mapping[float, int]) -> None:
        """A step of 2 s that uses so much from those ages on."""
        self.ask(99, source=source)
        self.governor.decide(1.0)
        for age, current in memory.items():
            self.governor.grown(99, current, current, 1.0 + age)
        self.governor.ended(99, done(), 3.0)

    def words(self, connection: int = 7) -> list[str]:
        return [
            message.split(b"\t")[0].strip().decode() for c, message in self.sent if c == connection
        ]


def usage(peak: int = 100) -> Usage:
    return Usage(wall_us=2_000_000, cpu_us=1_500_000, peak=peak, byte_seconds=150)


def done(status: int = 0, signal: int = 0, tail: bytes = b"", peak: int = 100) -> Done:
    return Done(status=status, signal=signal, usage=usage(peak), tail=tail)


def explanation(world: World, number: int = 0) -> Explanation:
    found = world.kept[number][1].explanation
    assert found is not None
    return found


@pytest.fixture
def world() -> World:
    return World()
