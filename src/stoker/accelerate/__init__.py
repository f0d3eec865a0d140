"""Compiler caches, distribution, linkers, and `stoker tune`, which measures what they bring."""
