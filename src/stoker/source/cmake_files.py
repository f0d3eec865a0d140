"""Which CMake files a build reads: those that its root adds and includes, one after another.

Conditions are not evaluated, so a file counts that some configuration reads. Where a file adds a
folder whose name it computes, any file of the tree may be read.
"""

import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping

from stoker.source import conditions
from stoker.source.cmake import CMakeCommand, parse_script
from stoker.source.files import TreeFiles

ROOT = "CMakeLists.txt"
_MOST_FILES = 5000
_OF_SOURCES = re.compile(r"\$\{\w*(?:SOURCE_DIR|LIST_DIR)\}/?")
_OF_BUILD = re.compile(r"\$\{\w*BINARY_DIR\}")


def cmake_files(files: TreeFiles, root: str, *, alone: bool) -> Iterator[str]:
    """Yield the tree's own CMake files, then those of the folders it adds by name. ``alone``, if
    what is outside of the root's folder is no part of the build.
    """
    below = f"{posixpath.dirname(root)}/"
    found = [file for file in files.walk() if file.endswith((".cmake", f"/{ROOT}")) or file == ROOT]
    inner = [file for file in found if file.startswith(below)]
    if alone and inner and not any(_leaves(files, file) for file in inner):
        found = inner
    reached = _reached(files, frozenset(found), root) if root in found else None
    own = sorted(
        found if reached is None else reached,
        key=lambda file: (file != root, not file.startswith("cmake/"), file),
    )
    yield from own
    known = set(own)
    waiting = [file for file in own if file == root]
    while waiting and len(known) < _MOST_FILES:
        file = waiting.pop()
        for added in _added_folders(files, file):
            if added not in known:
                known.add(added)
                waiting.append(added)
                yield added


def _leaves(files: TreeFiles, file: str) -> bool:
    """Tell whether a file includes or adds what is outside of its folder."""
    return any(
        command.name in ("add_subdirectory", "include")
        and any(".." in word.split("/") for word in command.words[:1])
        for command in _commands(files, file)
    )


def _reached(files: TreeFiles, found: frozenset[str], root: str) -> set[str] | None:
    """Return the files that the root leads to; ``None`` where that cannot be read."""
    by_name = _by_name(found)
    reached, waiting = {root}, [root]
    while waiting:
        file = waiting.pop()
        script = parse_script(files.text(file) or "")
        if script.problem:
            return None
        for command in script.commands:
            words = command.words
            if _is_computed(command.name, words):
                return None
            named = {path for word in words for path in _named(word, file, root, found)}
            match command.name, words:
                case "include", [module, *_]:
                    named |= set(_included(module, file, found, by_name))
                case "find_package", [package, *_]:
                    named |= set(by_name.get(f"Find{package}", ()))
            waiting += named - reached
            reached |= named
    return reached


def _by_name(files: Iterable[str]) -> dict[str, list[str]]:
    """Return the files by the names under which include() looks for modules."""
    by_name: dict[str, list[str]] = {}
    for file in files:
        by_name.setdefault(posixpath.basename(file).removesuffix(".cmake"), []).append(file)
    return by_name


def _is_computed(name: str, words: list[str]) -> bool:
    if name not in ("add_subdirectory", "include") or not words or _OF_BUILD.match(words[0]):
        return False
    return "$" in _OF_SOURCES.sub("", words[0], count=1)


def _named(word: str, file: str, root: str, found: Collection[str]) -> Iterator[str]:
    """Yield the file of the tree that a word names, or that of a folder: it may be added."""
    path = _OF_SOURCES.sub("", word, count=1)
    if not path or "$" in path:
        return
    for base in dict.fromkeys((posixpath.dirname(file), posixpath.dirname(root), "")):
        full = posixpath.normpath(posixpath.join(base, path))
        yield from (each for each in (full, posixpath.join(full, ROOT)) if each in found)


def _included(
    module: str, file: str, found: Collection[str], by_name: Mapping[str, list[str]]
) -> list[str]:
    """Return the files that include() may read: a path, or a module in a folder of modules."""
    path = _OF_SOURCES.sub("", module, count=1)
    name = posixpath.basename(path).removesuffix(".cmake")
    if "/" not in path:
        return by_name.get(name, [])
    full = posixpath.normpath(posixpath.join(posixpath.dirname(file), path))
    if full in found:
        return [full]
    return [each for each in by_name.get(name, ()) if f"/{each}".endswith(f"/{path}")]


def _added_folders(files: TreeFiles, file: str) -> Iterator[str]:
    """Yield the CMakeLists.txt of each folder that a file adds, such as ``vendor/library``."""
    for command in _commands(files, file):
        if command.name != "add_subdirectory" or not command.arguments:
            continue
        name = command.arguments[0].value
        path = posixpath.normpath(posixpath.join(posixpath.dirname(file), name, ROOT))
        if "$" not in name and not path.startswith(("..", "/")) and files.is_file(path):
            yield path


def certain_files(read: dict[str, tuple[CMakeCommand, ...]], root: str) -> set[str]:
    """Return the root and the files that it includes or adds outside of any condition."""
    by_name = _by_name(read)
    found, waiting = {root}, [root]
    while waiting:
        file = waiting.pop()
        for each in conditions.enclosed(read.get(file, ())):
            if each.conditional or not each.command.arguments:
                continue
            name = each.command.arguments[0].value
            folder = posixpath.dirname(file)
            if each.command.name == "include":
                reached = _included(name, file, read, by_name)
            elif each.command.name == "add_subdirectory":
                reached = [posixpath.normpath(posixpath.join(folder, name, ROOT))]
            else:
                continue
            new = [other for other in reached if other in read and other not in found]
            found.update(new)
            waiting += new
    return found


def _commands(files: TreeFiles, file: str) -> tuple[CMakeCommand, ...]:
    return parse_script(files.text(file) or "").commands
