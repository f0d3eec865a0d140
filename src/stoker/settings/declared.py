"""Every setting, declared once. Flags, STOKER_ variables, stoker.toml and docs derive from it."""

from enum import StrEnum

from stoker.model.value import Value


class SettingKind(StrEnum):
    """The type of a setting's value."""

    TEXT = "text"
    SIZE = "size"  # bytes, such as 8G
    SIZE_OR_NONE = "size or none"  # bytes, or 0
    COUNT = "count"
    DURATION = "duration"  # seconds, such as 5h30m
    DURATION_OR_NONE = "duration or none"  # seconds, or 0
    SWITCH = "switch"


class SettingGroup(StrEnum):
    """The commands that have the setting."""

    PLAN = "plan"  # plan, doctor, build and develop
    BUILD = "build"
    MATRIX = "matrix"
    GOVERN = "govern"  # run, build and develop
    CHAIN = "chain"  # the same, plan and cache


class Declared(Value, frozen=True, kw_only=True):
    """A setting. ``name`` is its key in stoker.toml."""

    name: str
    help: str
    metavar: str = ""
    default: str | None = None
    kind: SettingKind = SettingKind.TEXT
    choices: tuple[str, ...] = ()
    group: SettingGroup = SettingGroup.PLAN
    rare: bool = False  # shown by --help-all, not by --help
    local: bool = False  # means something on this machine: not repeated in a container
    reaches_out: bool = False  # starts a program or reaches the network: only from a trusted file

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return "STOKER_" + self.name.upper()


_PLAN = (
    Declared(
        name="variant",
        help="What to build for: words such as cu130-sm90-avx512, h100, cpu, native, "
        "or a name from stoker.toml.",
        metavar="VARIANT",
        default="native",
    ),
    Declared(
        name="source",
        local=True,
        help="Source of PyTorch, an extension or a CMake project. Default: this folder.",
        metavar="SOURCE",
    ),
    Declared(
        name="platform",
        rare=True,
        help="Target platform, e.g. linux-x86_64. Default: implied by the variant, else this "
        "machine.",
        metavar="OS-CPU",
    ),
    Declared(name="blas", help="BLAS library: mkl, openblas, eigen, ...", metavar="NAME"),
    Declared(
        name="python",
        help="Python to build for, by version or path.",
        metavar="X.Y|PATH",
    ),
    Declared(
        name="build_type",
        help="Release, Debug, RelWithDebInfo, MinSizeRel.",
        metavar="TYPE",
    ),
    Declared(name="sanitizer", rare=True, help="asan, ubsan or tsan.", metavar="NAME"),
    Declared(
        name="recipe",
        rare=True,
        help="A TOML file with recipes of projects, which come before those of stoker.",
        metavar="FILE",
        reaches_out=True,
    ),
    Declared(
        name="keep_targets",
        rare=True,
        help="Compile for all GPU targets that the build names itself. Default: those that the "
        "variant does not need are left out of the commands of nvcc, if the build was asked.",
        kind=SettingKind.SWITCH,
    ),
)
_BUILD = (
    Declared(
        name="out",
        local=True,
        help="Folder that receives the wheel. Default: dist.",
        metavar="DIR",
        default="dist",
        group=SettingGroup.BUILD,
    ),
    Declared(
        name="mode",
        help="Where libraries that a wheel needs come from; see `stoker package`. auto: plain, or "
        "what else `stoker verify` asks for. Default: auto.",
        default="auto",
        choices=("auto", "plain", "pypi", "bundle"),
        group=SettingGroup.BUILD,
    ),
    Declared(
        name="isolation",
        rare=True,
        help="Python packages that the build back end sees. none: the installed ones; full: only "
        "those that the project requires, from the package index; torch: the same, with the "
        "installed PyTorch. Default: none for PyTorch and its extensions.",
        choices=("none", "full", "torch"),
        group=SettingGroup.BUILD,
    ),
    Declared(
        name="torch",
        rare=True,
        reaches_out=True,
        help="PyTorch that an extension is compiled with, installed for the build only: a version, "
        "or what pip installs, such as torch==2.9.1+cu126. Default: the installed one.",
        metavar="VERSION",
        group=SettingGroup.BUILD,
    ),
    Declared(
        name="torch_index",
        rare=True,
        reaches_out=True,
        help="Package index that has the PyTorch of --torch; {cuda} in its address becomes that of "
        "the variant, such as cu130, or cpu. Default: the index of pip.",
        metavar="URL",
        group=SettingGroup.BUILD,
    ),
    Declared(
        name="accept_targets",
        rare=True,
        help="Build also if compile commands name other GPU targets than the plan, or none.",
        kind=SettingKind.SWITCH,
        group=SettingGroup.BUILD,
    ),
    Declared(
        name="ask",
        rare=True,
        help="Ask the build what it compiles, in a closed room, before it starts. Default: if no "
        "recipe and no file of the tree settles the GPU targets.",
        kind=SettingKind.SWITCH,
        group=SettingGroup.BUILD,
    ),
    Declared(
        name="label",
        rare=True,
        help="Local version label of the wheel. auto: the variant's own, such as "
        "cu130.sm90.avx512. Default: none; auto in a matrix.",
        metavar="LABEL",
        group=SettingGroup.BUILD,
    ),
)
_MATRIX = (
    Declared(
        name="from",
        help="What a matrix makes each wheel from. build: the source; slim: an existing wheel, "
        "cut down to the GPUs of the variant. Default: build.",
        default="build",
        choices=("build", "slim"),
        group=SettingGroup.MATRIX,
    ),
    Declared(
        name="wheel",
        help="The wheel to slim: a path, or NAME==VERSION of the package index.",
        metavar="WHEEL",
        group=SettingGroup.MATRIX,
    ),
)
_GOVERN = (
    Declared(
        name="memory",
        local=True,
        help="Memory limit, e.g. 8G. Default: what the machine or its cgroup allows.",
        metavar="SIZE",
        kind=SettingKind.SIZE,
        group=SettingGroup.GOVERN,
    ),
    Declared(
        name="keep_free",
        rare=True,
        help="Memory to leave to other programs, e.g. 2G, or 0.",
        metavar="SIZE",
        kind=SettingKind.SIZE_OR_NONE,
        group=SettingGroup.GOVERN,
    ),
    Declared(
        name="cpus",
        help="Number of CPUs to use. Default: all that the build may use.",
        metavar="N",
        kind=SettingKind.COUNT,
        group=SettingGroup.GOVERN,
    ),
    Declared(
        name="stop_after",
        help="Start no step that would end later than this, such as 5h30m; then stop with status "
        "75. The same command continues.",
        metavar="TIME",
        kind=SettingKind.DURATION,
        group=SettingGroup.GOVERN,
    ),
    Declared(
        name="stop_grace",
        rare=True,
        help="How long after --stop-after a step may still run before it is ended, such as 2m, or "
        "0. Default: a twentieth of that time, at most 5 minutes.",
        metavar="TIME",
        kind=SettingKind.DURATION_OR_NONE,
        group=SettingGroup.GOVERN,
    ),
    Declared(
        name="nice",
        rare=True,
        help="Run with a lower priority than other programs.",
        kind=SettingKind.SWITCH,
        group=SettingGroup.GOVERN,
    ),
    Declared(
        name="policy",
        rare=True,
        help="How steps are admitted: adaptive, fixed, fixed:N, levels or two-phase. "
        "Default: adaptive.",
        metavar="NAME",
        default="adaptive",
        group=SettingGroup.GOVERN,
    ),
    Declared(
        name="gc",
        rare=True,
        help="Let gcc collect garbage more often when memory is short, and less often when it is "
        "idle. auto: if the objects stay the same; always: also if debug information records it.",
        default="auto",
        choices=("auto", "off", "always"),
        group=SettingGroup.GOVERN,
    ),
    Declared(
        name="nvcc_threads",
        rare=True,
        help="Let nvcc compile several GPU targets at once when CPUs would be idle. auto: if the "
        "command has no --threads.",
        default="auto",
        choices=("auto", "off"),
        group=SettingGroup.GOVERN,
    ),
    Declared(
        name="tmp",
        rare=True,
        help="Where compilers put temporary files. auto: in memory if there is plenty.",
        default="auto",
        choices=("auto", "ram", "disk"),
        group=SettingGroup.GOVERN,
    ),
    Declared(
        name="via",
        rare=True,
        help="How compilers are intercepted. launcher: also through CMake's launcher variables, "
        "for build tools that are linked statically.",
        default="preload",
        choices=("preload", "launcher"),
        group=SettingGroup.GOVERN,
    ),
    Declared(
        name="progress",
        local=True,
        help="How progress is shown on stderr.",
        default="auto",
        choices=("auto", "live", "log", "json", "quiet"),
        group=SettingGroup.GOVERN,
    ),
)
_CHAIN = (
    Declared(
        name="cache",
        help="Compiler cache. auto: ccache if it is installed. project: only one that the project "
        "starts itself. Default: auto; for `stoker run` project.",
        choices=("auto", "project", "none", "ccache", "sccache"),
        group=SettingGroup.CHAIN,
    ),
    Declared(
        name="cache_remote",
        rare=True,
        reaches_out=True,
        help="Storage that caches of several machines share, e.g. redis://HOST:6379.",
        metavar="URL",
        group=SettingGroup.CHAIN,
    ),
    Declared(
        name="compiler_launcher",
        reaches_out=True,
        rare=True,
        help="Another program that starts each compile, such as buildcache.",
        metavar="PROGRAM",
        group=SettingGroup.CHAIN,
    ),
    Declared(
        name="distribute",
        reaches_out=True,
        help="Send compiles to other machines: none, sccache-dist:URL (also CUDA) or distcc:HOSTS. "
        "Default: none.",
        metavar="ENGINE",
        default="none",
        group=SettingGroup.CHAIN,
    ),
    Declared(
        name="trust_network",
        reaches_out=True,
        rare=True,
        help="Allow --distribute to use public addresses: it has no authentication.",
        kind=SettingKind.SWITCH,
        group=SettingGroup.CHAIN,
    ),
)
_LINKER = Declared(
    name="linker",
    help="Another linker for all links of gcc and clang. Default: default, that of the build.",
    default="default",
    choices=("default", "mold", "lld", "gold"),
    group=SettingGroup.CHAIN,
)
_ALL = (*_PLAN, *_BUILD, *_MATRIX, *_GOVERN, *_CHAIN, _LINKER)
OPTIONS: dict[str, Declared] = {option.name: option for option in _ALL}

# Each is a field of BuildRequest.
BUILD_SETTINGS = tuple(option.name for option in _BUILD)

# Parts of a variant that can also be given apart from its name.
PARTS = ("platform", "blas", "python", "build_type", "sanitizer")


class CommandLine(Value, frozen=True, kw_only=True):
    """Settings, features and CMake options of the command line, unparsed.

    ``file`` is read instead of the stoker.toml of this folder.
    """

    options: dict[str, str] = {}
    features: tuple[str, ...] = ()
    defines: dict[str, str] = {}
    file: str | None = None
