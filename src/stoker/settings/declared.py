"""Every option, declared once: the command line, the environment and stoker.toml derive from it."""

from stoker.model.value import Value


class Declared(Value, frozen=True, kw_only=True):
    """``name`` is a key in stoker.toml, a flag on the command line, a variable outside."""

    name: str
    help: str
    metavar: str
    default: str | None = None

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return "STOKER_" + self.name.upper()


OPTIONS: dict[str, Declared] = {
    option.name: option
    for option in (
        Declared(
            name="variant",
            help="What to build for: words such as cu130-sm90-avx512, h100, cpu, native, "
            "or a name from stoker.toml.",
            metavar="VARIANT",
            default="native",
        ),
        Declared(
            name="source",
            help="Source tree of PyTorch, an extension or a CMake project.",
            metavar="DIR",
        ),
        Declared(
            name="platform",
            help="Target platform, e.g. linux-x86_64. Default: implied by the variant, else this "
            "machine.",
            metavar="OS-CPU",
        ),
        Declared(name="blas", help="BLAS library: mkl, openblas, eigen, ...", metavar="NAME"),
        Declared(name="python", help="Python version to build for, e.g. 3.12.", metavar="X.Y"),
        Declared(
            name="build_type",
            help="Release, Debug, RelWithDebInfo or MinSizeRel.",
            metavar="TYPE",
        ),
        Declared(name="sanitizer", help="asan, ubsan or tsan.", metavar="NAME"),
    )
}

# Parts of a variant that can also be given apart from its name.
PARTS = ("platform", "blas", "python", "build_type", "sanitizer")


class Request(Value, frozen=True, kw_only=True):
    """What was said on the command line, unread."""

    options: dict[str, str] = {}
    features: tuple[str, ...] = ()
    defines: dict[str, str] = {}
