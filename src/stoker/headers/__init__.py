"""Precompiled headers that compiles of a build share without a change to the project."""
