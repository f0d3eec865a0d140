"""Makes the table of the names that releases of libraries added, moved and removed.

    python release/library_names.py read FOLDER [--git CLONES] [--unpacked FOLDERS] [LIBRARY ...]
    python release/library_names.py table FOLDER

`read` finds the names of each release of the libraries in library_names.toml and leaves a file in
FOLDER for each; what is there already is not read again. Headers and modules of wheels come from
the package index of pip by range requests, those of others from the tags of clones in CLONES,
called owner+name, and those without either from FOLDERS/LIBRARY/VERSION, unpacked archives.
`table` writes src/stoker/knowledge/library_names.z from all files in FOLDER.
"""

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
from library_releases import ReadRelease, Source, kept_releases, read_releases

from stoker.knowledge.library_names import NamedLibrary, NameRow, library_names_table

HERE = Path(__file__).parent
TABLE = HERE.parent / "src/stoker/knowledge/library_names.z"
SOURCES = HERE / "library_names.toml"
# Headers that no fix for a moved name may suggest.
INTERNAL = re.compile(
    r"(?:^|/)(?:details?|internal|impl|bits|_?private|experimental)(?:/|\.)|_impl\b"
)
COMMON = re.compile(r"[a-z]{1,8}")  # such words are variables of any source
# What happened before is of no use: releases that old are hardly met.
ADDED_SINCE, REMOVED_SINCE = "2021-06", "2019-06"
PRIVATE = r"(?:^|::|[./])_|::(?:detail|internal|impl)::"  # only old source uses what is gone


def sources() -> tuple[Source, ...]:
    listed: tuple[Source, ...] = msgspec.toml.decode(
        SOURCES.read_bytes(), type=dict[str, tuple[Source, ...]]
    )["library"]
    return listed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("read", "table"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("library", nargs="*")
    parser.add_argument("--git", type=Path)
    parser.add_argument("--unpacked", type=Path)
    asked = parser.parse_intermixed_args()
    chosen = [one for one in sources() if not asked.library or one.name in asked.library]
    if asked.what == "table":
        write_table(asked.folder, sources())
        return
    for source in chosen:
        for release in read_releases(source, asked.folder, asked.git, asked.unpacked):
            print(source.name, release.version, release.released, len(release.names), flush=True)


def write_table(folder: Path, chosen: Iterable[Source]) -> None:
    libraries: list[NamedLibrary] = []
    rows: list[NameRow] = []
    for source in chosen:
        read = kept_releases(source, folder)
        if len(read) < 2:
            print(f"{source.name}: not read")
            continue
        found = list(changed(source.name, read, source))
        rows += found
        libraries.append(
            NamedLibrary(
                name=source.name,
                begins=source.begins,
                shown=source.shown,
                pip=source.pip,
                numbered=source.numbered,
                plain=source.plain,
                releases={one.version: one.released for one in read},
            )
        )
        kinds = Counter(
            "moved" if row.moved else "removed" if row.removed else "added" for row in found
        )
        print(source.name, len(read), "releases", dict(kinds))
    TABLE.write_bytes(library_names_table(libraries, rows))
    print(f"{TABLE.name}: {TABLE.stat().st_size} bytes")


def changed(library: str, read: list[ReadRelease], source: Source) -> Iterator[NameRow]:
    """Yield the names that not all releases have, or not in the same header; of a class, a module
    or a namespace that came or went as a whole, only its own name.
    """
    lives: dict[str, tuple[int, int]] = {}
    for at, release in enumerate(read):
        for name in release.names:
            lives[name] = (lives.get(name, (at, at))[0], at)
    months = {one.version: one.released or ADDED_SINCE for one in read}
    last = len(read) - 1
    for name, (first, end) in sorted(lives.items()):
        is_common = COMMON.fullmatch(name) or not name.startswith(source.begins)
        if is_common or re.search(source.leave_out, name):
            continue
        parent = parent_of(name)
        of_parent = lives.get(parent, (0, last))
        is_private = re.search(PRIVATE, name)
        added = read[first].version if first and of_parent[0] != first and not is_private else ""
        removed = read[end + 1].version if end < last and of_parent[1] != end else ""
        # A construct that was not understood may have hidden the name.
        word = re.split(r"\W", name)[-1]
        if added and read[first - 1].has_word(word, read[first].names[name]):
            added = ""
        if removed and read[end + 1].has_word(word, read[end].names[name]):
            removed = ""
        moved = "" if removed or is_private else moved_to(name, read, first, end)
        if moved and parent in lives and moved == moved_to(parent, read, *of_parent):
            moved = ""
        if removed and is_header(name):
            moved = successor(name, read[end], read[end + 1])
        if _is_recent(added, removed, moved.partition(" ")[0], months):
            yield NameRow(name=name, library=library, added=added, removed=removed, moved=moved)


def _is_recent(added: str, removed: str, moved: str, months: Mapping[str, str]) -> bool:
    since = max(months.get(added, ""), months.get(moved, ""))
    return since >= ADDED_SINCE or months.get(removed, "") >= REMOVED_SINCE


def parent_of(name: str) -> str:
    if is_header(name):
        return ""
    return name.rpartition("::" if "::" in name else ".")[0]


def is_header(name: str) -> bool:
    return "/" in name or name.endswith((".h", ".hpp", ".cuh", ".inl"))


def moved_to(name: str, read: list[ReadRelease], first: int, end: int) -> str:
    """Return the last release in which a public header lost a name that another one has, and that
    one. Where the header was removed, its own row says so.
    """
    for at in range(end, first, -1):
        old, new = read[at - 1], read[at]
        public = [one for one in new.names.get(name, ()) if not INTERNAL.search(one)]
        lost = {*old.names.get(name, ())} - {*new.names.get(name, ())}
        lost = {one for one in lost if one in new.names and not INTERNAL.search(one)}
        if public and any(not reached(one, new) & {*new.names[name]} for one in lost):
            return f"{new.version} {public[0]}"
    return ""


def reached(header: str, release: ReadRelease) -> set[str]:
    """Return what a header includes, and what that includes."""
    found, left = {header}, [header]
    while left:
        more = {*release.includes.get(left.pop(), ())} - found
        found |= more
        left += more
    return found


def successor(header: str, old: ReadRelease, new: ReadRelease) -> str:
    """Return the header that has most names of one that was removed."""
    counts = Counter(
        path
        for name, paths in old.names.items()
        if header in paths
        for path in new.names.get(name, ())
        if not INTERNAL.search(path)
    )
    best = counts.most_common(1)
    had = sum(header in paths for paths in old.names.values())
    return f"{new.version} {best[0][0]}" if best and best[0][1] * 2 > had else ""


if __name__ == "__main__":
    main()
