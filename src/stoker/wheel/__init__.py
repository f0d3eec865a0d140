"""Wheels: reads, packages, slims and verifies them.

``elf``, ``fatbin`` and ``facts`` read; ``engine`` rewrites a wheel in one pass. Each change is
planned first, then applied.
"""
