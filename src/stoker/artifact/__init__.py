"""Reads wheels, ELF files and device code, and rewrites wheels and ELF files."""
