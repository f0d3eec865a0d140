"""The input of a plan: every fact and every setting of the user, as one value.

The compiler flags that follow from it are the same for every project.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property, wraps
from typing import Any, TypeVar

import msgspec

from stoker.knowledge.cpus import cpu_family, cpu_flags
from stoker.knowledge.gpus import cuda_releases, gpus
from stoker.knowledge.platforms import PlatformRow, platforms
from stoker.knowledge.projects import projects
from stoker.knowledge.torch_releases import TorchRelease, torch_release
from stoker.model.errors import UsageError
from stoker.model.evidence import AskedBuild
from stoker.model.finding import Finding
from stoker.model.machine import CudaToolkit, Machine, Tool, Toolbox
from stoker.model.recipe import BackendRecipe, ProjectRecipe
from stoker.model.setting import Origin, OriginKind, Setting, SettingPlace
from stoker.model.source import ProjectKind, SourceTree
from stoker.model.value import Value, version_numbers
from stoker.model.variant import Backend, Feature, GpuTarget, Platform, Sanitizer, Variant
from stoker.plan.grammar import canonical, parse, parse_part
from stoker.plan.present import still_present

Said = tuple[str, Origin]
T = TypeVar("T")


class Subject(Value, frozen=True, kw_only=True, dict=True):
    """``defines`` are the user's -D options; ``exported`` are the environment variables."""

    variant: Variant
    name: str
    origins: dict[str, Origin]  # origins of the parts of the variant that were asked for
    machine: Machine
    toolbox: Toolbox
    tree: SourceTree | None = None
    defines: tuple[Setting, ...] = ()
    exported: Mapping[str, str] = {}
    cmake_variables: frozenset[str] = frozenset()  # variables that CMake itself defines
    own_recipes: tuple[ProjectRecipe, ...] = ()  # of stoker.toml or of a file of the user's
    asked: AskedBuild | None = None  # the answers of the build itself, if it was asked
    keep_targets: bool = False  # also those that the variant does not need
    told: tuple[Finding, ...] = ()  # what was found when the variant was read
    given: tuple[str, ...] = ()  # options that describe another machine: --memory, --cpus
    interpreter: str | None = None  # the path of the Python, if it was named by a path

    @property
    def python(self) -> str:
        """The Python to build for, as a word of a command."""
        version = self.variant.python
        return self.interpreter or (f"python{version}" if version else "python3")

    @property
    def project(self) -> ProjectRecipe | None:
        """The recipe of the tree, if there is one. The user's own come first."""
        name = self.tree.recipe if self.tree else None
        own = (recipe for recipe in self.own_recipes if recipe.name == name)
        return next(own, projects().get(name)) if name else None

    @cached_property
    def backend_recipe(self) -> BackendRecipe | None:
        """The facts of the recipe that the tree still shows; those of the user's own are kept."""
        known = self.project.backends.get(self.variant.backend) if self.project else None
        if known is None or self.tree is None or self.project in self.own_recipes:
            return known
        return still_present(known, self.tree.presence)

    @property
    def answer(self) -> AskedBuild | None:
        """What the build says that it compiles. A refusal says nothing about it."""
        return self.asked if self.asked and not self.asked.refusal else None

    @property
    def kind(self) -> ProjectKind:
        """The kind of the tree; PyTorch if no tree is given."""
        return self.tree.kind if self.tree else ProjectKind.PYTORCH

    @property
    def release(self) -> TorchRelease | None:
        """The PyTorch release of the tree, if it is a known one."""
        return torch_release(self.tree.version) if self.tree and self.is_pytorch else None

    @property
    def is_pytorch(self) -> bool:
        """Whether a PyTorch tree was given."""
        return self.tree is not None and self.tree.kind is ProjectKind.PYTORCH

    @property
    def platform(self) -> Platform:
        return target_platform(self.variant, self.machine.platform)

    @property
    def platform_row(self) -> PlatformRow:
        if self.platform not in platforms():
            known = ", ".join(str(platform) for platform in platforms())
            raise UsageError(f"no plan can be made for {self.platform}", hints=[f"known: {known}"])
        return platforms()[self.platform]

    @property
    def here(self) -> bool:
        """Whether the plan is for this platform, so that what is installed here matters."""
        return self.platform == self.machine.platform

    @cached_property
    def toolkit(self) -> CudaToolkit | None:
        """The CUDA toolkit of this machine that fits the variant and makes its targets, if any.
        What is compiled with PyTorch gets one that has the headers which PyTorch's include, if
        there is one.
        """
        if self.variant.backend is not Backend.CUDA or not self.here:
            return None
        wanted = self.variant.toolkit
        usable = [
            cuda
            for cuda in self.toolbox.cuda
            if cuda.version and not cuda.problem and wanted in (None, cuda.version)
        ]
        if self.is_with_torch:
            usable.sort(key=lambda cuda: len(cuda.lacks))
        targets = {target.arch for target in self.variant.gpus}
        for cuda in usable:
            release = cuda_releases().get(cuda.version or "")
            if release is None or targets <= set(release.archs):
                return cuda
        return usable[0] if usable else None

    @property
    def is_with_torch(self) -> bool:
        """Whether PyTorch is compiled, or something with its headers."""
        return self.kind in (ProjectKind.PYTORCH, ProjectKind.EXTENSION)

    @property
    def toolkit_home(self) -> str | None:
        return self.toolkit.home if self.toolkit else None

    @property
    def cuda_version(self) -> str | None:
        return self.variant.toolkit or (self.toolkit.version if self.toolkit else None)

    def cuda_is_at_least(self, wanted: str) -> bool:
        """Tell whether the CUDA of the plan is this release or a newer one, or is not known."""
        version = self.cuda_version
        return version is None or version_numbers(version) >= version_numbers(wanted)

    @property
    def gpus(self) -> tuple[GpuTarget, ...]:
        """The targets that were asked for, or else those of the GPUs in this machine."""
        if self.variant.gpus or not self.here:
            return self.variant.gpus
        known = {arch for arch, gpu in gpus().items() if gpu.backend is self.variant.backend}
        archs = {gpu.capability for gpu in self.machine.gpus} & known
        return tuple(sorted((GpuTarget(arch=a) for a in archs), key=lambda t: t.sort_key))

    @property
    def gpus_origin(self) -> Origin:
        return self.origins.get("gpus", Origin(kind=OriginKind.MACHINE))

    @property
    def toolkit_origin(self) -> Origin:
        return self.origins.get("toolkit", Origin(kind=OriginKind.MACHINE))

    def build_tool(self, name: str) -> Tool | None:
        """Return the first CMake or ninja that works and is new enough, or else the first one."""
        found = [tool for tool in self.toolbox.tools if tool.name == name]
        fitting = (tool for tool in found if not tool.problem and not self.is_too_old(tool))
        return next(fitting, found[0] if found else None)

    def program(self, name: str) -> str:
        """Return CMake or ninja as a word of a command: by its path if a shell finds another one,
        or none.
        """
        tool, path = self.build_tool(name), self.exported.get("PATH")
        if tool is None or tool.problem or path is None or not self.here:
            return name
        first = next(one for one in self.toolbox.tools if one.name == name)
        found = tool == first and tool.path.rpartition("/")[0] in path.split(":")
        return name if found else tool.path

    def is_too_old(self, tool: Tool) -> bool:
        minimum = self.tree.cmake_minimum if self.tree else None
        if tool.name != "cmake" or minimum is None or tool.version is None:
            return False
        return version_numbers(tool.version) < version_numbers(minimum)

    @property
    def compiler(self) -> tuple[str, str]:
        """Kind and version of the C++ compiler that a build uses: ``("gcc", "12.2.0")``."""
        for name in ("cxx", "g++", "clang++"):
            tool = self.toolbox.tool(name)
            if tool and tool.version and not tool.problem:
                name = tool.path.rpartition("/")[2]
                # On macOS, a compiler is clang unless its name says otherwise.
                clang = "clang" in name or (self.machine.os.system == "macos" and "g++" not in name)
                return ("clang" if clang else "gcc"), tool.version
        return "gcc", "15.1"  # the newest one

    def origin(self, part: str) -> Origin:
        """Return the origin of a part of the variant; the default if it was not asked for."""
        return self.origins.get(part, Origin(kind=OriginKind.DEFAULT))

    @property
    def has_front_end(self) -> bool:
        """Whether a Python build back end calls CMake. Without bindings, stoker calls it."""
        return not self.platform_row.mobile and self.feature("bindings") is not False

    def feature(self, name: str) -> bool | None:
        """Return True if asked for, False if switched off, None if left to the project."""
        return next((f.on for f in self.variant.features if f.name == name), None)


def once(function: Callable[[Subject], T]) -> Callable[[Subject], T]:
    """Return a function of a subject that is computed once for each subject."""

    @wraps(function)
    def kept(subject: Subject) -> T:
        if function.__name__ not in subject.__dict__:
            subject.__dict__[function.__name__] = function(subject)
        found: T = subject.__dict__[function.__name__]
        return found

    return kept


def target_platform(variant: Variant, here: Platform) -> Platform:
    """Return the platform that the variant names or implies, or else that of this machine."""
    if variant.platform is not None:
        return variant.platform
    if variant.backend is Backend.MPS and here.os != "macos":
        return Platform(os="macos", cpu="arm64")
    if variant.cpu is None or cpu_family(variant.cpu) in platforms_families(here):
        return here
    return Platform(os="linux", cpu=cpu_family(variant.cpu))


def platforms_families(platform: Platform) -> tuple[str, ...]:
    """Return the CPU families whose code runs on a platform; none for an unknown platform."""
    row = platforms().get(platform)
    return row.families if row else ()


_NDK = ("ANDROID_NDK", "ANDROID_NDK_HOME", "ANDROID_NDK_ROOT")


def ndk(subject: Subject) -> str | None:
    """Return the folder of Android's NDK, which only its variables name."""
    return next((subject.exported[name] for name in _NDK if subject.exported.get(name)), None)


def platform_options(subject: Subject) -> dict[str, str]:
    """Return the options of CMake for the platform; Android's need the NDK's toolchain file."""
    options = subject.platform_row.cmake
    folder = ndk(subject)
    if subject.platform.os != "android" or folder is None:
        return options
    return options | {
        "CMAKE_TOOLCHAIN_FILE": f"{folder}/build/cmake/android.toolchain.cmake",
        "CMAKE_ANDROID_NDK": folder,
        "ANDROID_ABI": options["CMAKE_ANDROID_ARCH_ABI"],
        "ANDROID_PLATFORM": f"android-{options['CMAKE_SYSTEM_VERSION']}",
    }


def environment(name: str, value: str, origin: Origin, why: str = "") -> Setting:
    return Setting(place=SettingPlace.ENVIRONMENT, name=name, value=value, origin=origin, why=why)


def option(name: str, value: str, origin: Origin, why: str = "") -> Setting:
    return Setting(place=SettingPlace.CMAKE, name=name, value=value, origin=origin, why=why)


def recipe_origin(kind: ProjectKind) -> Origin:
    return Origin(kind=OriginKind.RECIPE, where=kind.value)


def wanted_variant(
    text: Said,
    *,
    parts: Mapping[str, Said],
    features: Iterable[Said],
    machine: Machine | None,
    installed: Callable[[], Iterable[str]] = tuple,
) -> tuple[Variant, dict[str, Origin]]:
    """Return the variant, and the origin of each of its parts and features.

    Options on the command line override the words; settings of the file and the environment only
    fill in what the words leave open.
    """
    words, spoken = text
    variant = parse(words, machine, installed)
    if spoken.kind is OriginKind.DEFAULT:
        origin = Origin(kind=OriginKind.DEFAULT, where=words)
    else:
        place = "" if spoken.kind is OriginKind.COMMAND_LINE else f" ({spoken})"
        origin = Origin(kind=OriginKind.VARIANT, where=words + place)
    default = Variant()
    origins = {
        field: origin
        for field in variant.__struct_fields__
        if getattr(variant, field) != getattr(default, field) or field == "backend"
    }
    changes: dict[str, Any] = {}
    for part, (value, said) in parts.items():
        if part not in origins or said.kind.rank > OriginKind.VARIANT.rank:
            changes[part] = parse_part(part, value, str(said))
            origins[part] = said
    chosen = {feature.name: feature for feature in variant.features}
    origins |= dict.fromkeys(chosen, origin)
    for word, said in features:
        feature: Feature = parse_part("features", word, str(said))[0]
        if feature.name not in chosen or said.kind.rank >= origins[feature.name].kind.rank:
            chosen[feature.name] = feature
            origins["features"] = origins[feature.name] = said
    changes["features"] = tuple(chosen.values())
    return canonical(msgspec.structs.replace(variant, **changes)), origins


def compiler_flags(subject: Subject, *, sanitizer: Sanitizer | None) -> Iterator[Setting]:
    """Yield CFLAGS, CXXFLAGS and LDFLAGS. The user's own flags come first."""
    cpu, (compiler, version) = subject.variant.cpu, subject.compiler
    flags = cpu_flags(cpu, compiler, version) if cpu else ()
    if cpu and flags is None and not subject.here:
        flags = cpu_flags(cpu, "gcc", "99")  # the compiler of another machine is unknown
    if flags is None:
        raise UsageError(
            f"{compiler} {version} cannot make code for {cpu}",
            hints=["name a lower CPU level, or set CC and CXX to a newer compiler"],
        )
    names = {
        Sanitizer.ADDRESS: "address",
        Sanitizer.UNDEFINED: "undefined",
        Sanitizer.THREAD: "thread",
    }
    sanitize = (f"-fsanitize={names[sanitizer]}",) if sanitizer else ()
    of_compiles = subject.origin("cpu" if cpu else "sanitizer")
    for name, wanted, origin in (
        ("CFLAGS", (*flags, *sanitize), of_compiles),
        ("CXXFLAGS", (*flags, *sanitize), of_compiles),
        ("LDFLAGS", sanitize, subject.origin("sanitizer")),
    ):
        if wanted:
            own = subject.exported.get(name, "").strip()
            added = [flag for flag in wanted if flag not in own.split()]
            why = f"your own {name} come first" if own else ""
            yield environment(name, " ".join(filter(None, [own, *added])), origin, why)
