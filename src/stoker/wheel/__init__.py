"""Wheels: reads, packages, slims and verifies them.

``elf`` and ``zip`` read and write the formats, ``inspect`` says what a wheel holds, ``verify``
checks it, ``package`` and ``slim`` make a new wheel from a plan. Each room imports only those
before it; ``reader`` gives all of them the bytes.
"""
