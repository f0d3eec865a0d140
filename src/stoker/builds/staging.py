"""The stages of a build, in order, and what each of them does."""

import os
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from stoker import __version__
from stoker.builds import work
from stoker.builds.backend import (
    Execute,
    Isolated,
    clear_copies,
    configure_tree,
    make_wheel,
    setuptools_settings,
    surroundings,
)
from stoker.builds.checkpoint import Job, names_native
from stoker.builds.finishing import (
    check,
    fitting_isolation,
    handed_over,
    hindrances,
    make_environment,
    mending,
    packed,
    python_digest,
    refusal,
)
from stoker.builds.graph import (
    check_configured,
    compiled_below,
    configured_without,
    digest,
    file_digest,
    generated_sources,
    installed_files,
    ninja_commands,
    tree_state,
)
from stoker.builds.route import (
    answer_file,
    choose_route,
    last_stage,
    probe_files,
    read_answer,
    switched_off,
)
from stoker.builds.stages import Act, Inputs, StageLog, Stages
from stoker.builds.work import MARK, Work
from stoker.govern.session import Session
from stoker.machine.installers import pip_in
from stoker.model.build import BuildRequest, BuildStage, GitState, Isolation
from stoker.model.errors import CommandError, MissingError, Terminated, UsageError, unknown
from stoker.model.finding import Finding
from stoker.model.plan import OriginKind, Plan, is_on
from stoker.model.secrets import is_secret
from stoker.model.source import FrontEnd, ProjectKind, SourceTree
from stoker.outside import files, folders, process
from stoker.plan.records import lasting_json
from stoker.plan.subject import Subject
from stoker.source import cmake_api
from stoker.source.ninja import Edge, read_edges
from stoker.wheel.package.values import PackageMode, PackageRequest

_ASKED = (OriginKind.FILE, OriginKind.ENVIRONMENT, OriginKind.VARIANT, OriginKind.COMMAND_LINE)
_CMAKE_FILES = ("CMakeLists.txt", ".cmake", ".cmake.in", "setup.py", "pyproject.toml")
_NO_WORK = "ninja: no work to do."
_NOTHING_INSTALLED = (
    "nothing was installed, because the project has no install rules; what was built is in {folder}"
)
_SECRET_OPTION = (
    "CMake writes the value of {name} in clear text to {cache}; if the project also reads it from "
    "the environment, set it there instead"
)
# Variables that builds read beside the plan's own.
_READ_BY_BUILDS = (
    *("CC", "CXX", "CUDACXX", "CUDAHOSTCXX", "CFLAGS", "CXXFLAGS", "CUDAFLAGS", "LDFLAGS"),
    *("CUDA_HOME", "NVCC_APPEND_FLAGS", "NVCC_PREPEND_FLAGS", "CMAKE_PREFIX_PATH"),
    *("CMAKE_CXX_COMPILER_LAUNCHER", "CMAKE_CUDA_COMPILER_LAUNCHER"),
)
# Tools whose version changes what CMake finds and how it compiles.
_TOOLS = ("cc", "cxx", "hipcc", "icpx", "cmake", "ninja", "ccache", "sccache")


class Staging:
    """One build of one tree.

    ``run`` carries out all stages whose inputs have changed and returns what it made, which appears
    in the output folder whole or not at all. It raises StageError if a stage fails and Terminated
    if a signal ends the build; the next build then resumes at that stage.
    """

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
        say: Callable[[str], None],
        job: Job | None = None,
    ):
        assert subject.tree is not None
        self.tree: SourceTree = subject.tree
        self._subject = subject
        self._plan = plan
        self._request = request
        self._work = work
        self._stages = stages
        self._governed = governed
        self._say = say
        self._job = job
        self._out = Path(request.out).resolve()
        self._isolation = self._chosen_isolation()
        self._isolated = self._isolation in (Isolation.FULL, Isolation.TORCH)
        self._python = subject.toolbox.python.executable
        if self._isolated:
            self._python = str(work.environment / "bin" / "python")
        self.route = choose_route(plan, self.tree, request, build=work.build, python=self._python)
        self._calls_ninja = bool(self.route.configure or self.route.by_back_end)
        if job:
            job.begin(self.route.build)
        if not self._calls_ninja:
            self._refuse_to_split()
        self.environment = self._governed.environment(
            self._base(git), folder=self._shared_folder(), mapped=True
        )
        self.folder = self.route.tree  # where the last command ran
        if not self._calls_ninja:
            self._keep_cpus_apart()

    def start_over(self) -> None:
        """Remove the build folder, if CMake has configured it, and its copy in memory."""
        work.drop_memory_tree(self.route.build)
        if (self.route.build / "CMakeCache.txt").exists():
            files.remove_whole(self.route.build)

    def run(self) -> tuple[Path, ...]:
        self._link_tools()
        self._do(BuildStage.PREPARE, self._prepare, self._prepare_inputs)
        if self._calls_ninja:
            self._compile_all()
        if self._job and self._job.shard:
            return ()
        match self.route.last:
            case BuildStage.INSTALL:
                made = self._do(BuildStage.INSTALL, self._install, self._install_inputs)
                if not made:
                    self._say(_NOTHING_INSTALLED.format(folder=self.route.build))
                return made
            case BuildStage.WHEEL:
                return self._wheel_and_after()
            case _:
                self._say(f"nothing was installed; what was built is in {self.route.build}")
                return ()

    def _compile_all(self) -> None:
        self._do(BuildStage.CONFIGURE, self._configure, self._configure_inputs)
        self._keep_cpus_apart()
        if self.route.by_back_end and not (self.route.build / "build.ninja").exists():
            self._refuse_to_split()
            return  # the project chose another build tool, or compiles nothing
        target = self._request.target or "all"
        edges = read_edges(self.route.build)
        targets = {output for edge in edges for output in edge.outputs}
        if target not in targets:
            hint = f"`ninja -C {self.route.build} -t targets all` lists them"
            raise unknown("target", target, targets, hint=hint)
        if generated := generated_sources(edges, target):
            self._ninja(BuildStage.CODEGEN, generated)
        if self._job and self._job.shard:
            self._compile_share(self._job, edges, target)
        else:
            self._ninja(BuildStage.COMPILE, (target,))

    def _refuse_to_split(self) -> None:
        """Raise an error if this job is a shard of a project that we do not compile ourselves."""
        if self._job and self._job.shard:
            raise UsageError(
                f"{self.tree.name} is compiled by its own build back end, which cannot be split",
                hints=["--stop-after with --checkpoint builds it in several jobs, one by one"],
            )

    def _keep_cpus_apart(self) -> None:
        """Give objects for "the CPU at hand" to machines with the same CPU only: ccache knows
        -march=native by its name. A back end's own commands are not known before they run.
        """
        if self._job is None or (self._calls_ninja and not names_native(self.route.build)):
            return
        if "SCCACHE_SERVER_UDS" in self.environment:
            raise UsageError(
                "the build may compile for the CPU of this machine (-march=native), and sccache "
                "would mix its objects with those of other CPUs",
                hints=["--cache ccache", "or switch -march=native off in the project"],
            )
        cpu = self._subject.machine.cpu
        sign = digest([cpu.microarchitecture, cpu.features])[:12]
        own = self.environment.get("CCACHE_NAMESPACE", "")
        self.environment["CCACHE_NAMESPACE"] = f"{own}-cpu-{sign}".lstrip("-")

    def _compile_share(self, job: Job, edges: Sequence[Edge], target: str) -> None:
        share = job.share(edges, target)
        self._say(f"shard {job.shard}: compile steps: {len(share)}")
        if share:
            self._ninja(BuildStage.COMPILE, share)
        job.ended(len(share))

    def _wheel_and_after(self) -> tuple[Path, ...]:
        (wheel,) = self._stages.do(
            BuildStage.WHEEL,
            self._wheel,
            inputs=self._wheel_inputs,
            inputs_change=self.route.in_tree,
        )
        if self._request.editable:
            self._stages.do_if(
                BuildStage.INSTALL,
                lambda log: self._install_editable(wheel, log),
                reason=lambda: "asked",
            )
            self._say(f"installed in editable mode for {self._subject.toolbox.python.executable}")
            return ()
        (portable,) = self._do(
            BuildStage.PACKAGE,
            lambda log: self._package(wheel, log),
            lambda: self._package_inputs(wheel),
        )
        self._do(
            BuildStage.VERIFY,
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

    def _prepare(self, log: StageLog) -> tuple[Path, ...]:
        if hindering := self._hindrances():
            raise MissingError(hindering[0].title, hints=mending(hindering))
        self._run_own_commands(log)
        if not self._isolation or not self._isolated:
            return ()
        folder, execute = self._work.environment, self._executing(log)
        make_environment(folder, self._subject, self.tree, self._isolation, execute)
        return (folder,)

    def _run_own_commands(self, log: StageLog) -> None:
        """Run the commands that the recipe of the project names, in the tree."""
        for command in self._plan.commands:
            if command.stage == "prepare":
                self._must(command.words, log, what=f"{shlex.join(command.words)} failed")

    def _hindrances(self) -> list[Finding]:
        return hindrances(self._subject, self._plan, self.tree, self._isolation)

    def _chosen_isolation(self) -> Isolation | None:
        """Return None if the build has no back end."""
        last = last_stage(self._plan, self.tree, self._request)
        configures = self.tree.front_end is FrontEnd.SCIKIT_BUILD_CORE
        if last is not BuildStage.WHEEL and not (configures and last is BuildStage.COMPILE):
            return None
        return self._request.isolation or fitting_isolation(self._subject, self.tree)

    def _python_digest(self) -> str:
        return python_digest(self._subject, self.tree, self._isolation)

    # -- configure, codegen, compile -----------------------------------------------------------

    def _warn_of_secrets(self) -> None:
        for setting in self._plan.cmake:
            if setting.origin.kind in _ASKED and is_secret(setting.name):
                cache = self.route.build / "CMakeCache.txt"
                self._say(_SECRET_OPTION.format(name=setting.name, cache=cache))

    def _configure_inputs(self) -> dict[str, str]:
        return {
            "options": self._options_digest(),
            "CMake files": tree_state(
                self.route.tree, names=_CMAKE_FILES, without=self._no_source()
            ),
        }

    def _options_digest(self) -> str:
        names = {*_READ_BY_BUILDS, *(setting.name for setting in self._plan.environment)}
        names -= {"MAX_JOBS", "CMAKE_BUILD_PARALLEL_LEVEL"}
        said = {name: self.environment.get(name) for name in names}
        found = (tool for tool in self._subject.toolbox.tools if tool.name in _TOOLS)
        tools = [(tool.path, tool.version) for tool in found]
        toolkit = self._subject.toolkit
        asked = [self.route.configure, self.route.settings]
        return digest([asked, said, tools, toolkit.version if toolkit else None])

    def _configure(self, log: StageLog) -> tuple[Path, ...]:
        build = self.route.build
        cache, graph = build / "CMakeCache.txt", build / "build.ninja"
        self._warn_of_secrets()
        # CMake would keep what an earlier configuration found or was given.
        if self._work.changed(BuildStage.CONFIGURE, "options", self._options_digest()):
            cache.unlink(missing_ok=True)
        asked = [s.name for s in self._plan.cmake if s.origin.kind in _ASKED and is_on(s.value)]
        answer_file(build).unlink(missing_ok=True)
        cmake_api.ask(build)  # for `stoker graph`
        if self.route.by_back_end:
            self._configure_by_back_end(asked, log)
        else:
            words, extra = self._with_probe(asked)
            self._must(words, log, extra=extra, what="CMake does not accept it")
        self._check_configured(asked, log)
        self._check_targets(log)
        return tuple(path for path in (cache, graph) if path.exists())

    def _configure_by_back_end(self, asked: Sequence[str], log: StageLog) -> None:
        settings = dict(self.route.settings)
        if not self._plan.value("CMAKE_PROJECT_INCLUDE"):
            probe = probe_files(self._work.path / "probe", asked)
            settings["cmake.define.CMAKE_PROJECT_INCLUDE"] = str(probe)
        configure_tree(
            self.route.tree,
            self._work.path / "configured",
            python=self._python,
            execute=self._executing(log, {"CMAKE_GENERATOR": "Ninja"}),
            settings=settings,
            editable=self._request.editable,
        )

    def _check_targets(self, log: StageLog) -> None:
        """Refuse a configuration that compiles for other GPU targets than the plan, or for none."""
        planned = self._plan.targets
        if planned is None or self._request.accept_targets:
            return
        found = ninja_commands(self.route.build, self.route.tree, self.environment)
        if found is None:
            log.line("stoker: ninja does not list its commands, so the governor checks each")
        else:
            check_configured(planned, found, log.text())

    def _with_probe(self, asked: Sequence[str]) -> tuple[tuple[str, ...], dict[str, str]]:
        """Return the command and variables with which CMake also reports its final options."""
        if self._plan.value("CMAKE_PROJECT_INCLUDE"):
            return self.route.configure, {}
        probe = probe_files(self._work.path / "probe", asked)
        if self.route.in_tree:
            return self.route.configure, {"CMAKE_PROJECT_INCLUDE": str(probe)}
        talk = ("--log-level=VERBOSE",) if self._request.verbose else ()
        return (*self.route.configure, *talk, f"-DCMAKE_PROJECT_INCLUDE={probe}"), {}

    def _check_configured(self, asked: Sequence[str], log: StageLog) -> None:
        try:
            found = read_answer(answer_file(self.route.build).read_text(errors="replace"))
        except FileNotFoundError:
            log.line("stoker: this CMake cannot report its final options")
            return
        if off := switched_off(asked, found, log.text(), self.tree):
            raise refusal(off, self._subject)

    def _ninja(self, stage: BuildStage, targets: Sequence[str]) -> None:
        words = ("ninja", "-C", str(self.route.build))
        talk = ("-v", "-d", "explain", "-d", "stats") if self._request.verbose else ()

        def reason() -> str | None:
            asked = process.run([*words, "-n", *targets], timeout=None, env=self.environment)
            return None if _NO_WORK in asked.stdout else "ninja has work to do"

        def act(log: StageLog) -> tuple[Path, ...]:
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

    def _install(self, log: StageLog) -> tuple[Path, ...]:
        version = f"-{self.tree.version}" if self.tree.version else ""
        target = self._out / folders.slug(f"{self.tree.name}{version}-{self._plan.label}")
        with files.folder_made_whole(target) as aside:
            words = ("cmake", "--install", str(self.route.build), "--prefix", str(aside))
            self._must(words, log, what="installing failed")
            if target.exists():
                files.remove_whole(target)
        if not any(target.iterdir()):
            target.rmdir()
            return ()
        return (target,)

    def _wheel_inputs(self) -> dict[str, str]:
        return {
            "tree": self._tree_digest(),
            "products": self._products_digest(),
            "options": digest(
                [self.route.settings, self._options_digest(), self._request.editable]
            ),
            "time": self.environment["SOURCE_DATE_EPOCH"],
            "python": self._python_digest(),
            "requirements": digest([self.tree.requirements, self._isolation]),
        }

    def _wheel(self, log: StageLog) -> tuple[Path, ...]:
        own = {}
        if self.tree.front_end is FrontEnd.SETUPTOOLS:
            clear_copies(self.route.build)
            own = setuptools_settings(
                self._work.path,
                None if self.route.in_tree else self.route.build,
                self._subject.toolbox.python if self._isolation is Isolation.NONE else None,
            )
        made = make_wheel(
            self.route.tree,
            self._work.wheel,
            python=self._python,
            execute=self._executing(log, own),
            settings=self.route.settings,
            editable=self._request.editable,
        )
        self._check_compiled(log)
        return (made,)

    def _check_compiled(self, log: StageLog) -> None:
        """Refuse a wheel whose back end compiled no device code although the plan wants some."""
        planned = self._plan.targets
        if planned is None or not planned.compiles or self._request.accept_targets:
            return
        checked = self.route.configure or self.route.by_back_end
        if checked or self._governed.kernels or self._governed.cache_hits:
            return
        if not compiled_below(self.route.build, self.route.tree, self.environment):
            raise configured_without(planned, log.text(), "no command of its build")

    def _install_editable(self, wheel: Path, log: StageLog) -> tuple[Path, ...]:
        python = self._subject.toolbox.python.executable
        words = (*pip_in(python), "install", "--no-deps", "--force-reinstall", str(wheel))
        self._must(words, log, what="pip could not install it")
        return ()

    def _tree_digest(self) -> str:
        return tree_state(self.route.tree, without=self._no_source())

    def _no_source(self) -> tuple[Path, ...]:
        """Return folders and files in the tree that the build itself makes."""
        made = (self._out, self._work.path, self.route.build)
        return (*made, *installed_files(self.route.build)) if self.route.in_tree else made

    def _products_digest(self) -> str:
        return file_digest(self.route.build / ".ninja_log")

    # -- package, verify -----------------------------------------------------------------------

    def _package_inputs(self, wheel: Path) -> dict[str, str]:
        return {
            "wheel": file_digest(wheel),
            "mode": self._request.mode,
            "label": self._label() or "",
            "plan": digest([self._recorded(), self._requirement_of_torch()]),
            "stoker": __version__,
        }

    def _recorded(self) -> dict[str, object]:
        source = self._request.source
        built = {
            "mode": self._request.mode,
            "isolation": self._isolation,
            "label": self._request.label,
            "accept_targets": self._request.accept_targets,
            "stoker": __version__,
            # A folder of this machine means nothing on another.
            "source": "" if Path(source).is_dir() else source,
        }
        return {**lasting_json(self._plan), "build": built}

    def _package(self, wheel: Path, log: StageLog) -> tuple[Path, ...]:
        request = PackageRequest(
            mode=PackageMode(self._request.mode),
            label=self._label(),
            **self._requirement_of_torch(),
        )
        return (packed(wheel, self._recorded(), request, self._work.packed, log),)

    def _label(self) -> str | None:
        return self._plan.label if self._request.label == "auto" else self._request.label

    def _requirement_of_torch(self) -> dict[str, Any]:
        """Return the requirement of an extension, which fits only the PyTorch it was built with."""
        version = self._torch() if self.tree.kind is ProjectKind.EXTENSION else None
        if version is None:
            return {}
        return {"torch": version, "requires": (f"torch=={version.partition('+')[0]}",)}

    def _torch(self) -> str | None:
        """Return the version of PyTorch that the back end saw."""
        if self._isolation is not Isolation.FULL:
            return self._subject.toolbox.python.packages.get("torch")
        return Isolated.version(self._work.environment, "torch")

    def _verify(self, wheel: Path, log: StageLog) -> tuple[Path, ...]:
        check(wheel, log, self._request.mode)
        return ()

    # -- commands ------------------------------------------------------------------------------

    def _do(self, stage: BuildStage, act: Act, inputs: Inputs) -> tuple[Path, ...]:
        return self._stages.do(stage, act, inputs=inputs)

    def _base(self, git: GitState | None) -> dict[str, str]:
        """Return the environment of all stages, without the governor's part."""
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
        """Link tools into a folder of ours: the chosen CMake's own may also hold a Python."""
        shutil.rmtree(self._work.tools, ignore_errors=True)
        for name, path in self._tools_to_link().items():
            self._work.tools.mkdir(parents=True, exist_ok=True)
            (self._work.tools / name).symlink_to(path)

    def _tools_to_link(self) -> dict[str, str]:
        """Return CMake and ninja where the PATH does not lead to the chosen ones."""
        chosen = {name: self._subject.build_tool(name) for name in ("cmake", "ninja")}
        return {
            name: tool.path
            for name, tool in chosen.items()
            if tool and not tool.problem and shutil.which(name) != tool.path
        }

    def _shared_folder(self) -> Path:
        """Return the folder that holds both the tree and the build folder."""
        return Path(os.path.commonpath((self.route.tree, self.route.build)))

    def _maps(self) -> dict[Path, str]:
        """Return folders and the names that compilers record instead of them."""
        name = folders.slug(self.tree.name)
        build = f"{name}-build"
        maps = {self.route.tree: name, self.route.build: build}
        # A cache has compilers see paths that are relative to the build folder.
        maps[Path(os.path.relpath(self.route.tree, self.route.build))] = name
        return maps | ({self._work.environment: "environment"} if self._isolated else {})

    @property
    def _talk(self) -> dict[str, str]:
        """Return variables that make tools print more. They are not inputs of a stage."""
        if not self._request.verbose:
            return {}
        flags = self.environment["NVCC_APPEND_FLAGS"]
        return {"VERBOSE": "1", "NVCC_APPEND_FLAGS": f"{flags} -v"}

    def _must(
        self,
        words: Sequence[str],
        log: StageLog,
        *,
        what: str,
        extra: Mapping[str, str] | None = None,
    ) -> None:
        status = self._executing(log, extra or {})(words, self.route.tree, {})
        if status:
            raise CommandError(f"{what} (status {status})")

    def _executing(self, log: StageLog, own: Mapping[str, str] | None = None) -> Execute:
        def execute(words: Sequence[str], folder: Path, extra: Mapping[str, str]) -> int:
            self.folder = folder
            environment = {**self.environment, **self._talk, **(own or {}), **extra}
            status = self._governed.run(words, env=environment, cwd=folder, output=log.write)
            if self._governed.stopped_by is not None:
                raise Terminated(self._governed.stopped_by)
            if error := self._governed.unfinished:
                raise error  # also if the tool hides that a step was refused
            return status

        return execute
