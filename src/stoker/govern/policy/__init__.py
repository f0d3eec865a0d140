"""Decides which steps run: a state machine without clock, sockets or files."""
