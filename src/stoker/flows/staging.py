"""What each stage of a build does: the capabilities of the other rooms, in the order of a build."""

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from stoker import __version__
from stoker.build import memory_tree
from stoker.build.backend import (
    Execute,
    clear_copies,
    make_wheel,
    outside_the_tree,
)
from stoker.build.configured import answer_file, probe_files, read_answer, switched_off
from stoker.build.generated import generated_sources
from stoker.build.inputs import digest, file_digest, tree_state
from stoker.build.isolated import Isolated
from stoker.build.stages import Act, Inputs, Log, Stages
from stoker.build.surroundings import surroundings
from stoker.build.way import last_stage, way_of
from stoker.build.work import MARK, Work
from stoker.deliver.package.values import Mode, PackageRequest
from stoker.flows.finishing import check, handed_over, packed
from stoker.flows.governed import Session
from stoker.flows.hints import mending
from stoker.flows.preparing import (
    fitting_isolation,
    hindrances,
    make_environment,
    python_digest,
    refusal,
)
from stoker.model.build import BuildRequest, GitState, Isolation, Stage
from stoker.model.errors import CommandError, MissingError, Terminated, unknown
from stoker.model.finding import Finding
from stoker.model.plan import OriginKind, Plan, is_on
from stoker.model.source import FrontEnd, ProjectKind, SourceTree
from stoker.outside import files, folders, process
from stoker.plan.record import lasting_json
from stoker.plan.subject import Subject
from stoker.source.ninja import read_edges

_ASKED = (OriginKind.FILE, OriginKind.ENVIRONMENT, OriginKind.VARIANT, OriginKind.COMMAND_LINE)
_CMAKE_FILES = ("CMakeLists.txt", ".cmake", ".cmake.in", "setup.py", "pyproject.toml")
_NO_WORK = "ninja: no work to do."
# Variables that builds read beside the plan's own.
_READ_BY_BUILDS = (
    *("CC", "CXX", "CUDACXX", "CUDAHOSTCXX", "CFLAGS", "CXXFLAGS", "CUDAFLAGS", "LDFLAGS"),
    *("CUDA_HOME", "NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "CMAKE_PREFIX_PATH"),
    *("CMAKE_CXX_COMPILER_LAUNCHER", "CMAKE_CUDA_COMPILER_LAUNCHER"),
)
# Tools whose version changes what CMake finds and how it compiles.
_TOOLS = ("cc", "cxx", "hipcc", "icpx", "cmake", "ninja", "ccache", "sccache", "mold", "lld")


class Staging:
    """One build. ``run`` does it all and gives what was made, in the folder asked for."""

    def __init__(
        self,
        *,
        subject: Subject,
        plan: Plan,
        request: BuildRequest,
        git: GitState | None,
        work: Work,
        stages: Stages,
        governed: Session,
    ):
        assert subject.tree is not None
        self.tree: SourceTree = subject.tree
        self._subject = subject
        self._plan = plan
        self._request = request
        self._work = work
        self._stages = stages
        self._governed = governed
        self._out = Path(request.out).resolve()
        self._isolation = self._chosen_isolation()
        self._isolated = self._isolation in (Isolation.FULL, Isolation.TORCH)
        self._python = subject.toolbox.python.executable
        if self._isolated:
            self._python = str(work.environment / "bin" / "python")
        self.way = way_of(plan, self.tree, request, build=work.build, python=self._python)
        self.environment = self._governed.environment(self._base(git))
        self.folder = self.way.tree  # where the last command ran, for who wants to look

    def start_over(self) -> None:
        """Remove the build folder of a tree that is built in place."""
        memory_tree.drop(self.way.build)
        if (self.way.build / "CMakeCache.txt").exists():
            files.remove_whole(self.way.build)

    def run(self) -> tuple[Path, ...]:
        self._link_tools()
        self._do(Stage.PREPARE, self._prepare, self._prepare_inputs)
        if self.way.configure:
            self._compile_all()
        match self.way.last:
            case Stage.INSTALL:
                return self._do(Stage.INSTALL, self._install, self._install_inputs)
            case Stage.WHEEL:
                return self._wheel_and_after()
            case _:
                return ()

    def _compile_all(self) -> None:
        self._do(Stage.CONFIGURE, self._configure, self._configure_inputs)
        target = self._request.target or "all"
        edges = read_edges(self.way.build)
        targets = {output for edge in edges for output in edge.outputs}
        if target not in targets:
            raise unknown("target", target, targets)
        if generated := generated_sources(edges, target):
            self._ninja(Stage.CODEGEN, generated)
        self._ninja(Stage.COMPILE, (target,))

    def _wheel_and_after(self) -> tuple[Path, ...]:
        (wheel,) = self._stages.do(
            Stage.WHEEL, self._wheel, inputs=self._wheel_inputs, inputs_change=self.way.in_tree
        )
        if self._request.editable:
            self._stages.do_if(
                Stage.INSTALL,
                lambda log: self._install_editable(wheel, log),
                reason=lambda: "asked",
            )
            return ()
        (portable,) = self._do(
            Stage.PACKAGE,
            lambda log: self._package(wheel, log),
            lambda: self._package_inputs(wheel),
        )
        self._do(
            Stage.VERIFY,
            lambda log: self._verify(portable, log),
            lambda: {"wheel": file_digest(portable), "stoker": __version__},
        )
        return (handed_over(portable, self._out),)

    # -- prepare -------------------------------------------------------------------------------

    def _prepare_inputs(self) -> dict[str, str]:
        return {
            "hindrances": digest([finding.title for finding in self._hindrances()]),
            "requirements": digest([self.tree.requirements, self._isolation]),
            "python": self._python_digest(),
        }

    def _prepare(self, log: Log) -> tuple[Path, ...]:
        if hindering := self._hindrances():
            raise MissingError(hindering[0].title, hints=mending(hindering))
        if not self._isolation or not self._isolated:
            return ()
        folder, execute = self._work.environment, self._executing(log)
        make_environment(folder, self._subject, self.tree, self._isolation, execute)
        return (folder,)

    def _hindrances(self) -> list[Finding]:
        return hindrances(self._subject, self._plan, self.tree, self._isolation)

    def _chosen_isolation(self) -> Isolation | None:
        """None of a build that has no back end."""
        if last_stage(self._plan, self.tree, self._request) is not Stage.WHEEL:
            return None
        return self._request.isolation or fitting_isolation(self._subject, self.tree)

    def _python_digest(self) -> str:
        return python_digest(self._subject, self.tree, self._isolation)

    # -- configure, codegen, compile -----------------------------------------------------------

    def _configure_inputs(self) -> dict[str, str]:
        return {
            "options": self._options_digest(),
            "CMake files": tree_state(self.way.tree, names=_CMAKE_FILES, without=self._no_source()),
        }

    def _options_digest(self) -> str:
        names = {*_READ_BY_BUILDS, *(setting.name for setting in self._plan.environment)}
        names -= {"MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL"}
        said = {name: self.environment.get(name) for name in names}
        found = (tool for tool in self._subject.toolbox.tools if tool.name in _TOOLS)
        tools = [(tool.path, tool.version) for tool in found]
        toolkit = self._subject.toolkit
        return digest([self.way.configure, said, tools, toolkit.version if toolkit else None])

    def _configure(self, log: Log) -> tuple[Path, ...]:
        build = self.way.build
        cache, graph = build / "CMakeCache.txt", build / "build.ninja"
        # What an earlier configuration found, or was told and no longer is, would stay.
        if self._work.changed(Stage.CONFIGURE, "options", self._options_digest()):
            cache.unlink(missing_ok=True)
        asked = [s.name for s in self._plan.cmake if s.origin.kind in _ASKED and is_on(s.value)]
        words, extra = self._with_probe(asked)
        answer_file(build).unlink(missing_ok=True)
        self._must(words, log, extra=extra, what="CMake does not accept it")
        self._check_configured(asked, log)
        return cache, graph

    def _with_probe(self, asked: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str]]:
        """The command and variables that also have CMake tell what became of its options."""
        if self._plan.value("CMAKE_PROJECT_INCLUDE"):
            return self.way.configure, {}
        probe = probe_files(self._work.path / "probe", asked)
        if self.way.in_tree:
            return self.way.configure, {"CMAKE_PROJECT_INCLUDE": str(probe)}
        talk = ("--log-level=VERBOSE",) if self._request.verbose else ()
        return (*self.way.configure, *talk, f"-DCMAKE_PROJECT_INCLUDE={probe}"), {}

    def _check_configured(self, asked: Sequence[str], log: Log) -> None:
        try:
            found = read_answer(answer_file(self.way.build).read_text(errors="replace"))
        except FileNotFoundError:
            log.line("stoker: this CMake cannot tell what became of the options")
            return
        if off := switched_off(asked, found, log.text(), self.tree):
            raise refusal(off, self._subject)

    def _ninja(self, stage: Stage, targets: Sequence[str]) -> None:
        words = ("ninja", "-C", str(self.way.build))
        talk = ("-v", "-d", "explain", "-d", "stats") if self._request.verbose else ()

        def reason() -> str | None:
            asked = process.run([*words, "-n", *targets], timeout=None, env=self.environment)
            return None if _NO_WORK in asked.stdout else "there is something to do"

        def act(log: Log) -> tuple[Path, ...]:
            self._must((*words, *talk, *targets), log, what="ninja stopped")
            return ()

        self._stages.do_if(stage, act, reason=reason)

    # -- install, wheel ------------------------------------------------------------------------

    def _install_inputs(self) -> dict[str, str]:
        return {
            "products": self._products_digest(),
            "tree": self._tree_digest(),
            "folder": str(self._out),
        }

    def _install(self, log: Log) -> tuple[Path, ...]:
        version = f"-{self.tree.version}" if self.tree.version else ""
        target = self._out / folders.slug(f"{self.tree.name}{version}-{self._plan.label}")
        with files.folder_made_whole(target) as aside:
            words = ("cmake", "--install", str(self.way.build), "--prefix", str(aside))
            self._must(words, log, what="installing failed")
            if target.exists():
                files.remove_whole(target)
        return (target,)

    def _wheel_inputs(self) -> dict[str, str]:
        return {
            "tree": self._tree_digest(),
            "products": self._products_digest(),
            "options": digest([self.way.settings, self._options_digest(), self._request.editable]),
            "time": self.environment["SOURCE_DATE_EPOCH"],
            "python": self._python_digest(),
            "requirements": digest([self.tree.requirements, self._isolation]),
        }

    def _wheel(self, log: Log) -> tuple[Path, ...]:
        own = {}
        if self.tree.front_end is FrontEnd.SETUPTOOLS:
            clear_copies(self.way.build)
            own = {} if self.way.in_tree else outside_the_tree(self._work.path, self.way.build)
        made = make_wheel(
            self.way.tree,
            self._work.wheel,
            python=self._python,
            execute=self._executing(log, own),
            settings=self.way.settings,
            editable=self._request.editable,
        )
        return (made,)

    def _install_editable(self, wheel: Path, log: Log) -> tuple[Path, ...]:
        python = self._subject.toolbox.python.executable
        words = (python, "-m", "pip", "install", "--no-deps", "--force-reinstall", str(wheel))
        self._must(words, log, what="pip could not install it")
        return ()

    def _tree_digest(self) -> str:
        return tree_state(self.way.tree, without=self._no_source())

    def _no_source(self) -> tuple[Path, ...]:
        """Folders that may lie in the tree and change by the build itself."""
        return (self._out, self._work.path, self.way.build)

    def _products_digest(self) -> str:
        return file_digest(self.way.build / ".ninja_log")

    # -- package, verify -----------------------------------------------------------------------

    def _package_inputs(self, wheel: Path) -> dict[str, str]:
        return {
            "wheel": file_digest(wheel),
            "mode": self._request.mode,
            "plan": digest([self._recorded(), self._requirement_of_torch()]),
            "stoker": __version__,
        }

    def _recorded(self) -> dict[str, object]:
        source = self._request.source
        built = {
            "mode": self._request.mode,
            "isolation": self._isolation,
            "stoker": __version__,
            # A folder of this machine means nothing on another.
            "source": "" if Path(source).is_dir() else source,
        }
        return {**lasting_json(self._plan), "build": built}

    def _package(self, wheel: Path, log: Log) -> tuple[Path, ...]:
        request = PackageRequest(mode=Mode(self._request.mode), **self._requirement_of_torch())
        return (packed(wheel, self._recorded(), request, self._work.packed, log),)

    def _requirement_of_torch(self) -> dict[str, Any]:
        """An extension fits only the PyTorch it was built with, whether its setup.py says so."""
        version = self._torch() if self.tree.kind is ProjectKind.EXTENSION else None
        if version is None:
            return {}
        return {"torch": version, "requires": (f"torch=={version.partition('+')[0]}",)}

    def _torch(self) -> str | None:
        """The version that the back end saw."""
        if self._isolation is not Isolation.FULL:
            return self._subject.toolbox.python.packages.get("torch")
        return Isolated.version(self._work.environment, "torch")

    def _verify(self, wheel: Path, log: Log) -> tuple[Path, ...]:
        check(wheel, log, self._request.mode)
        return ()

    # -- commands ------------------------------------------------------------------------------

    def _do(self, stage: Stage, act: Act, inputs: Inputs) -> tuple[Path, ...]:
        return self._stages.do(stage, act, inputs=inputs)

    def _base(self, git: GitState | None) -> dict[str, str]:
        """What the stages are given, before the governor adds its part."""
        path = os.environ.get("PATH", os.defpath)
        if self._tools_to_link():
            path = f"{self._work.tools}:{path}"
        base = {**os.environ, MARK: str(self._work.path)}
        if self._isolated:
            path = f"{self._work.environment}/bin:{path}"
            base["VIRTUAL_ENV"] = str(self._work.environment)
        return surroundings(
            {**base, "PATH": path},
            self._plan,
            maps=self._maps(),
            epoch=git.time if git else None,
        )

    def _link_tools(self) -> None:
        """A folder of its own: beside the chosen CMake lie other programs, such as a Python."""
        shutil.rmtree(self._work.tools, ignore_errors=True)
        for name, path in self._tools_to_link().items():
            self._work.tools.mkdir(parents=True, exist_ok=True)
            (self._work.tools / name).symlink_to(path)

    def _tools_to_link(self) -> dict[str, str]:
        """CMake and ninja where the PATH has none of that name, or another than was chosen."""
        chosen = {name: self._subject.build_tool(name) for name in ("cmake", "ninja")}
        return {
            name: tool.path
            for name, tool in chosen.items()
            if tool and not tool.problem and shutil.which(name) != tool.path
        }

    def _maps(self) -> dict[Path, str]:
        """Folders, and what compilers are to call them."""
        name = folders.slug(self.tree.name)
        maps = {self.way.tree: name, self.way.build: f"{name}-build"}
        return maps | ({self._work.environment: "environment"} if self._isolated else {})

    @property
    def _talk(self) -> dict[str, str]:
        """What makes tools say more; none of it is an input of a stage."""
        if not self._request.verbose:
            return {}
        flags = self.environment["NVCC_APPEND_FLAGS"]
        return {"VERBOSE": "1", "NVCC_APPEND_FLAGS": f"{flags} -v"}

    def _must(
        self, words: Sequence[str], log: Log, *, what: str, extra: Mapping[str, str] | None = None
    ) -> None:
        status = self._executing(log, extra or {})(words, self.way.tree, {})
        if status:
            raise CommandError(f"{what} (status {status})")

    def _executing(self, log: Log, own: Mapping[str, str] | None = None) -> Execute:
        def execute(words: Sequence[str], folder: Path, extra: Mapping[str, str]) -> int:
            self.folder = folder
            environment = {**self.environment, **self._talk, **(own or {}), **extra}
            status = self._governed.run(words, env=environment, cwd=folder, output=log.write)
            if self._governed.stopped_by is not None:
                raise Terminated(self._governed.stopped_by)
            return status

        return execute
