"""Removes device code from linked libraries, so that the files become shorter.

``library.plan_library`` reads a library and plans the new file; the caller chooses which entries
are kept. ``library.write_library`` writes the file and checks it before it appears.
"""
