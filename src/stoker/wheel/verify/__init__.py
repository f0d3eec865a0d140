"""Checks whether a wheel is what its metadata says and what was asked for.

``checks.examine_wheel`` checks a ``WheelUnderTest``, which is a value. ``cpu_level`` disassembles
machine code for it. ``trial`` installs the wheel and uses it.
"""
