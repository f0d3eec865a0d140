"""The daemon: sockets, clock, meter and history around the state machine."""
