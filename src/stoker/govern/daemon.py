"""The governor's process: sockets, clock, meter and history around the state machine.

There is one governor for each user, binding memory limit, pid namespace and boot. It starts with
the first step of a `stoker run`, which listens in its place until then (activation.py), and exits
with the last run. Launchers use the wire protocol; a `stoker run` uses it too, as ``client``, and
gets events. The governor starts no processes, and kills only process groups of commands whose
launcher is gone.

A launcher that has received nothing for a while sends ``ping``, to check that the governor lives.
"""

import array
import os
import resource
import selectors
import shutil
import signal
import socket
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path

import msgspec
from msgspec.structs import replace

from stoker.govern.activation import BACKLOG, LOCK
from stoker.govern.build_files import BuildFiles, StepReader
from stoker.govern.command_line import as_remote, custom_step, reads_files, step_of
from stoker.govern.governor import Governor
from stoker.govern.graph import Graphs, WorkLeft
from stoker.govern.history_writer import HistoryWriter, KeptRun
from stoker.govern.memory import MemoryReading
from stoker.govern.policies import make_policy
from stoker.govern.predict import Predictor
from stoker.govern.processes import Keeper, process_behind
from stoker.govern.protocol import (
    Ask,
    ProtocolError,
    decode,
    encode,
    read_ask,
    read_done,
    read_numbers,
    read_usage,
)
from stoker.govern.summary import Tally
from stoker.machine.counters import KillCounter
from stoker.machine.meter import Meter
from stoker.model.events import AnyEvent, Overview, StepPauses, Warned
from stoker.model.govern import GovernorOptions, LinkerChoice, NvccThreads, Step
from stoker.model.runs import Attempt, Outcome, RunSummary
from stoker.outside import locks

_TICK = 0.1  # seconds between ticks while a step runs
_FRESH = 0.02  # seconds for which a reading of the meter is valid: a compiler allocates 40 MB in it
_TICK_AT_THE_END = 0.01  # seconds between checks whether the history has a run
_LAST_WRITES = 2.0  # seconds that the end of a run waits for the history
_VIEW = 0.25  # seconds between overviews
_EVENTS = 0.1  # seconds for which events are collected, because each message wakes the run
_CHUNK = 1 << 14  # bytes that are read at once
_ONE_DESCRIPTOR = socket.CMSG_LEN(array.array("i").itemsize)
_LONGEST_LINE = 1 << 24  # bytes; Linux takes commands of 6 MiB, and escaping may double them
_FIRST_CLIENT_TIMEOUT_S = 30.0  # a governor without clients ends after this time
_FORGOTTEN = 7 * 86400.0  # seconds after which no launcher takes turns any more
_KEEPER_TIMEOUT_S = 1.0  # seconds for a keeper to kill what its dead launcher had started


class Peer:
    """A connection with its buffers: received bytes that are not a complete line yet, and unsent
    bytes.
    """

    def __init__(self, stream: socket.socket):
        self.socket = stream
        self.received = b""
        self.unsent = b""
        self.blocked = False  # the other side does not read; the selector reports when it does
        self.run: int | None = None  # of a client
        self.asked = False  # whether it asked for a permit, which a connection does once
        self.over = False  # no further message is expected
        self.keeper: Keeper | None = None  # of a launcher whose command has started

    def lines(self) -> list[bytes] | None:
        """Return the complete lines that arrived; ``None`` if the other side is gone."""
        try:
            chunk, ancillary, _, _ = self.socket.recvmsg(_CHUNK, _ONE_DESCRIPTOR)
        except BlockingIOError:
            return []
        except OSError:
            return None
        for level, kind, data in ancillary:  # comes with `started`
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                for descriptor in array.array("i", data):
                    self._take_keeper(descriptor)
        if not chunk:
            return None
        *lines, self.received = (self.received + chunk).split(b"\n")
        return lines if len(self.received) <= _LONGEST_LINE else None

    def _take_keeper(self, descriptor: int) -> None:
        if self.keeper:
            self.keeper.close()
        self.keeper = Keeper(descriptor)

    def send(self, message: bytes = b"") -> None:
        """Send all buffered bytes, as far as the other side reads them now."""
        self.unsent += message
        try:
            while self.unsent:
                self.unsent = self.unsent[self.socket.send(self.unsent) :]
        except BlockingIOError:
            return
        except OSError:
            self.unsent = b""  # it is gone; the next read reports that


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
        self._history = HistoryWriter()
        self._meter = Meter()
        predictor = Predictor(self._history.recent())
        self._graphs = Graphs(predictor.durations)
        self._work_left: dict[int, WorkLeft] = {}  # by run
        self._files = BuildFiles()
        self._reader = StepReader[tuple[Peer, Ask]]()
        self._governor = Governor(
            policy=make_policy(options.policy, cpus=options.cpus),
            predictor=predictor,
            cpus=options.cpus,
            cap=options.cap,
            send=lambda connection, message: self._send(self._peers[connection], message),
            emit=self._emit,
            keep=self._keep,
            gc=options.gc,
            nvcc_threads=options.nvcc_threads is NvccThreads.AUTO,
        )
        self._selector = selectors.DefaultSelector()
        self._peers: dict[int, Peer] = {}
        self._clients: dict[int, Peer] = {}  # by run
        self._tallies: dict[int, Tally] = {}
        self._counters: dict[int, KillCounter] = {}
        self._roots: dict[int, str] = {}
        self._kept: dict[int, KeptRun] = {}  # runs in the history
        self._run_began: dict[int, float] = {}
        # Summaries that wait for the history, and when they are sent without it.
        self._summaries: dict[int, tuple[RunSummary, float]] = {}
        self._orphans: list[tuple[float, Keeper]] = []  # process groups, and when to kill them
        self._began = time.monotonic()
        self._viewed = self._metered = self._told_clients = 0.0
        self._had_clients = False
        self._warned: str | None = None
        for stream in clients:
            self._add(stream)

    def serve(self) -> None:
        """Serve until the last client is gone."""
        self._selector.register(self._reader, selectors.EVENT_READ)
        if not self._peers:
            self._open()
        try:
            while not self._over():
                ready = self._selector.select(self._pause())
                # Clients are last: messages that launchers sent before the run ended belong to it.
                for key, events in sorted(ready, key=self._is_client):
                    if key.fileobj is self._listener:
                        self._accept()
                    elif key.fileobj is self._reader:
                        self._take_steps()
                    elif peer := self._peers.get(key.fd):  # an earlier one may have closed it
                        self._attend(peer, events)
                self._turn()
        finally:
            Path(self._options.socket).unlink(missing_ok=True)
            self._listener.close()
        if self._orphans:
            time.sleep(_KEEPER_TIMEOUT_S)
        self._bury_orphans(inf)
        self._history.close()

    def _pause(self) -> float:
        """Return the seconds until the next tick, if no message arrives."""
        if self._summaries:
            return _TICK_AT_THE_END
        waiting = any(client.unsent for client in self._clients.values())
        return _TICK if self._governor.busy or waiting else 1.0

    def _is_client(self, ready: tuple[selectors.SelectorKey, int]) -> bool:
        peer = self._peers.get(ready[0].fd)
        return peer is not None and peer.run is not None

    def _over(self) -> bool:
        return not self._clients and (self._had_clients or self._now() > _FIRST_CLIENT_TIMEOUT_S)

    def _turn(self) -> None:
        """Act after each batch of messages and each tick: decide, send overviews and summaries."""
        now = self._now()
        for run, steps in self._graphs.news():
            if work := self._work_left.get(run):
                work.expect(steps)
            self._governor.reconsider()
        if self._governor.busy:
            if now - self._metered >= _FRESH:
                self._read_meter()
            if self._governor.changed:
                self._governor.decide(now)
        self._bury_orphans(now)
        if now - self._viewed >= _VIEW:
            self._viewed = now
            self._governor.work_left = sum(work.work for work in self._work_left.values())
            for run in self._clients:
                self._emit(self._overview(run, now))
            self._warn()
        self._send_summaries(now)
        if now - self._told_clients >= _EVENTS:
            self._told_clients = now
            for client in self._clients.values():
                self._send(client)

    def _take_steps(self) -> None:
        for (peer, ask), step in self._reader.take():
            if self._peers.get(peer.socket.fileno()) is peer:  # it may have closed meanwhile
                self._told(peer, ask, step)

    def _overview(self, run: int, now: float) -> Overview:
        view, work = self._governor.overview(run, now), self._work_left[run]
        seen = view.done + len(view.running) + view.waiting
        left = work.seconds(now, (step.seconds for step in view.running))
        return replace(view, total=max(seen, view.done + work.steps), seconds_left=left)

    def _warn(self) -> None:
        if self._history.problem != self._warned:
            self._warned = self._history.problem
            self._emit(Warned(at=self._now(), text=self._warned or "the history is written again"))

    def _bury_orphans(self, now: float) -> None:
        due = [orphan for orphan in self._orphans if orphan[0] <= now]
        for orphan in due:
            orphan[1].kill_group()
            orphan[1].close()
            self._orphans.remove(orphan)

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _read_meter(self) -> None:
        self._metered = self._now()
        reading = self._meter.reading()
        counts = ((run, counter.read()) for run, counter in self._counters.items())
        kills = {run: count for run, count in counts if count is not None}
        limit = max(0, reading.limit.limit - self._options.keep_free)
        self._governor.read(
            MemoryReading(
                limit=limit,
                used=reading.limit.used,
                oom_kills=kills,
                pressure=reading.pressure.full if reading.pressure else 0.0,
            ),
            self._now(),
        )
        for run, tally in self._tallies.items():
            tally.read(
                used=self._governor.used_by(run),
                limit=self._governor.limit,
                oom_kills=kills.get(run),
            )

    # -- connections -----------------------------------------------------------------------------

    def _open(self) -> None:
        """Take in new connections from now on."""
        if self._listener not in self._selector.get_map():
            self._selector.register(self._listener, selectors.EVENT_READ)

    def _accept(self) -> None:
        while True:
            try:
                stream, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError:
                # Out of file descriptors: new connections wait until one is closed.
                self._selector.unregister(self._listener)
                return
            self._add(stream)

    def _add(self, stream: socket.socket) -> None:
        stream.setblocking(False)
        self._peers[stream.fileno()] = Peer(stream)
        self._selector.register(stream, selectors.EVENT_READ)

    def _attend(self, peer: Peer, ready: int) -> None:
        if ready & selectors.EVENT_WRITE:
            self._send(peer)
        if ready & selectors.EVENT_READ:
            self._hear(peer)

    def _send(self, peer: Peer, message: bytes = b"") -> None:
        peer.send(message)
        if peer.blocked != bool(peer.unsent):
            peer.blocked = bool(peer.unsent)
            write = selectors.EVENT_WRITE if peer.blocked else 0
            self._selector.modify(peer.socket, selectors.EVENT_READ | write)

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
        connection, now = peer.socket.fileno(), self._now()
        match word:
            case "ask":
                self._asked(peer, read_ask(fields))
            case "started":
                pass  # only the descriptor that came with it matters
            case "ping":
                self._send(peer, encode("pong"))
            case "memory":
                current, peak = read_numbers(fields, 2)
                self._governor.grown(connection, current, peak, now)
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
        root = self._roots.get(ask.run, ask.directory)
        if not ask.custom and reads_files(ask.command, self._files.knows):
            self._reader.put((peer, ask), partial(_step, ask, root, self._files))
        else:
            self._told(peer, ask, _step(ask, root, self._files))

    def _told(self, peer: Peer, ask: Ask, step: Step) -> None:
        """Pass a request to the governor, after its command line was read."""
        connection, now = peer.socket.fileno(), self._now()
        asker = process_behind(peer.socket)
        path = partial(self._graphs.path, ask.run, ask.directory, step.output, asker)
        if work := self._work_left.get(ask.run):
            work.asked(now)
        self._governor.asked(connection, ask, step, path, now)

    def _close(self, peer: Peer) -> None:
        connection = peer.socket.fileno()
        self._selector.unregister(peer.socket)
        del self._peers[connection]
        peer.socket.close()
        unfinished = self._governor.lost(connection)
        if peer.keeper and unfinished:
            # The keeper also notices and kills more than the group; this is in case it died.
            self._orphans.append((self._now() + _KEEPER_TIMEOUT_S, peer.keeper))
        elif peer.keeper:
            peer.keeper.close()
        if peer.run is not None:
            self._clients.pop(peer.run, None)
            self._abandon(peer.run)
        self._open()

    # -- clients ---------------------------------------------------------------------------------

    def _welcome(self, peer: Peer, fields: tuple[bytes, ...]) -> None:
        (run,) = read_numbers(fields, 1)
        if len(fields) < 3 or peer.run is not None or run in self._clients:
            raise ProtocolError(f"client {run} cannot greet like that, or has done so before")
        command, directory = (field.decode(errors="surrogateescape") for field in fields[1:3])
        if fields[3:]:
            self._governor.modes.link_with(run, _linkers(fields[3]))
        peer.run, self._clients[run], self._had_clients = run, peer, True
        self._roots[run] = directory
        self._kept[run] = self._history.start_run(_text(command), _text(directory))
        self._run_began[run] = self._now()
        self._work_left[run] = WorkLeft()
        self._tallies[run] = Tally(cpus=self._options.cpus, policy=self._options.policy)
        self._counters[run] = KillCounter(process_behind(peer.socket))
        self._read_meter()
        self._send(peer, encode("welcome", msgspec.json.encode(self._options)))
        self._warned = None  # the new client has not been warned yet
        self._open()

    def _finish(self, peer: Peer, fields: tuple[bytes, ...]) -> None:
        if peer.run is None:
            raise ProtocolError("finish of no client")
        status, cache_hits = read_numbers(fields, 2)
        written_bytes = read_numbers(fields[2:], 1)[0] if fields[2:] else None
        self._read_meter()
        summary = replace(
            self._tallies[peer.run].summary(status),
            cache_hits=cache_hits,
            written_bytes=written_bytes,
        )
        self._history.end_run(self._kept[peer.run], summary)
        self._summaries[peer.run] = summary, self._now() + _LAST_WRITES

    def _send_summaries(self, now: float) -> None:
        """Send each summary once the history has its run, because the client may read it there
        next.
        """
        for run, (summary, deadline) in list(self._summaries.items()):
            if self._kept[run].settled or now >= deadline:
                del self._summaries[run]
                self._warn()
                summary = replace(summary, run=self._kept[run].row or None)
                self._send(self._clients[run], encode("summary", msgspec.json.encode(summary)))

    def _abandon(self, run: int) -> None:
        """End all steps of a run that is gone, and forget the run."""
        for connection in self._governor.steps_of(run):
            if peer := self._peers.get(connection):
                self._send(peer, encode("end"))
                self._close(peer)
        self._graphs.forget(run)
        self._governor.forget(run)
        for known in (self._tallies, self._work_left, self._roots, self._kept, self._run_began):
            known.pop(run, None)
        self._summaries.pop(run, None)
        if counter := self._counters.pop(run, None):
            counter.close()

    def _emit(self, event: AnyEvent) -> None:
        """Queue an event for the clients that it concerns; it is sent at the end of the turn."""
        message = encode("event", msgspec.json.encode(event))
        whose = getattr(event, "run", None)
        if isinstance(event, StepPauses) and (tally := self._tallies.get(event.run)):
            tally.paused()
        for client in self._clients.values():
            # A client that does not read gets no overviews, only the other events.
            late = client.blocked and isinstance(event, Overview)
            if whose in (None, client.run) and not late:
                client.unsent += message

    def _keep(self, run: int, attempt: Attempt) -> None:
        if run not in self._kept:
            return
        if attempt.outcome is Outcome.DONE:
            self._work_left[run].finished(attempt.record.step.output, attempt.record.seconds)
        self._tallies[run].add(attempt)
        self._history.add(self._kept[run], attempt.since(self._run_began[run]))


def _step(ask: Ask, root: str, files: BuildFiles) -> Step:
    """Return the step of a request, with text that is valid in events and in the history."""
    if ask.custom:
        step = custom_step(ask.command, ask.directory, root)
    else:
        threads = 1 if ask.remote else ask.cpus
        step = step_of(ask.command, ask.directory, root, files, threads=threads)
    if ask.remote:
        step = as_remote(step)
    return replace(
        step,
        shared=ask.shared,
        source=_text(step.source),
        output=_text(step.output),
        directory=_text(step.directory),
        dependency_file=_text(step.dependency_file),
        compiler=_text(step.compiler),
        flags=tuple(map(_text, step.flags)),
    )


def _linkers(field: bytes) -> LinkerChoice:
    try:
        return msgspec.json.decode(field, type=LinkerChoice)
    except msgspec.MsgspecError as error:
        raise ProtocolError(f"linkers of a client: {error}") from error


def _text(words: str) -> str:
    if words.isascii():
        return words
    return words.encode(errors="surrogateescape").decode(errors="replace")


def main() -> None:
    """Serve on inherited sockets: ``python -m stoker.govern.daemon OPTIONS LISTENER [CLIENT]``.

    LISTENER is the descriptor of the listening socket, CLIENT that of a connection to a run. The
    descriptor of the lock beside the socket is inherited too, and closed when we end.
    """
    options = msgspec.json.decode(sys.argv[1], type=GovernorOptions)
    listener, *clients = (socket.socket(fileno=int(word)) for word in sys.argv[2:])
    os.umask(0o077)  # only its user may read its files
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # some systems name a limit that they do not grant
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C is for the build
    _sweep(Path(options.socket).parent)
    # Listen again, so that the kernel reports our process to new connections.
    listener.listen(BACKLOG)
    listener.setblocking(False)
    Daemon(options, listener, clients).serve()


def _sweep(folder: Path) -> None:
    """Remove what governors have left that will never be again: every container has its own.

    A build whose governor was killed still takes turns in its folder, so the wait is long.
    """
    for lock in folder.glob(f"*.sock{LOCK}"):
        with suppress(OSError):
            if time.time() - lock.stat().st_mtime > _FORGOTTEN and not locks.is_held(lock):
                for left in folder.glob(f"{lock.name.removesuffix(f'.sock{LOCK}')}.*"):
                    shutil.rmtree(left) if left.is_dir() else left.unlink()


if __name__ == "__main__":
    main()
