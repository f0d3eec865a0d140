"""Toolchains made from a package index's wheels, without root.

A request (``request``) is fetched (``fetch``), assembled into one folder (``assemble``, ``stub``)
that has a temporary name (``making``) until it is verified (``verify``) and described
(``manifest``). ``store`` does these steps, and ``held`` has the locks of builds that use a
toolchain. Tables in ``stoker.knowledge`` define each kind; only ``stub``, which reads headers of
the CUDA driver, is specific to one.
"""
