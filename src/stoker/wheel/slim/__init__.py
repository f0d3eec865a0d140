"""Removes device code from linked libraries, so that the files become shorter.

``selection`` chooses what is kept, ``files`` plans and writes files, each as a ``PlannedFile``.
Inside one file, ``library`` plans: ``regions`` places the kept code, ``cutting`` cuts the freed
bytes out, and ``check`` compares the result with the original. ``wheel`` and ``folder`` apply it.
"""
