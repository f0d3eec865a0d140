"""Recipes of projects: what the build of one project reads, written as data.

A recipe is one ``[[project]]`` table of ``knowledge/projects.toml``, of stoker.toml or of a file
of the user's own. ``stoker.knowledge.projects`` loads them, ``stoker.source`` recognizes a tree by
them, and ``stoker.plan`` turns them into settings.
"""

from stoker.model.source import FrontEnd, ProjectKind
from stoker.model.value import Value
from stoker.model.variant import Backend


class FixedTargets(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Targets that the tree's own build names, whatever the user asks for.

    ``archs`` are named from the release ``cuda`` on, up to ``below``, on machines with one of
    ``cpus``; ``10.0+PTX`` is PTX only.
    """

    archs: tuple[str, ...]
    cuda: str = "0"
    below: str | None = None
    cpus: tuple[str, ...] = ()  # families of CPUs of the build machine; empty: all


class Switch(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A variable that adds kernels for some targets: ``on`` if one of them is wanted, else
    ``off``.
    """

    name: str
    archs: tuple[str, ...]  # what it compiles for if it is on
    serves: tuple[str, ...] = ()  # GPUs that need it; those of ``archs`` if empty
    on: str = "ON"
    off: str = "OFF"
    cmake: bool = False  # else an environment variable
    cpus: tuple[str, ...] = ()  # families of CPUs of the build machine; empty: all
    single: bool = False  # it adds the targets to single kernels only


class BackendRecipe(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a project is built for one back end.

    Values of ``environment``, ``cmake`` and ``backend_settings`` may hold placeholders:
    ``{torch}`` (``9.0;10.0+PTX``), ``{digits}`` (``90;100``), ``{cmake}`` (``90-real``),
    ``{gencode}`` (``arch=compute_90,code=sm_90``) and ``{names}`` (``gfx942``) are the targets,
    joined by ``separator``; ``{backend}``, ``{build_type}``, ``{cuda_home}`` and ``{toolkit}`` (the
    version of CUDA) are what they say. A value whose placeholder is empty is left out.
    """

    environment: dict[str, str] = {}
    cmake: dict[str, str] = {}
    backend_settings: dict[str, str] = {}  # of the PEP 517 back end
    separator: str = ";"
    suffixes: bool = True  # 9.0a may be written; else it becomes 9.0
    serves: dict[str, str] = {}  # a GPU, and the target whose code runs on it in this project
    serves_cuda: str = "0"  # the release of CUDA from which ``serves`` holds
    archs: tuple[str, ...] = ()  # the only targets that the project has code for
    loose: bool = False  # a GPU that they lack gets the next lower one of its generation
    fixed: tuple[FixedTargets, ...] = ()
    switches: tuple[Switch, ...] = ()
    adds: dict[str, tuple[str, ...]] = {}  # a target, and others that come with it; "*" is any
    accepts: tuple[str, ...] = ()  # targets that single kernels are compiled for in any case
    ptx_of_newest: bool = False  # the build adds PTX of the newest target
    cuda_min: str | None = None
    cuda_below: str | None = None
    commands: tuple[str, ...] = ()  # run in the tree before the build; {python} is the interpreter
    compiles: bool = True  # device code is compiled when the wheel is built
    shown: dict[str, str] = {}  # a fact, and "FILE: REGEX" that shows it; a group is a list
    note: str = ""  # what a user should know about this back end
    chooses: bool = False  # the settings choose the targets, although none of them lists them

    @property
    def chooses_targets(self) -> bool:
        """Whether the targets are set by this recipe, and not by torch's or CMake's own list."""
        if self.chooses:
            return True
        texts = (*self.environment.values(), *self.cmake.values(), *self.backend_settings.values())
        return bool(self.fixed) or any(form in text for text in texts for form in FORMS)


FORMS = ("{torch}", "{digits}", "{cmake}", "{gencode}", "{names}")
PLACEHOLDERS = (*FORMS, "{backend}", "{build_type}", "{cuda_home}", "{toolkit}")


class Need(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A program or Python package that a build needs besides compilers."""

    why: str
    tool: str | None = None
    python: str | None = None
    shown: str = ""  # "FILE: REGEX" in a tree that needs it
    optional: bool = False  # without it a part is left out, and the build continues
    backends: tuple[Backend, ...] = ()  # empty: all


class ProjectRecipe(Value, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A project. It is recognized by the name of its package or of CMake's project(), or, if it
    lists ``files``, by all of them being there.
    """

    name: str
    facts_from: str = ""  # repository, commit and day that the facts were read from
    packages: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    torch: bool = False  # it is compiled with PyTorch
    kind: ProjectKind | None = None
    front_end: FrontEnd | None = None
    folder: str = ""  # of CMakeLists.txt, where it is not the root
    jobs: str | None = None  # the variable for the number of jobs
    cmake_args: str | None = None  # the variable whose words setup.py passes to CMake
    reads: tuple[str, ...] = ()  # variables that are read in ways that cannot be seen in the tree
    backends: dict[Backend, BackendRecipe] = {}
    refused: dict[Backend, str] = {}  # why it has no such back end
    needs: tuple[Need, ...] = ()
