"""Toolchains made from a package index's wheels, without root.

A request (``request``) is fetched (``fetch``), assembled into one folder (``assemble``, ``stub``)
that is in the making (``making``) until it is verified (``verify``) and described (``manifest``);
``store`` is that list, and ``held`` the locks of builds that use one. What each kind consists of is
knowledge: no module here knows CUDA from CMake, save ``stub``, which reads the CUDA
driver's headers.
"""
