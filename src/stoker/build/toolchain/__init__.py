"""Toolchains made from a package index's wheels, without root.

A request (``request``) is fetched (``fetch``), assembled into one folder (``assemble``, ``stub``),
verified (``verify``) and only then kept (``store``). What each kind consists of is knowledge; no
module here knows CUDA from CMake, save ``stub``, which reads the CUDA driver's headers.
"""
