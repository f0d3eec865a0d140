"""Compiler caches on this machine and their remotes: read, counted, started, cleared."""
