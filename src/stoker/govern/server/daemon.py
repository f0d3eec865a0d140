"""The governor's process: protocol, clock, meter and history around the state machine.

There is one governor for each user, binding memory limit, pid namespace and boot. It starts with
the first step of a `stoker run`, which listens in its place until then (processes.py), and exits
with the last run. Launchers use the wire protocol; a `stoker run` uses it too, as ``client``, and
gets events. The governor starts no processes, and kills only process groups of commands whose
launcher is gone.

A launcher that has received nothing for a while sends ``ping``, to check that the governor lives.
"""

import gc
import os
import resource
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path

import msgspec
from msgspec.structs import replace

from stoker.govern.command_line import reads_files
from stoker.govern.policy.governor import Governor
from stoker.govern.policy.interface import parse_policy
from stoker.govern.policy.memory_view import MemoryReading
from stoker.govern.policy.policies import make_policy
from stoker.govern.protocol import (
    Ask,
    Lease,
    ProtocolError,
    decode,
    encode,
    read_ask,
    read_done,
    read_lease,
    read_numbers,
    read_usage,
)
from stoker.govern.server.activation import BACKLOG, LOCK
from stoker.govern.server.build_files import BuildFiles, StepReader, asked_step
from stoker.govern.server.connections import Connections, Peer
from stoker.govern.server.graph import Graphs
from stoker.govern.server.leases import Leases
from stoker.govern.server.peers import Keeper, process_behind
from stoker.govern.server.runs import Runs
from stoker.machine.memory import Meter
from stoker.model.events import TargetsDiffer
from stoker.model.govern import Step
from stoker.model.runs import Attempt
from stoker.model.terms import GovernorOptions, NvccThreads, RunShare, RunTerms
from stoker.model.value import prepared
from stoker.outside import locks
from stoker.outside.deleting import remove_file, remove_tree

_COLLECT_EVERY = 20_000  # new objects; a step leaves no cycles behind
_PRIORITY = -10  # as `nice` counts; only root may have it
_TICK = 0.1  # seconds between ticks while a step runs
# Bytes a second by which a compiler may grow, and the share of the free memory by which all of them
# may grow until the meter is read again.
_GROWTH = 2e9
_SHARE_UNREAD = 0.1
_FRESH = 0.02  # seconds for which a reading of the meter is valid at least, and at most a tick
# Connections that are read before the governor decides, and looks again which have said something:
# all of ninja's window asks at once, and steps can start and end before the last of them was read.
_HEARD = 16
_TICK_AT_THE_END = 0.01  # seconds between checks whether the history has a run
_VIEW = 0.25  # seconds between overviews
_EVENTS = 0.1  # seconds for which events are collected, because each message wakes the run
_FIRST_CLIENT_TIMEOUT_S = 30.0  # a governor without clients ends after this time
_FORGOTTEN = 7 * 86400.0  # seconds after which no launcher takes turns any more
_KEEPER_TIMEOUT_S = 1.0  # seconds for a keeper to kill what its dead launcher had started


class Daemon:
    """Serves launchers and runs over their sockets until the last run has ended.

    It passes every message to the ``Governor`` with the time, sends what that decides, and writes
    what was measured to the history. A launcher that sends a message that is not in the protocol
    loses its connection; the other connections are not affected. If a launcher disappears while its
    command runs, the daemon kills the command's process group.
    """

    def __init__(
        self,
        options: GovernorOptions,
        listener: socket.socket,
        clients: Sequence[socket.socket] = (),
    ):
        """Prepare to serve. ``clients`` are connections that exist already; they greet before any
        launcher asks.
        """
        self._options = options
        self._listener = listener
        self._connections = Connections(listener, clients)
        self._runs = Runs(options, self._connections.send)
        self._meter = Meter()
        predictor = self._runs.predictor()
        self._graphs = Graphs(predictor.durations)
        self._files = BuildFiles()
        self._reader = StepReader[tuple[Peer, Ask]]()
        self._leases = Leases(options.socket)
        self._governor = Governor(
            policy=make_policy(options.policy, cpus=options.cpus),
            predictor=predictor,
            cpus=options.cpus,
            cap=options.cap,
            send=self._send,
            emit=self._runs.emit,
            keep=self._keep,
            gc=options.gc,
            nvcc_threads=options.nvcc_threads is NvccThreads.AUTO,
            # The other policies limit what runs by rules of their own.
            leases=self._leases if parse_policy(options.policy)[0] == "adaptive" else None,
        )
        self._connections.wake_for(self._reader.fileno())
        self._orphans: deque[tuple[float, Keeper]] = (
            deque()
        )  # process groups, and when to kill them
        self._began = time.monotonic()
        self._viewed = self._metered = self._told_clients = 0.0
        self._fresh = _FRESH  # seconds for which the last reading is valid
        self._had_clients = False

    def serve(self) -> None:
        """Serve until the last client is gone."""
        if not self._connections.peers:
            self._connections.open()
        try:
            while self._runs or not (self._had_clients or self._now() > _FIRST_CLIENT_TIMEOUT_S):
                heard = self._connections.wait(self._pause())
                for (peer, ask), step in self._reader.take():
                    if not peer.closed:  # it may have closed meanwhile
                        self._told(peer, ask, step)
                for peer in heard[:_HEARD]:
                    if not peer.closed:  # by an earlier one
                        self._hear(peer)
                self._turn()
        finally:
            remove_file(Path(self._options.socket))
            self._leases.close()
            self._listener.close()
        if self._orphans:
            time.sleep(_KEEPER_TIMEOUT_S)
        self._bury_orphans(inf)
        self._runs.close()

    def _pause(self) -> float:
        """Return the seconds until the next tick, if no message arrives."""
        if any(run.is_finishing for run in self._runs):
            return _TICK_AT_THE_END
        waiting = any(run.client.unsent for run in self._runs)
        return _TICK if self._governor.busy or waiting else 1.0

    def _turn(self) -> None:
        """Act after each batch of messages and each tick: decide, send overviews and summaries."""
        now = self._now()
        for run, steps in self._graphs.news():
            if served := self._runs.get(run):
                served.work.expect(steps)
                expected = {output: each.seconds for output, each in steps.items()}
                self._governor.deadlines.expect(run, expected, now)
            self._governor.reconsider()
        self._take_reports(now)
        if self._governor.busy:
            if now - self._metered >= self._fresh:
                self._read_meter()
            plain = all(served.compiles_anything for served in self._runs)
            self._governor.offer_leases(now, allowed=plain)
            if self._governor.changed:
                self._governor.decide(now)
        self._bury_orphans(now)
        if now - self._viewed >= _VIEW:
            self._viewed = now
            self._view(now)
        self._runs.send_summaries(now)
        if now - self._told_clients >= _EVENTS:
            self._told_clients = now
            self._runs.send_events()

    def _view(self, now: float) -> None:
        """Tell each run how far it is."""
        self._runs.count_cpu()
        for served in self._runs:
            served.work.made(self._graphs.made(served.number))
        self._governor.work_left = sum(served.work.work for served in self._runs)
        for served in self._runs:
            view = self._governor.overview(served.number, now)
            self._runs.emit(served.overview(view, now))
        self._runs.warn(now)

    def _take_reports(self, now: float) -> None:
        """Take in the steps that have run by leases. A report that is wrong is left out."""
        for lines in self._leases.reports():
            try:
                said = dict(map(decode, lines))
                ask, done = read_ask(said["ask"]), read_done(said["done"])
                ask = self._with_lease(ask, read_lease(said["lease"]))
            except (ProtocolError, KeyError) as error:
                sys.stderr.write(f"protocol error in a report: {error}\n")
                continue
            if served := self._runs.get(ask.run):
                served.work.asked(now)
                self._governor.reported(ask, asked_step(ask, served.root, self._files), done, now)

    def _with_lease(self, ask: Ask, lease: Lease) -> Ask:
        """Return the request with what its launcher says about leases, in our time."""
        now = self._now()
        started = min(now, max(1e-6, lease.started - self._began)) if lease.started else 0.0
        asked = min(started or now, max(0.0, lease.asked - self._began))
        return replace(ask, lease=replace(lease, asked=asked, started=started))

    def _bury_orphans(self, now: float) -> None:
        while self._orphans and self._orphans[0][0] <= now:  # they are in the order of their times
            _, keeper = self._orphans.popleft()
            keeper.kill_group()
            keeper.close()

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _read_meter(self) -> None:
        self._metered = self._now()
        reading = self._meter.reading()
        kills = self._runs.oom_kills()
        limit = max(0, reading.limit.limit - self._options.keep_free)
        unread = _SHARE_UNREAD * (limit - reading.limit.used) / (_GROWTH * self._options.cpus)
        self._fresh = min(_TICK, max(_FRESH, unread))
        self._governor.read(
            MemoryReading(
                limit=limit,
                used=reading.limit.used,
                oom_kills=kills,
                pressure=reading.pressure.full if reading.pressure else 0.0,
            ),
            self._now(),
        )
        for served in self._runs:
            served.tally.read(
                used=self._governor.used_by(served.number),
                limit=self._governor.limit_of(served.number),
                oom_kills=kills.get(served.number),
            )

    def _hear(self, peer: Peer) -> None:
        lines = peer.lines()
        if lines is None:
            self._close(peer)
            return
        try:
            for line in lines:
                self._understand(peer, *decode(line))
                if peer.over:
                    self._close(peer)
                    return
        except ProtocolError as error:
            # Any other exception is a bug: it ends the governor, with a traceback in its log.
            sys.stderr.write(f"protocol error: {error}\n")
            self._close(peer)

    def _understand(self, peer: Peer, word: str, fields: tuple[bytes, ...]) -> None:
        connection, now = peer.connection, self._now()
        match word:
            case "ask":
                self._asked(peer, read_ask(fields))
            case "lease":
                peer.lease = read_lease(fields)
            case "started":
                pass  # only the descriptor that came with it matters
            case "ping":
                self._connections.send(peer, encode("pong"))
            case "memory":
                current, peak, idle = read_numbers(fields, 3)
                self._governor.grown(connection, current, peak, now, idle=bool(idle))
            case "done":
                done = read_done(fields)
                if done.status or done.signal:
                    self._read_meter()  # the counter of OOM kills must be current
                # After a success the launcher exits without waiting for an answer.
                peer.over = not self._governor.ended(connection, done, now)
            case "killed":
                self._governor.stopped(connection, read_usage(fields), now)
            case "client":
                self._welcome(peer, fields)
            case "finish":
                self._finish(peer, fields)
            case _:
                raise ProtocolError(f"an unknown word: {word!r:.80}")

    def _asked(self, peer: Peer, ask: Ask) -> None:
        if peer.asked:
            raise ProtocolError("a second ask on one connection")
        peer.asked = True
        if peer.lease:
            ask = self._with_lease(ask, peer.lease)
        served = self._runs.get(ask.run)
        root = served.root if served else ask.directory
        if not ask.custom and reads_files(ask.command, ask.directory, self._files.knows):
            self._reader.put((peer, ask), partial(asked_step, ask, root, self._files))
        else:
            self._told(peer, ask, asked_step(ask, root, self._files))

    def _told(self, peer: Peer, ask: Ask, step: Step) -> None:
        """Pass a request to the governor, after its command line was read."""
        now = self._now()
        if self._refused(peer, ask.run, step, now):
            return
        asker = process_behind(peer.socket)
        path = partial(self._graphs.path, ask.run, ask.directory, step.output, asker)
        if served := self._runs.get(ask.run):
            served.work.asked(now)
        self._governor.asked(peer.connection, ask, step, path, now)

    def _refused(self, peer: Peer, run: int, step: Step, now: float) -> bool:
        """End a step that compiles for other GPU targets than the run's plan; return whether."""
        served = self._runs.get(run)
        event = served.judge(step, now) if served else None
        if event is not None:
            self._runs.emit(event)
        if not isinstance(event, TargetsDiffer):
            return False
        self._connections.send(peer, encode("end"))
        self._close(peer)
        return True

    def _close(self, peer: Peer) -> None:
        self._connections.close(peer)
        unfinished = self._governor.lost(peer.connection)
        if peer.keeper and unfinished:
            # The keeper also notices and kills more than the group; this is in case it died.
            self._orphans.append((self._now() + _KEEPER_TIMEOUT_S, peer.keeper))
        elif peer.keeper:
            peer.keeper.close()
        if peer.run is not None:
            self._abandon(peer.run)

    def _welcome(self, peer: Peer, fields: tuple[bytes, ...]) -> None:
        (run,) = read_numbers(fields, 1)
        if len(fields) < 3 or peer.run is not None or self._runs.get(run):
            raise ProtocolError(f"client {run} cannot greet like that, or has done so before")
        command, directory = (field.decode(errors="surrogateescape") for field in fields[1:3])
        terms = _terms(fields[3]) if fields[3:] else RunTerms()
        share = terms.share or RunShare(cpus=self._options.cpus, cap=self._options.cap)
        now = self._now()
        peer.run, self._had_clients = run, True
        self._governor.join(run, terms, share, now)
        self._runs.start(peer, run, command, directory, terms, share, now)
        self._read_meter()
        self._connections.open()

    def _finish(self, peer: Peer, fields: tuple[bytes, ...]) -> None:
        served = self._runs.get(peer.run) if peer.run is not None else None
        if served is None:
            raise ProtocolError("finish of no client")
        status, cache_hits = read_numbers(fields, 2)
        written_bytes = read_numbers(fields[2:], 1)[0] if fields[2:] else None
        self._take_reports(self._now())
        self._read_meter()
        self._runs.count_cpu()
        served.finish(status, cache_hits, written_bytes, self._now())

    def _abandon(self, run: int) -> None:
        """End all steps of a run that is gone, and forget the run."""
        for connection in self._governor.steps_of(run):
            if launcher := self._connections.peers.get(connection):
                self._connections.send(launcher, encode("end"))
                self._close(launcher)
        self._graphs.forget(run)
        self._governor.forget(run)
        self._runs.remove(run)

    def _send(self, connection: int, message: bytes) -> None:
        self._connections.send(self._connections.peers[connection], message)

    def _keep(self, run: int, attempt: Attempt) -> None:
        if served := self._runs.get(run):
            served.add(attempt)


def _terms(field: bytes) -> RunTerms:
    try:
        return msgspec.json.decode(field, type=prepared(RunTerms))
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"terms of a client: {error}") from error


def main() -> None:
    """Serve on inherited sockets: ``python -m MODULE OPTIONS LISTENER [CLIENT]``.

    LISTENER is the descriptor of the listening socket, CLIENT that of a connection to a run. The
    descriptor of the lock beside the socket is inherited too, and closed when we end.
    """
    options = msgspec.json.decode(sys.argv[1], type=prepared(GovernorOptions))
    listener, *clients = (socket.socket(fileno=int(word)) for word in sys.argv[2:])
    os.umask(0o077)  # only its user may read its files
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # some systems name a limit that they do not grant
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with suppress(OSError):  # its decisions must not wait for the compilers, nor be those of --nice
        os.setpriority(os.PRIO_PROCESS, 0, _PRIORITY)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the build
    _sweep(Path(options.socket).parent)
    # Listen again, so that the kernel reports our process to new connections.
    listener.listen(BACKLOG)
    listener.setblocking(False)
    daemon = Daemon(options, listener, clients)
    # What was imported and learned stays to the end: a collection need not look at it again.
    gc.freeze()
    gc.set_threshold(_COLLECT_EVERY)
    daemon.serve()


def _sweep(folder: Path) -> None:
    """Remove what governors have left that will never be again: every container has its own.

    A build whose governor was killed still takes turns in its folder, so the wait is long.
    """
    for lock in folder.glob(f"*.sock{LOCK}"):
        with suppress(OSError):
            if time.time() - lock.stat().st_mtime > _FORGOTTEN and not locks.is_held(lock):
                for left in folder.glob(f"{lock.name.removesuffix(f'.sock{LOCK}')}.*"):
                    remove_tree(left) if left.is_dir() else remove_file(left)


if __name__ == "__main__":
    main()
