"""Checks whether a wheel is what its metadata says and what was asked for.

``checks.examine_wheel`` is pure and checks a ``WheelUnderTest``. ``cpu_level`` disassembles machine
code for it. ``trial`` installs the wheel and uses it.
"""
