"""Builds as files of other systems: containers, CI, clusters."""
