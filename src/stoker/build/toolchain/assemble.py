"""Makes one folder, laid out as tools expect it, out of unpacked wheels."""

from pathlib import Path

from stoker.build.toolchain.request import ToolchainRequest

INFORMATION = "share/dist-info"  # licences, names and versions of the packages it is made of


def assemble(unpacked: Path, home: Path, request: ToolchainRequest) -> None:
    """Move everything of use from ``unpacked`` to ``home``; both are on one file system."""
    row = request.row
    for pattern, place in row.trees:
        for tree in sorted(unpacked.glob(request.filled(pattern))):
            merge(tree, home / place)
    for information in unpacked.glob("*.dist-info"):
        merge(information, home / INFORMATION / information.name)
    for folder in row.sonames:
        link_sonames(home / folder)
    for link, goal in row.links.items():
        _link(home / link, goal)


def merge(source: Path, target: Path) -> None:
    """Move a file or folder; where folders meet they become one, and a file in place stays."""
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        source.rename(target)
    elif source.is_dir() and target.is_dir():
        for child in source.iterdir():
            merge(child, target / child.name)


def link_sonames(folder: Path) -> None:
    """Give each ``libx.so.1`` its ``libx.so``, which wheels, being zip files, cannot hold."""
    for library in sorted(folder.glob("*.so.*")):
        bare = library.name.partition(".so.")[0]
        _link(library.with_name(f"{bare}.so"), library.name)


def _link(link: Path, goal: str) -> None:
    if not link.is_symlink() and not link.exists() and link.parent.is_dir():
        link.symlink_to(goal)
