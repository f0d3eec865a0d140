"""The governor's sockets: who is connected, what has arrived, and what is still to be sent.

Independent of what the lines mean.
"""

import array
import selectors
import socket
from collections.abc import Sequence

from stoker.govern.protocol import Lease
from stoker.govern.server.peers import Keeper

_CHUNK = 1 << 14  # bytes that are read at once
_ONE_DESCRIPTOR = socket.CMSG_LEN(array.array("i").itemsize)
_LONGEST_LINE = 1 << 24  # bytes; Linux takes commands of 6 MiB, and escaping may double them


class Peer:
    """A connection with its buffers: received bytes that are not a complete line yet, and unsent
    bytes.
    """

    def __init__(self, stream: socket.socket):
        self.socket = stream
        self.connection = stream.fileno()  # its number, which is free again when it is closed
        self._received = bytearray()  # of a line that is not complete yet
        self.unsent = bytearray()
        self.blocked = False  # the other side does not read; the selector reports when it does
        self.closed = False
        self.run: int | None = None  # of a client
        self.asked = False  # whether it asked for a permit, which a connection does once
        self.lease: Lease | None = None  # what it said about leases before it asked
        self.over = False  # no further message is expected
        self.keeper: Keeper | None = None  # of a launcher whose command has started

    def lines(self) -> list[bytes] | None:
        """Return the complete lines that arrived; ``None`` if the other side is gone."""
        chunk, passed = self._read()
        # The kernel ends a read behind a descriptor, also if more is there.
        while chunk and passed and len(chunk) < _CHUNK:
            more, passed = self._read()
            chunk += more or b""
        if not chunk:
            return [] if chunk is None else None
        *ends, rest = chunk.split(b"\n")
        if not ends:
            self._received += rest
            return [] if len(self._received) <= _LONGEST_LINE else None
        first, *others = ends
        lines = [bytes(self._received + first), *others]
        self._received = bytearray(rest)
        return lines

    def _read(self) -> tuple[bytes | None, bool]:
        """Return bytes, and whether a descriptor came with them; ``None`` if there are none yet,
        ``b""`` if the other side is gone.
        """
        try:
            chunk, ancillary, _, _ = self.socket.recvmsg(_CHUNK, _ONE_DESCRIPTOR)
        except BlockingIOError:
            return None, False
        except OSError:
            return b"", False
        for level, kind, data in ancillary:  # comes with `started`
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                for descriptor in array.array("i", data):
                    if self.keeper:
                        self.keeper.close()
                    self.keeper = Keeper(descriptor)
        return chunk, bool(ancillary)

    def send(self, message: bytes) -> None:
        """Send all buffered bytes, as far as the other side reads them now."""
        self.unsent += message
        try:
            while self.unsent:
                del self.unsent[: self.socket.send(self.unsent)]
        except BlockingIOError:
            return
        except OSError:
            self.unsent.clear()  # it is gone; the next read reports that


class Connections:
    """All connections, and the socket at which new ones arrive once it is ``open``."""

    def __init__(self, listener: socket.socket, streams: Sequence[socket.socket]):
        """Prepare. ``streams`` are connections that exist already."""
        self._listener = listener
        self._selector = selectors.DefaultSelector()
        self.peers: dict[int, Peer] = {}  # by the number of the connection
        for stream in streams:
            self._add(stream)

    def open(self) -> None:
        """Take in new connections from now on."""
        if self._listener not in self._selector.get_map():
            self._selector.register(self._listener, selectors.EVENT_READ)

    def wake_for(self, descriptor: int) -> None:
        """Let ``wait`` also return when the descriptor becomes readable."""
        self._selector.register(descriptor, selectors.EVENT_READ)

    def wait(self, seconds: float) -> list[Peer]:
        """Return the peers that have sent something, as soon as something happens. Launchers that
        have asked before are first, because the end of a step makes room for others. Clients are
        last: messages that launchers sent before the run ended belong to it.
        """
        heard = []
        for key, events in self._selector.select(seconds):
            if key.fileobj is self._listener:
                self._accept()
            elif peer := self.peers.get(key.fd):
                if events & selectors.EVENT_WRITE:
                    self.send(peer)
                if events & selectors.EVENT_READ:
                    heard.append(peer)
        return sorted(heard, key=lambda peer: (peer.run is not None, not peer.asked))

    def send(self, peer: Peer, message: bytes = b"") -> None:
        """Send all buffered bytes and the message; what the other side does not read is sent
        later.
        """
        peer.send(message)
        if peer.blocked != bool(peer.unsent):
            peer.blocked = bool(peer.unsent)
            write = selectors.EVENT_WRITE if peer.blocked else 0
            self._selector.modify(peer.socket, selectors.EVENT_READ | write)

    def close(self, peer: Peer) -> None:
        self._selector.unregister(peer.socket)
        del self.peers[peer.connection]
        peer.socket.close()
        peer.closed = True
        self.open()  # there is a descriptor for a new one

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
        self.peers[stream.fileno()] = Peer(stream)
        self._selector.register(stream, selectors.EVENT_READ)
