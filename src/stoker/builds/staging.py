"""The stages of a build, in order. Each is one method: what it depends on, and what it does."""

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stoker import __version__
from stoker.builds.back_end_python import BackEndPython
from stoker.builds.backend import clear_copies, configure_tree, make_wheel, setuptools_settings
from stoker.builds.configured import answer_file, probe_files, read_answer, switched_off
from stoker.builds.device_compiles import (
    check_configured,
    compiled_below,
    configured_without,
    ninja_commands,
)
from stoker.builds.digests import digest, file_digest, installed_files, tree_state
from stoker.builds.execution import Execution
from stoker.builds.finishing import AUTO, PortableWheels, check_wheel, handed_over
from stoker.builds.hindrances import hindrances, mending, refusal
from stoker.builds.route import choose_route, last_stage
from stoker.builds.stages import StageLog, Stages
from stoker.builds.work import Work, drop_memory_tree
from stoker.govern.session import Session
from stoker.machine.installers import pip_in
from stoker.model.build import BuildRequest, BuildStage, GitState, Isolation
from stoker.model.errors import MissingError, unknown
from stoker.model.plan import Plan
from stoker.model.secrets import is_secret
from stoker.model.setting import OriginKind, is_on
from stoker.model.source import FrontEnd, ProjectKind, SourceTree
from stoker.outside import files, folders, process
from stoker.outside.deleting import remove_empty, remove_file, remove_whole
from stoker.outside.long_work import Say
from stoker.plan.records import lasting_json
from stoker.plan.subject import Subject
from stoker.source import cmake_api
from stoker.source.ninja import generated_sources, read_edges
from stoker.wheel.package.values import PackageMode, PackageRequest

if TYPE_CHECKING:
    from stoker.builds.jobs.job import Job

_ASKED = (OriginKind.FILE, OriginKind.ENVIRONMENT, OriginKind.VARIANT, OriginKind.COMMAND_LINE)
_CMAKE_FILES = ("CMakeLists.txt", ".cmake", ".cmake.in", "setup.py", "pyproject.toml")
_INCLUDED = "CMAKE_PROJECT_INCLUDE"  # a file that CMake reads at the end of a project()
_NO_WORK = "ninja: no work to do."
_NOTHING_INSTALLED = (
    "nothing was installed, because the project has no install rules; what was built is in {folder}"
)
_SECRET_OPTION = (
    "CMake writes the value of {name} in clear text to {cache}; if the project also reads it from "
    "the environment, set it there instead"
)


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
        say: Say,
        job: "Job | None" = None,
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
        last = last_stage(plan, self.tree, request)
        configures = self.tree.front_end is FrontEnd.SCIKIT_BUILD_CORE
        self._python = BackEndPython(
            subject,
            self.tree,
            request,
            work.environment,
            runs=last is BuildStage.WHEEL or (configures and last is BuildStage.COMPILE),
        )
        self.route = choose_route(
            plan, self.tree, request, build=work.build, python=self._python.executable
        )
        self._calls_ninja = bool(self.route.configure or self.route.by_back_end)
        self._execution = Execution(
            subject=subject,
            plan=plan,
            route=self.route,
            work=work,
            governed=governed,
            isolated=self._python.isolated,
            epoch=git.time if git else None,
            verbose=request.verbose,
        )
        self.environment = self._execution.environment  # of all stages
        if job:
            job.begin(self.route.build)
            if not self._calls_ninja:
                job.leave_to_back_end(self.tree.name, subject.machine.cpu, self.environment)

    @property
    def folder(self) -> Path:
        """The folder in which the last command ran."""
        return self._execution.folder

    def start_over(self) -> None:
        """Remove the build folder, if CMake has configured it, and its copy in memory."""
        drop_memory_tree(self.route.build)
        if (self.route.build / "CMakeCache.txt").exists():
            remove_whole(self.route.build)

    def run(self) -> tuple[Path, ...]:
        self._execution.link_tools()
        self._prepare()
        self._execution.forget_objects_of_other_flags()
        if self._calls_ninja:
            self._configure()
            self._compile()
        if self._job and self._job.shard:
            return ()
        if self.route.last is BuildStage.INSTALL:
            return self._install()
        if self.route.last is not BuildStage.WHEEL:
            self._say(f"nothing was installed; what was built is in {self.route.build}")
            return ()
        wheel = self._wheel()
        if self._request.editable:
            self._install_editable(wheel)
            return ()
        portable = self._package(wheel)
        self._stages.do(
            BuildStage.VERIFY,
            lambda log: check_wheel(portable, log, self._request.mode),
            lambda: {"wheel": file_digest(portable), "stoker": __version__},
        )
        return (handed_over(portable, self._out),)

    def _prepare(self) -> None:
        """Refuse a build that cannot succeed, and make the environment of the back end."""
        python = self._python

        def inputs() -> dict[str, str]:
            found = hindrances(self._subject, self._plan, self.tree, python.isolation)
            return {
                "hindrances": digest([finding.title for finding in found]),
                "requirements": digest(
                    [python.requirements(), python.torch_index(), python.isolation]
                ),
                "python": python.digest(),
            }

        def act(log: StageLog) -> tuple[Path, ...]:
            found = hindrances(self._subject, self._plan, self.tree, python.isolation)
            if found:
                raise MissingError(found[0].title, hints=mending(found))
            for command in self._plan.commands:
                if command.stage == "prepare":
                    what = f"{shlex.join(command.words)} failed"
                    self._execution.must(command.words, log, what=what)
            if not python.isolated:
                return ()
            python.make(self._execution.executing(log))
            return (python.folder,)

        self._stages.do(BuildStage.PREPARE, act, inputs)

    def _configure(self) -> None:
        """Let CMake, or the back end, write what ninja does."""
        build = self.route.build
        cache, graph = build / "CMakeCache.txt", build / "build.ninja"
        requested = [setting for setting in self._plan.cmake if setting.origin.kind in _ASKED]
        switched_on = [setting.name for setting in requested if is_on(setting.value)]

        def inputs() -> dict[str, str]:
            return {
                "options": self._execution.options_digest(),
                "CMake files": tree_state(
                    self.route.tree, names=_CMAKE_FILES, without=self._made_by_build()
                ),
            }

        def act(log: StageLog) -> tuple[Path, ...]:
            for setting in requested:
                if is_secret(setting.name):
                    self._say(_SECRET_OPTION.format(name=setting.name, cache=cache))
            # CMake would keep what an earlier configuration found or was given.
            options = self._execution.options_digest()
            if self._work.changed(BuildStage.CONFIGURE, "options", options):
                remove_file(cache)
            remove_file(answer_file(build))
            cmake_api.ask_for_targets(build)  # for `stoker graph`
            # CMake also reports its final options, unless the project uses this place itself.
            probe = {}
            if not self._plan.value(_INCLUDED):
                probe = {_INCLUDED: str(probe_files(self._work.path / "probe", switched_on))}
            if self.route.by_back_end:
                defined = {f"cmake.define.{name}": value for name, value in probe.items()}
                configure_tree(
                    self.route.tree,
                    self._work.path / "configured",
                    python=self._python.executable,
                    execute=self._execution.executing(log, {"CMAKE_GENERATOR": "Ninja"}),
                    settings={**self.route.settings, **defined},
                    editable=self._request.editable,
                )
            else:
                words, extra = self.route.configure, probe
                if not self.route.in_tree:
                    talk = ("--log-level=VERBOSE",) if self._request.verbose else ()
                    words = (*words, *talk, *(f"-D{name}={value}" for name, value in probe.items()))
                    extra = {}
                self._execution.must(words, log, extra=extra, what="CMake does not accept it")
            self._check_options(switched_on, log)
            self._check_targets(log)
            return tuple(path for path in (cache, graph) if path.exists())

        self._stages.do(BuildStage.CONFIGURE, act, inputs)

    def _check_options(self, switched_on: Sequence[str], log: StageLog) -> None:
        """Refuse a configuration in which an option is off that was asked for."""
        try:
            found = read_answer(answer_file(self.route.build).read_text(errors="replace"))
        except FileNotFoundError:
            log.line("stoker: this CMake cannot report its final options")
            return
        if off := switched_off(switched_on, found, log.text(), self.tree):
            raise refusal(off, self._subject)

    def _check_targets(self, log: StageLog) -> None:
        """Refuse a configuration that compiles for other GPU targets than the plan, or for none."""
        if self._plan.targets is None or self._request.accept_targets:
            return
        commands = ninja_commands(self.route.build, self.route.tree, self.environment)
        if commands is None:
            log.line("stoker: ninja does not list its commands, so the governor checks each")
        else:
            check_configured(self._plan.targets, commands, log.text())

    def _compile(self) -> None:
        """Let ninja generate sources and compile, or only the share of this job."""
        build, job, cpu = self.route.build, self._job, self._subject.machine.cpu
        if self.route.by_back_end and not (build / "build.ninja").exists():
            if job:
                job.leave_to_back_end(self.tree.name, cpu, self.environment)
            return  # the project chose another build tool, or compiles nothing
        if job:
            job.keep_native_apart(build, cpu, self.environment)
        target = self._request.target or "all"
        edges = read_edges(build)
        targets = {output for edge in edges for output in edge.outputs}
        if target not in targets:
            hint = f"`ninja -C {build} -t targets all` lists them"
            raise unknown("target", target, targets, hint=hint)
        if generated := generated_sources(edges, target):
            self._ninja(BuildStage.CODEGEN, generated)
        if not (job and job.shard):
            self._ninja(BuildStage.COMPILE, (target,))
            return
        share = job.share(edges, target)
        self._say(f"shard {job.shard}: compile steps: {len(share)}")
        if share:
            self._ninja(BuildStage.COMPILE, share)
        job.ended(len(share))

    def _ninja(self, stage: BuildStage, targets: Sequence[str]) -> None:
        words = ("ninja", "-C", str(self.route.build))
        talk = ("-v", "-d", "explain", "-d", "stats") if self._request.verbose else ()

        def reason() -> str | None:
            asked = process.run([*words, "-n", *targets], timeout=None, env=self.environment)
            return None if _NO_WORK in asked.stdout else "ninja has work to do"

        def act(log: StageLog) -> tuple[Path, ...]:
            self._execution.must((*words, *talk, *targets), log, what="ninja stopped")
            return ()

        self._stages.do_if(stage, act, reason=reason)

    def _install(self) -> tuple[Path, ...]:
        """Let CMake install into a folder of this version and variant."""
        version = f"-{self.tree.version}" if self.tree.version else ""
        target = self._out / folders.slug(f"{self.tree.name}{version}-{self._plan.label}")

        def inputs() -> dict[str, str]:
            return {
                "products": file_digest(self.route.build / ".ninja_log"),
                "tree": tree_state(self.route.tree, without=self._made_by_build()),
                "folder": str(self._out),
            }

        def act(log: StageLog) -> tuple[Path, ...]:
            with files.folder_made_whole(target) as aside:
                words = ("cmake", "--install", str(self.route.build), "--prefix", str(aside))
                self._execution.must(words, log, what="installing failed")
                if target.exists():
                    remove_whole(target)
            if any(target.iterdir()):
                return (target,)
            remove_empty(target)
            return ()

        made = self._stages.do(BuildStage.INSTALL, act, inputs)
        if not made:
            self._say(_NOTHING_INSTALLED.format(folder=self.route.build))
        return made

    def _wheel(self) -> Path:
        """Let the back end make its wheel."""

        def inputs() -> dict[str, str]:
            options = self._execution.options_digest()
            return {
                "tree": tree_state(self.route.tree, without=self._made_by_build()),
                "products": file_digest(self.route.build / ".ninja_log"),
                "options": digest([self.route.settings, options, self._request.editable]),
                "time": self.environment["SOURCE_DATE_EPOCH"],
                "python": self._python.digest(),
                "requirements": digest([self._python.requirements(), self._python.isolation]),
            }

        def act(log: StageLog) -> tuple[Path, ...]:
            own = {}
            if self.tree.front_end is FrontEnd.SETUPTOOLS:
                clear_copies(self.route.build)
                uses_installed = self._python.isolation is Isolation.NONE
                own = setuptools_settings(
                    self._work.path,
                    None if self.route.in_tree else self.route.build,
                    self._subject.toolbox.python if uses_installed else None,
                )
            made = make_wheel(
                self.route.tree,
                self._work.wheel,
                python=self._python.executable,
                execute=self._execution.executing(log, own),
                settings=self.route.settings,
                editable=self._request.editable,
            )
            self._check_compiled(log)
            return (made,)

        (wheel,) = self._stages.do(BuildStage.WHEEL, act, inputs, inputs_change=self.route.in_tree)
        return wheel

    def _check_compiled(self, log: StageLog) -> None:
        """Refuse a wheel whose back end compiled no device code although the plan wants some."""
        planned = self._plan.targets
        if planned is None or not planned.compiles or self._request.accept_targets:
            return
        if self._calls_ninja or self._governed.kernels or self._governed.cache_hits:
            return
        if not compiled_below(self.route.build, self.route.tree, self.environment):
            raise configured_without(planned, log.text(), "no command of its build")

    def _made_by_build(self) -> tuple[Path, ...]:
        """Return folders and files in the tree that are not source."""
        made = (self._out, self._work.path, self.route.build)
        return (*made, *installed_files(self.route.build)) if self.route.in_tree else made

    def _install_editable(self, wheel: Path) -> None:
        python = self._subject.toolbox.python.executable

        def act(log: StageLog) -> tuple[Path, ...]:
            words = (*pip_in(python), "install", "--no-deps", "--force-reinstall", str(wheel))
            self._execution.must(words, log, what="pip could not install it")
            return ()

        self._stages.do_if(BuildStage.INSTALL, act, reason=lambda: "asked")
        self._say(f"installed in editable mode for {python}")

    def _package(self, wheel: Path) -> Path:
        """Make the wheel portable, and put the plan into it."""
        mode, source = self._request.mode, self._request.source
        label = self._plan.label if self._request.label == "auto" else self._request.label
        built = {
            "mode": mode,
            "isolation": self._python.isolation,
            "label": self._request.label,
            "torch": self._request.torch,
            "accept_targets": self._request.accept_targets,
            "stoker": __version__,
            # A folder of this machine means nothing on another.
            "source": "" if Path(source).is_dir() else source,
        }
        recorded = {**lasting_json(self._plan), "build": built}
        torch = self._requirement_of_torch()

        def inputs() -> dict[str, str]:
            return {
                "wheel": file_digest(wheel),
                "mode": mode,
                "label": label or "",
                "plan": digest([recorded, torch]),
                "stoker": __version__,
            }

        def act(log: StageLog) -> tuple[Path, ...]:
            plain = PackageMode.PLAIN if mode == AUTO else PackageMode(mode)
            request = PackageRequest(mode=plain, label=label, **torch)
            portable_wheels = PortableWheels(wheel, recorded, self._work.packed, log)
            made = portable_wheels.packed(request)
            return (portable_wheels.repaired(made, request, self._say) if mode == AUTO else made,)

        (portable,) = self._stages.do(BuildStage.PACKAGE, act, inputs)
        return portable

    def _requirement_of_torch(self) -> dict[str, Any]:
        """Return the PyTorch that the back end saw. An extension requires it, because it fits no
        other; any other project only if a library of it is found to need PyTorch.
        """
        if self.tree.kind is ProjectKind.PYTORCH:
            return {}
        version = self._python.torch_version()
        if version is None:
            return {}
        is_extension = self.tree.kind is ProjectKind.EXTENSION
        requires = (f"torch=={version.partition('+')[0]}",) if is_extension else ()
        return {"torch": version, "requires": requires}
