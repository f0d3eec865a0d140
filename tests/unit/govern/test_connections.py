"""What arrives at the governor's sockets."""

import os
import socket
from collections.abc import Iterator

import pytest

from stoker.govern.server.connections import Connections, Peer


@pytest.fixture
def pair() -> Iterator[tuple[Peer, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield Peer(ours), theirs


def say_started(launcher: socket.socket) -> None:
    """Say that the command has started, and pass the keeper, as channel_pass does."""
    keeper = os.pidfd_open(os.getpid())
    socket.send_fds(launcher, [b"started\n"], [keeper])
    os.close(keeper)


def test_what_follows_a_passed_descriptor_is_read_at_once(pair: tuple[Peer, socket.socket]) -> None:
    """The kernel ends a read behind a descriptor. If a busy governor read `started` alone, a run
    that ends now would be added up without its last step.
    """
    peer, launcher = pair
    say_started(launcher)
    launcher.sendall(b"done\t0\t0\n")
    assert peer.lines() == [b"started", b"done\t0\t0"]
    assert peer.keeper
    assert peer.lines() == []


def test_a_descriptor_is_taken_of_a_launcher_that_is_gone(pair: tuple[Peer, socket.socket]) -> None:
    peer, launcher = pair
    say_started(launcher)
    launcher.sendall(b"memory\t1")
    launcher.close()
    assert peer.lines() == [b"started"]
    assert peer.keeper
    assert peer.lines() is None


def test_steps_that_end_are_heard_first_and_the_end_of_a_run_last() -> None:
    """An end makes room for steps that ask. Messages that launchers sent before a run ended belong
    to it.
    """
    (client, run), (other, new), (launcher, step) = (socket.socketpair() for _ in range(3))
    with run, new, step, socket.socket() as listener:
        connections = Connections(listener, [client, other, launcher])
        connections.peers[client.fileno()].run = 1
        connections.peers[launcher.fileno()].asked = True
        run.sendall(b"finish\t0\t0\n")
        new.sendall(b"ask\n")
        say_started(step)
        step.sendall(b"done\t0\t0\n")
        heard = [peer.lines() for peer in connections.wait(10.0)]
        assert heard == [[b"started", b"done\t0\t0"], [b"ask"], [b"finish\t0\t0"]]
        for peer in list(connections.peers.values()):
            if peer.keeper:
                peer.keeper.close()
            peer.socket.close()
