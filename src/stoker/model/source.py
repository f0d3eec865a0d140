"""A source tree and its options; versions, requirements and tags of distributions."""

from enum import StrEnum

from stoker.model.value import Value

# -- source ----------------------------------------------------------------------------------------
# What a source tree is, as read from its own files.


class ProjectKind(StrEnum):
    PYTORCH = "pytorch"
    EXTENSION = "extension"  # built with torch's cpp_extension
    CMAKE = "cmake"


class FrontEnd(StrEnum):
    SETUPTOOLS = "setup.py"
    SCIKIT_BUILD_CORE = "scikit-build-core"
    OTHER_BACKEND = "another build backend"
    CMAKE = "plain CMake"


class OptionKind(StrEnum):
    OPTION = "option"
    DEPENDENT = "dependent"
    CACHED = "cached"


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
    notes: tuple[str, ...] = ()  # what could not be read, and why

    def option(self, name: str) -> CMakeOption | None:
        """Return the declaration outside any if() if there is one, else the first declaration."""
        declared = [option for option in self.options if option.name == name]
        return min(declared, key=lambda option: option.within is not None, default=None)


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
