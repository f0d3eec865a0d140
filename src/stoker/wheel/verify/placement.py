"""Checks what a wheel writes outside of its own packages.

A wheel may add modules to site-packages, scripts to the scheme for them, and data to the folders
of an environment that packages share. What starts with every Python, what belongs to the
interpreter or to another distribution, and what leaves these folders is not the wheel's to write.
"""

import re
from collections.abc import Iterator

from packaging.utils import canonicalize_name

from stoker.knowledge.start_files import is_known_start_file
from stoker.model.finding import Finding, error, warning
from stoker.wheel.inspect.origins import installed_path
from stoker.wheel.verify.tested import Placed, WheelUnderTest
from stoker.wheel.zip import Wheel
from stoker.wheel.zip.metadata import required_name

_LARGEST_TEXT = 1 << 20  # bytes of a file that is read for this check
_START_MODULES = re.compile(r"(?:sitecustomize|usercustomize)(?:\.py|\.[^/]*so|/.*)")
_SCHEME = re.compile(r"[^/]+\.data/([^/]+)/(.+)")
_SHARED = ("etc", "include", "lib", "lib64", "share")  # folders of an environment
_INTERPRETERS = re.compile(r"lib(?:64)?/python[^/]*/.*|pyvenv\.cfg")
_TOOLS = re.compile(r"(?:python|pip|activate|deactivate)[\d.]*(?:\.\w+)?", re.IGNORECASE)
_COMMANDS = re.compile(r"^\[(?:console|gui)_scripts\]$")
_LONGEST = 120  # characters of a line that a finding shows


def read_placed(wheel: Wheel) -> Placed:
    """Return what only the content of files tells: lines that Python executes at its start, and
    the names of commands.
    """
    starts: dict[str, tuple[str, ...]] = {}
    for name, member in wheel.members.items():
        place = installed_path(name)
        if "/" in place or not place.endswith(".pth"):
            continue
        if member.size > _LARGEST_TEXT:
            starts[place] = (f"{member.size} bytes, too many to be read",)
            continue
        lines = wheel.read(name).decode(errors="replace").splitlines()
        starts[place] = tuple(line for line in lines if line.startswith(("import ", "import\t")))
    listing, commands, inside = f"{wheel.dist_info}/entry_points.txt", [], False
    if listing in wheel.members and wheel.members[listing].size <= _LARGEST_TEXT:
        for line in wheel.read(listing).decode(errors="replace").splitlines():
            if line.startswith("["):
                inside = _COMMANDS.match(line.strip()) is not None
            elif inside and "=" in line:
                commands.append(line.partition("=")[0].strip())
    return Placed(starts=starts, commands=tuple(commands))


def starting_code(wheel: WheelUnderTest) -> Iterator[Finding]:
    """Check that nothing in the wheel runs whenever a Python of the environment starts."""
    names = [place for place in sorted(wheel.places) if _START_MODULES.fullmatch(place)]
    lines, known, paths = list(names), [], []
    for place, executed in wheel.placed.starts.items():
        if not executed:
            paths.append(place)
        elif is_known_start_file(wheel.project, place):
            known.append(f"{place}: {executed[0][:_LONGEST]}")
        else:
            lines.append(f"{place}: {executed[0][:_LONGEST]}")
    if lines:
        yield error("runs-at-start", "it runs code whenever Python starts", lines)
    if known:
        title = "it runs code whenever Python starts, as this project is known to"
        yield warning("known-start-file", title, known)
    if paths:
        yield warning("adds-search-path", "it adds folders to the search path of Python", paths)


def foreign_files(wheel: WheelUnderTest) -> Iterator[Finding]:
    """Check the files that land elsewhere than in packages of the wheel."""
    wrong = [
        f"the command {command[:_LONGEST]!a} is no file name"
        for command in wheel.placed.commands
        if "/" in command or "\\" in command or not command.isprintable()
    ]
    wrong += [
        f"the command {command} replaces one of the environment"
        for command in wheel.placed.commands
        if _is_a_tool(wheel, command)
    ]
    odd = []
    for member in wheel.members:
        if match := _SCHEME.fullmatch(member.name):
            scheme, path = match.groups()
            if why := _owner(wheel, scheme, path):
                wrong.append(f"{member.name}: {why}")
            elif not _is_usual(scheme, path):
                odd.append(member.name)
    if wrong:
        yield error("foreign-files", "it writes files that are not its own", wrong)
    if odd:
        title = "it writes files outside of packages and shared folders"
        yield warning("files-outside", title, odd)


def _owner(wheel: WheelUnderTest, scheme: str, path: str) -> str | None:
    """Return whose a file is that an installer writes for a scheme; None if it may be a wheel's."""
    if scheme in ("purelib", "platlib"):
        folder = path.partition("/")[0]
        if folder.endswith((".dist-info", ".egg-info")):
            return "the metadata of another distribution"
    elif scheme == "scripts":
        return "a command of the environment" if _is_a_tool(wheel, path) else None
    elif scheme == "data" and _INTERPRETERS.fullmatch(path):
        return "a file of the interpreter"
    elif scheme == "data" and path.startswith("bin/"):
        return "a program; those belong in the scheme `scripts`"
    return None


def _is_usual(scheme: str, path: str) -> bool:
    if scheme == "data":
        return path.partition("/")[0] in _SHARED
    return scheme in ("purelib", "platlib", "headers") or (scheme == "scripts" and "/" not in path)


def _is_a_tool(wheel: WheelUnderTest, name: str) -> bool:
    """Return whether a script has the name of an interpreter or of the installer itself."""
    return _TOOLS.fullmatch(name) is not None and not name.startswith(wheel.project)


def files_of_requirements(wheel: WheelUnderTest) -> Iterator[Finding]:
    """Warn of files in the folder of a package that another distribution installs."""
    required = {required_name(line) for line in wheel.metadata.requires} - {None, wheel.project}
    folders = {place.partition("/")[0] for place in wheel.places if "/" in place}
    shared = sorted(folder for folder in folders if canonicalize_name(folder) in required)
    if shared:
        title = "it adds files to the packages of its requirements"
        yield warning("files-of-a-requirement", title, shared)
