"""Compiler caches, and compiles on other machines."""
