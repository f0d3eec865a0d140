"""The checks of what slimming leaves as it is, so that an error is one of the original wheel.

`stoker slim` runs them on the original and records what they find; it imports no others.
"""

from stoker.wheel.verify import contents, linking, placement, tags

SURVIVING = (
    contents.permissions,
    placement.starting_code,
    placement.foreign_files,
    tags.symbols,
    linking.missing_libraries,
    linking.unreachable_libraries,
    linking.unreachable_packages,
    contents.bundled,
    contents.openmp,
    linking.runpaths,
    linking.absolute_paths,
    linking.relative_paths,
    linking.outside_paths,
)
