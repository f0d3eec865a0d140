"""Compiler caches and distributors: what the user asks for, what is here, and what is used."""

from enum import StrEnum

from stoker.model.govern import CompileMode
from stoker.model.setting import Setting
from stoker.model.value import Value

# Variables on which the objects of a build depend besides its files. Compilers read the first ones
# themselves, so that no command shows them; build tools make commands of the others.
NVCC_FLAGS = ("NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS")
READ_BY_COMPILERS = (
    *NVCC_FLAGS,
    *("INCLUDES", "SYSTEM_INCLUDES", "CUDAFE_FLAGS", "PTXAS_FLAGS", "NVCC_CCBIN"),  # nvcc
    *("HIPCC_COMPILE_FLAGS_APPEND", "CCC_OVERRIDE_OPTIONS", "COMPILER_PATH"),
    *("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH"),
)
FLAGS = ("CFLAGS", "CXXFLAGS", "CUDAFLAGS", "LDFLAGS")
LAUNCHERS = tuple(f"CMAKE_{language}_COMPILER_LAUNCHER" for language in ("C", "CXX", "CUDA", "HIP"))
READ_BY_BUILD_TOOLS = (
    *FLAGS,
    *LAUNCHERS,
    *("CC", "CXX", "CUDACXX", "CUDAHOSTCXX", "CUDA_HOME", "CUDA_PATH", "CMAKE_PREFIX_PATH"),
)
# Variables that only say how many steps run at once.
NUMBER_OF_JOBS = ("MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL")


class CacheEngine(StrEnum):
    """A compiler cache; the words of ``--cache``."""

    AUTO = "auto"
    PROJECT = "project"  # only what the project starts by itself
    NONE = "none"
    CCACHE = "ccache"
    SCCACHE = "sccache"


class Distributor(StrEnum):
    """What sends compiles to other machines."""

    NONE = "none"
    DISTCC = "distcc"
    SCCACHE_DIST = "sccache-dist"


class ChainOptions(Value, frozen=True, kw_only=True):
    """What the user asks for. ``launcher`` is a program that starts compilers. ``reshare``: also
    what the local cache has is sent to the remote.
    """

    cache: CacheEngine = CacheEngine.AUTO
    remote: str | None = None
    reshare: bool = False
    launcher: str | None = None
    distribute: str = "none"
    trust_network: bool = False
    linker: CompileMode = CompileMode.DEFAULT


class ChainPart(Value, frozen=True, kw_only=True):
    """A part of the chain from the build tool to the compiler, and the reason for it.

    ``unusable``: it was asked for and cannot be used; ``why`` names it and says the reason.
    """

    role: str
    what: str
    why: str
    unusable: bool = False


class Chain(Value, frozen=True, kw_only=True):
    """What stands between the build tool and each compile, and what links.

    ``wrapper`` is the program that is started in place of each compile, if there is one.
    """

    engine: CacheEngine = CacheEngine.NONE
    distributor: Distributor = Distributor.NONE
    slots: int = 0  # compiles that other machines run at the same time
    wrapper: str | None = None
    scheduler: str = ""  # the address of sccache-dist's, if stoker configures its client
    folder: str = ""  # of ccache, which does not say when its disk is full
    linker: CompileMode = CompileMode.DEFAULT
    parts: tuple[ChainPart, ...] = ()
    settings: tuple[Setting, ...] = ()


class Hits(Value, frozen=True, kw_only=True):
    hits: int = 0
    misses: int = 0

    @property
    def rate(self) -> float | None:
        asked = self.hits + self.misses
        return self.hits / asked if asked else None


class CacheUse(Value, frozen=True, kw_only=True):
    """What a cache had, by language. ``errors`` are failures of the remote. ``workers`` are the
    jobs that each worker of sccache-dist has done, and ``fell_back`` those that no worker did.
    """

    languages: dict[str, Hits] = {}
    remote_hits: int = 0
    errors: int = 0
    workers: dict[str, int] = {}
    fell_back: int = 0

    @property
    def total(self) -> Hits:
        rows = self.languages.values()
        return Hits(hits=sum(row.hits for row in rows), misses=sum(row.misses for row in rows))


class CacheStatus(Value, frozen=True, kw_only=True):
    """The state of a cache on this machine. Times are in seconds since the epoch."""

    engine: CacheEngine
    program: str
    folder: str
    size_bytes: int
    most_bytes: int | None
    files: int | None = None
    oldest: float | None = None
    newest: float | None = None
    remote: str | None = None
    remote_problem: str | None = None
    problem: str | None = None
