"""A source tree and its options; versions, requirements and tags of distributions."""

import re
from collections.abc import Iterable
from enum import StrEnum
from itertools import islice

from packaging.requirements import InvalidRequirement, Requirement
from packaging.tags import Tag, parse_tag
from packaging.version import InvalidVersion, Version

from stoker.model.value import Value

# -- source ----------------------------------------------------------------------------------------
# What a source tree is, as read from its own files.


class ProjectKind(StrEnum):
    PYTORCH = "pytorch"
    EXTENSION = "extension"  # built with torch's cpp_extension
    CMAKE = "cmake"
    PACKAGE = "package"  # any other Python package that compiles code


class FrontEnd(StrEnum):
    SETUPTOOLS = "setup.py"
    SCIKIT_BUILD_CORE = "scikit-build-core"
    OTHER_BACKEND = "another build backend"
    CMAKE = "plain CMake"


class OptionKind(StrEnum):
    OPTION = "option"
    DEPENDENT = "dependent"
    CACHED = "cached"
    VARIABLE = "environment"  # a variable that setup.py or a CMake file reads


class CMakeOption(Value, frozen=True, kw_only=True):
    """One declaration in a CMake file. An option declared twice has two of these."""

    name: str
    kind: OptionKind
    type: str  # BOOL, STRING, PATH, FILEPATH, INTERNAL
    default: str
    help: str
    file: str  # relative to the tree
    line: int
    condition: str | None = None  # of a dependent option
    otherwise: str | None = None  # its value where the condition fails
    within: str | None = None  # the if() blocks that contain it, outermost first


class ListedOption(Value, frozen=True, kw_only=True):
    """An option and the environment variable that reaches it, where there is a front end."""

    option: CMakeOption
    variable: str | None


class Submodule(Value, frozen=True, kw_only=True):
    path: str
    present: bool  # the folder exists and is not empty


class Ask(Value, frozen=True, kw_only=True):
    """A variable that the build of a tree reads, and the first place where it does."""

    name: str
    where: str  # "setup.py:74"
    environment: bool = True  # else a variable of CMake
    default: str | None = None  # the value without it, where the tree writes it down
    certain: bool = True  # else the tree only lists the name, among names that it passes on
    within: str | None = None  # the condition in CMake under which it is declared


class Standard(Value, frozen=True, kw_only=True):
    """A C++ standard that the build asks for: ``17``."""

    version: int
    where: str


class Minimum(Value, frozen=True, kw_only=True):
    """The oldest CUDA that the tree's CMake files accept."""

    version: str
    where: str


class SourceTree(Value, frozen=True, kw_only=True):
    path: str
    kind: ProjectKind
    name: str
    version: str | None
    front_end: FrontEnd
    options: tuple[CMakeOption, ...] = ()
    variables: tuple[str, ...] = ()  # names the CMake files read or set otherwise
    cmake_minimum: str | None = None  # the oldest CMake that the tree accepts
    submodules: tuple[Submodule, ...] = ()
    requirements: tuple[str, ...] = ()  # PEP 508 lines needed before building
    own_protobuf: bool | None = None  # third_party/protobuf is there; None: not PyTorch
    cuda_archs: tuple[str, ...] = ()  # those the tree's own lists name, as "9.0a"
    backends: tuple[str, ...] = ()  # those the tree can be built with
    recipe: str | None = None  # the name of the recipe that describes it
    folder: str = ""  # of CMakeLists.txt, if that is not in the root
    asks: tuple[Ask, ...] = ()  # variables that its build reads
    readers: tuple[str, ...] = ()  # libraries it uses that read variables of their own
    overwrites: tuple[Ask, ...] = ()  # environment variables that its build sets itself
    own_targets: tuple[str, ...] = ()  # places where its build names GPU targets itself
    standards: tuple[Standard, ...] = ()
    cuda_minimum: Minimum | None = None
    device_sources: tuple[str, ...] = ()  # suffixes of its sources for GPUs: ".cu"
    notes: tuple[str, ...] = ()  # what could not be read, and why

    def option(self, name: str) -> CMakeOption | None:
        """Return the declaration outside any if() if there is one, else the first declaration."""
        declared = [option for option in self.options if option.name == name]
        return min(declared, key=lambda option: option.within is not None, default=None)

    def ask(self, name: str, *, environment: bool) -> Ask | None:
        """Return the place where the build reads a variable, if it does."""
        found = (ask for ask in self.asks if ask.name == name and ask.environment is environment)
        return next(found, None)


class SourceKind(StrEnum):
    """How a tree was named."""

    FOLDER = "folder"
    ARCHIVE = "archive"
    GIT = "git"
    INDEX = "package index"


class Acquired(Value, frozen=True, kw_only=True):
    """A source tree that is on this machine, whole, and what it was made from."""

    kind: SourceKind
    given: str  # as the user named it, without credentials
    path: str  # the tree's folder
    identity: str | None = None  # "commit 1a2b..." or "sha256 3c4d..."; a folder has none
    notes: tuple[str, ...] = ()


# -- distribution ----------------------------------------------------------------------------------
# Reads versions, requirements and tags of Python packages from untrusted text.
#
# ``packaging`` reads them. What would make it fail with other errors than its own is refused first:
# numbers with too many digits, deep nesting, tags that stand for millions.


_LONGEST = 10_000  # characters of a requirement, which may hold a URL and a marker
_HUGE_NUMBER = re.compile(r"\d{100}")
_TAG = re.compile(r"[0-9A-Za-z_.]+-[0-9A-Za-z_.]+-[0-9A-Za-z_.]+")
_MOST_IN_A_TAG = 30  # dots: a line stands for the product of its three sets
_MOST_TAGS = 5000  # of a wheel


def read_version(text: str) -> Version:
    """Return the version; raise InvalidVersion if the text is none."""
    if len(text) > _LONGEST or _HUGE_NUMBER.search(text):
        raise InvalidVersion(f"Invalid version: {text[:40]!r}... has {len(text)} characters")
    return Version(text)


def read_requirement(text: str) -> Requirement:
    """Return the requirement; raise InvalidRequirement if the text is none."""
    if len(text) > _LONGEST or _HUGE_NUMBER.search(text):
        raise InvalidRequirement(f"{text[:40]!r}... has {len(text)} characters, or a huge number")
    try:
        return Requirement(text)
    except RecursionError:
        raise InvalidRequirement(f"{text[:40]!r}... is nested too deeply") from None


def read_tags(lines: Iterable[str]) -> frozenset[Tag]:
    """Return every tag that the lines stand for, up to some thousands."""
    tags: set[Tag] = set()
    for line in islice(lines, _MOST_TAGS):
        if len(tags) > _MOST_TAGS:
            break
        tags |= read_tag(line)
    return frozenset(tags)


def read_tag(line: str) -> frozenset[Tag]:
    """Return every tag that a line such as ``py2.py3-none-any`` stands for; none if it is wrong."""
    if not _TAG.fullmatch(line) or line.count(".") > _MOST_IN_A_TAG:
        return frozenset()
    try:
        return parse_tag(line)
    except ValueError:  # an empty part
        return frozenset()
