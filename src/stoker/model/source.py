"""What a source tree is, as read from its own files."""

from enum import StrEnum

from stoker.model.value import Value
from stoker.model.variant import Backend


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
    choices: tuple[str, ...] = ()  # the values that it may have, if the tree lists them

    @property
    def where(self) -> str:
        return f"{self.file}:{self.line}"


class ListedOption(Value, frozen=True, kw_only=True):
    """An option and the environment variable that reaches it, where there is a front end."""

    option: CMakeOption
    variable: str | None
    turned_on: str = ""  # the file of the front end that turns it on unless it is set


class Submodule(Value, frozen=True, kw_only=True):
    path: str
    present: bool  # the folder exists and is not empty


class ReadVariable(Value, frozen=True, kw_only=True):
    """A variable that the build of a tree reads, and the first place where it does."""

    name: str
    where: str  # "setup.py:74"
    environment: bool = True  # else a variable of CMake
    default: str | None = None  # the value without it, where the tree writes it down
    certain: bool = True  # else the tree only lists the name, among names that it passes on
    within: str | None = None  # the condition in CMake under which it is declared
    compared: tuple[str, ...] = ()  # the words that its value is compared with


class Standard(Value, frozen=True, kw_only=True):
    """A C++ standard that the build asks for: ``17``."""

    version: int
    where: str


class Minimum(Value, frozen=True, kw_only=True):
    """The oldest CUDA, or the oldest GPU as ``7.5``, that the build of a tree accepts."""

    version: str
    where: str


class SupportedTargets(Value, frozen=True, kw_only=True):
    """The only GPU targets that the build of a tree accepts, as ``9.0``."""

    archs: tuple[str, ...]
    where: str


class NamedTarget(Value, frozen=True, kw_only=True):
    """A GPU target that the build of a tree names itself, in a flag or a list of its own.

    ``variable`` is the environment variable on which it depends: the target is compiled unless the
    variable has the value ``excludes``, or only if it has the value ``includes``.
    """

    where: str  # "setup.py:43"
    arch: str = ""  # "9.0a", "gfx942"; empty if the tree computes it
    ptx: bool = False
    amd: bool = False
    conditional: bool = False  # it depends on something that was not understood
    replaces: bool = False  # what CMAKE_CUDA_ARCHITECTURES was set to
    without_gpu: bool = False  # only where no GPU is visible
    single: bool = False  # named beside targets that a variable chooses
    variable: str = ""
    includes: str = ""
    excludes: str = ""


class NativeCode(Value, frozen=True, kw_only=True):
    """A place that compiles for the CPU of the build machine: ``-march=native``."""

    where: str
    within: str | None = None  # the condition in CMake


class Presence(Value, frozen=True, kw_only=True):
    """What the files of a build show of the facts of a recipe, each with its first place."""

    numbers: dict[str, str] = {}  # GPU targets and versions that the files name: "9.0a"
    shown: dict[str, str] = {}  # patterns of the recipe that were found
    listed: dict[str, tuple[tuple[str, ...], ...]] = {}  # the lists that patterns capture


class CudaCode(StrEnum):
    """How the CMake files of a tree have CUDA code compiled; of several ways the first counts."""

    LANGUAGE = "as a language of CMake"
    UNKNOWN = "in another way, or not known"
    FIND_CUDA = "by the macros of FindCUDA, which do not read CMAKE_CUDA_ARCHITECTURES"
    NONE = "not at all"


class CompiledCode(Value, frozen=True, kw_only=True):
    """What a build compiles, and what it says about that."""

    compiles: bool = True  # code at all
    device_source: str | None = None  # where a source for GPUs is listed; None: nowhere
    targets: tuple[NamedTarget, ...] = ()  # GPU targets that the build names itself
    flags: tuple[ReadVariable, ...] = ()  # arguments that setup.py looks for: "--force_cuda"
    native: tuple[NativeCode, ...] = ()
    cuda_minimum: Minimum | None = None
    oldest_gpu: Minimum | None = None
    supported: SupportedTargets | None = None
    cuda_if_found: str | None = None  # where a toolkit is looked for to decide about CUDA
    needs_gpu: str | None = None  # where the build refuses if no GPU is visible
    calls_cmake: bool = False  # from its Python files
    # Variables and values that leave all CUDA extensions out; None if one stays.
    without_cuda: dict[str, str] | None = None


class AddedTarget(Value, frozen=True, kw_only=True):
    """A GPU target that single kernels get if the build compiles for another one."""

    arch: str
    of: str  # the target of the build
    cuda: str | None = None  # from this CUDA on


class ReleaseFacts(Value, frozen=True, kw_only=True):
    """What a PyTorch tree says that other releases say differently."""

    python_oldest: str | None = None
    python_newest: str | None = None
    added: tuple[AddedTarget, ...] = ()
    turned_on: dict[str, str] = {}  # options that the front end turns on, and the file that does
    fetched: dict[str, str] = {}  # libraries that the build fetches if it finds none, and by what
    device_code: dict[Backend, str] = {}  # of back ends that no compile command of a GPU shows


class SourceTree(Value, frozen=True, kw_only=True):
    path: str
    kind: ProjectKind
    name: str
    version: str | None
    front_end: FrontEnd
    options: tuple[CMakeOption, ...] = ()
    variables: tuple[str, ...] = ()  # names the CMake files read or set otherwise
    printed: frozenset[str] = frozenset()  # variables that its CMake files only print
    cmake_minimum: str | None = None  # the oldest CMake that the tree accepts
    submodules: tuple[Submodule, ...] = ()
    requirements: tuple[str, ...] = ()  # PEP 508 lines needed before building
    own_protobuf: bool | None = None  # third_party/protobuf is there; None: not PyTorch
    lacks: tuple[str, ...] = ()  # files that setup.py of PyTorch copies into a wheel with CUDA
    cuda_archs: tuple[str, ...] = ()  # those the tree's own lists name, as "9.0a"
    backends: tuple[str, ...] = ()  # those the tree can be built with
    recipe: str | None = None  # the name of the recipe that describes it
    folder: str = ""  # of CMakeLists.txt, if that is not in the root
    asks: tuple[ReadVariable, ...] = ()  # variables that its build reads
    readers: tuple[str, ...] = ()  # libraries it uses that read variables of their own
    overwrites: tuple[ReadVariable, ...] = ()  # environment variables that its build sets itself
    code: CompiledCode = CompiledCode()
    passed: dict[str, str] = {}  # options that setup.py gives CMake in every case
    # Back ends that only the name of a variable speaks of, with that variable and its place.
    hinted: dict[str, str] = {}
    standards: tuple[Standard, ...] = ()
    cuda_code: CudaCode = CudaCode.UNKNOWN
    requires_cuda: bool = False  # CMake cannot configure it without CUDA
    cuda_switches: frozenset[str] = frozenset()  # conditions under which CMake enables CUDA
    release: ReleaseFacts | None = None  # of PyTorch
    presence: Presence | None = None  # of the facts of its recipe; None: not read
    notes: tuple[str, ...] = ()  # what could not be read, and why

    @property
    def missing_submodules(self) -> list[str]:
        return [module.path for module in self.submodules if not module.present]

    def option(self, name: str) -> CMakeOption | None:
        """Return the declaration outside any if() if there is one, else the first declaration."""
        declared = [option for option in self.options if option.name == name]
        return min(declared, key=lambda option: option.within is not None, default=None)

    def ask(self, name: str, *, environment: bool) -> ReadVariable | None:
        """Return the place where the build reads a variable, if it does."""
        found = (ask for ask in self.asks if ask.name == name and ask.environment is environment)
        return next(found, None)


class SourceKind(StrEnum):
    """How a tree was named."""

    FOLDER = "folder"
    ARCHIVE = "archive"
    GIT = "git"
    INDEX = "package index"
