"""Containers to build in: finds an engine, starts a container and provides stoker inside.

What is built there, and how, is not known here.
"""
