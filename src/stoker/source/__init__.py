"""Reads what a source tree is from its own files, without running any of it."""
