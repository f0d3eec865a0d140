"""Cuts device code out of linked libraries: what a plan keeps stays, the file becomes shorter.

``plan_library`` reads a library and decides where everything goes, ``write_library`` writes it,
checks it and lets it appear. Which entries are kept is chosen by whoever calls.
"""

from stoker.deliver.slim.library import LibraryPlan, SlimOptions, plan_library
from stoker.deliver.slim.writing import write_library

__all__ = ["LibraryPlan", "SlimOptions", "plan_library", "write_library"]
