"""Jobs that hold locks, start compiles and wait for each other, under the governor without sockets.

Whatever they do, all of them end: nothing waits for a CPU or for memory that something holds which
waits for it.
"""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from stoker.govern.policy.adaptive import Adaptive
from stoker.govern.policy.governor import Governor
from stoker.govern.policy.memory_view import MemoryReading
from stoker.govern.policy.predict import Predictor
from stoker.govern.protocol import VERSION, Ask, Done, Usage
from stoker.model.govern import Role, Step

MIB = 1 << 20
LIMIT = 1024 * MIB
TICK = 0.5  # seconds
IDLE = 2  # ticks without CPU after which a launcher says so
ENOUGH = 400  # ticks in which nothing has happened: it never will

WORK, LOCK, UNLOCK, COMPILE, COMPILES = "work", "lock", "unlock", "compile", "compiles"
# What one job does, in order. A compile is waited for; two are started at once.
JOBS = (
    (WORK,),
    (WORK, COMPILE, WORK),
    (LOCK, WORK, UNLOCK),
    (LOCK, COMPILE, UNLOCK),
    (LOCK, COMPILES, WORK, UNLOCK, COMPILE),
    (COMPILES, WORK),
)
COMPILE_JOBS = ((WORK,), (WORK, WORK, WORK), (LOCK, WORK, UNLOCK))


class Process:
    """A launcher with its command, which does one thing in a tick."""

    def __init__(self, number: int, deeds: tuple[str, ...], memory: int, outer: "Process | None"):
        self.number, self.deeds, self.memory, self.outer = number, deeds, memory, outer
        self.identity = 0  # of the permit; 0 while it waits
        self.at = self.quiet = 0
        self.paused = False
        self.inner: list[Process] = []


class Jobs(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.processes: dict[int, Process] = {}
        self.owner: Process | None = None
        self.heard: list[tuple[int, bytes]] = []
        self.governor = Governor(
            policy=Adaptive(),
            predictor=Predictor(),
            cpus=2,
            cap=None,
            send=lambda connection, message: self.heard.append((connection, message)),
            emit=lambda event: None,  # noqa: ARG005 - as it is called
            keep=lambda run, attempt: None,  # noqa: ARG005 - as it is called
        )
        self.started = 0
        self.read()

    def read(self) -> None:
        used = sum(each.memory for each in self.processes.values() if each.identity)
        self.governor.read(MemoryReading(limit=LIMIT, used=used, oom_kills={}), self.now)

    def ask(
        self, deeds: tuple[str, ...], memory: int, outer: Process | None = None, *, jobs: int = -1
    ) -> Process:
        self.started += 1
        process = self.processes[self.started] = Process(self.started, deeds, memory, outer)
        ask = Ask(
            version=VERSION,
            run=1,
            directory="/b",
            cpus=max(0, jobs),
            command=("g++",),
            custom=jobs >= 0,
            within=outer.identity if outer else 0,
        )
        role = Role.OTHER if jobs >= 0 else Role.CXX
        step = Step(key=str(process.number), role=role, source=f"s{process.number}")
        self.governor.asked(process.number, ask, step, lambda: 0.0, self.now)
        return process

    @rule(
        deeds=st.sampled_from(JOBS),
        memory=st.integers(1, 400).map(MIB.__mul__),
        jobs=st.sampled_from((0, 2, 4, 16)),
    )
    def a_job_asks(self, deeds: tuple[str, ...], memory: int, jobs: int) -> None:
        self.ask(deeds, memory, jobs=jobs)

    @rule(deeds=st.sampled_from(COMPILE_JOBS), memory=st.integers(1, 800).map(MIB.__mul__))
    def a_compile_asks(self, deeds: tuple[str, ...], memory: int) -> None:
        self.ask(deeds, memory)

    @rule(ticks=st.integers(1, 20))
    def time_passes(self, ticks: int) -> None:
        for _ in range(ticks):
            self.tick()

    @invariant()
    def no_more_jobs_than_the_user_said(self) -> None:
        running = self.governor.state(self.now).running
        jobs = [step for step in running if step.request.jobs is not None]
        assert len(jobs) <= max((step.request.jobs or 4 for step in jobs), default=0)

    def teardown(self) -> None:
        silent = 0
        while self.processes:
            silent = 0 if self.tick() else silent + 1
            assert silent < ENOUGH, [
                (each.number, each.identity, each.deeds[each.at :], each.paused)
                for each in self.processes.values()
            ]

    def tick(self) -> bool:
        """Let half a second pass; return whether anything has happened."""
        self.now += TICK
        self.read()
        self.governor.decide(self.now)
        happened = self.listen()
        for process in list(self.processes.values()):
            if process.identity and not process.paused:
                happened |= self.advance(process)
        return happened

    def listen(self) -> bool:
        heard, self.heard = self.heard, []
        for connection, message in heard:
            word, *fields = message.split()
            process = self.processes.get(connection)
            if process is None:
                continue
            if word == b"run":
                process.identity, process.at, process.quiet = int(fields[0]), 0, 0
                self.governor.grown(connection, process.memory, process.memory, self.now)
            elif word == b"kill":
                self.leave(process)
                self.governor.stopped(connection, usage(process), self.now)
            else:
                process.paused = word == b"pause"
        return bool(heard)

    def advance(self, process: Process) -> bool:
        """Do what comes next, unless it must wait; return whether it has."""
        if process.at == len(process.deeds):
            self.end(process)
            return True
        deed = process.deeds[process.at]
        done = deed != LOCK or self.owner in (None, process)
        if deed in (COMPILE, COMPILES):
            done = False  # the end of the last one moves it on
            if not process.inner:
                count = 1 if deed == COMPILE else 2
                process.inner = [self.ask((WORK,), 300 * MIB, process) for _ in range(count)]
        if deed == LOCK and done:
            self.owner = process
        if deed == UNLOCK:
            self.owner = None
        process.at += done
        process.quiet = 0 if done else process.quiet + 1
        idle = process.quiet >= IDLE
        self.governor.grown(process.number, process.memory, process.memory, self.now, idle=idle)
        return done

    def leave(self, process: Process) -> None:
        process.identity, process.paused = 0, False
        if self.owner is process:
            self.owner = None

    def end(self, process: Process) -> None:
        self.leave(process)
        del self.processes[process.number]
        if process.outer:
            process.outer.inner.remove(process)
            if not process.outer.inner:
                process.outer.at += 1
        self.governor.ended(
            process.number, Done(status=0, signal=0, usage=usage(process), tail=b""), self.now
        )


def usage(process: Process) -> Usage:
    return Usage(wall_us=500_000, cpu_us=400_000, peak=process.memory, byte_seconds=1)


Jobs.TestCase.settings = settings(max_examples=60, stateful_step_count=12, deadline=None)
TestJobs = Jobs.TestCase
