"""Builds: sources, stages, toolchains, containers and matrices."""
