"""Checks whether a wheel is what its metadata says and what was asked for.

``checks.examine`` is pure and checks a ``WheelUnderTest``. ``sampling`` disassembles machine code
for it. ``trial`` installs the wheel and uses it.
"""
