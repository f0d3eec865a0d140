"""Removes device code from linked libraries, so that the files become shorter.

``plan_library`` reads a library and plans the new file; the caller chooses which entries are kept.
``write_library`` writes the file and checks it before it appears.
"""

from stoker.wheel.slim.library import LibraryPlan, SlimOptions, plan_library, write_library

__all__ = ["LibraryPlan", "SlimOptions", "plan_library", "write_library"]
