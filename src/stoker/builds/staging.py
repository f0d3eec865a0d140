"""The stages of a build, in order, and what each of them does."""

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from stoker import __version__
from stoker.builds import named_torch
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
from stoker.builds.finishing import AUTO, Packing, check_wheel, handed_over
from stoker.builds.hindrances import (
    build_requirements,
    fitting_isolation,
    hindrances,
    make_environment,
    mending,
    python_digest,
    refusal,
)
from stoker.builds.isolated import Isolated
from stoker.builds.jobs.job import Job, names_native
from stoker.builds.route import choose_route, last_stage
from stoker.builds.stages import StageLog, Stages
from stoker.builds.work import Work, drop_memory_tree
from stoker.govern.session import Session
from stoker.machine.installers import pip_in
from stoker.model.build import BuildRequest, BuildStage, GitState, Isolation
from stoker.model.errors import MissingError, UsageError, unknown
from stoker.model.finding import Finding
from stoker.model.plan import Plan
from stoker.model.secrets import is_secret
from stoker.model.setting import OriginKind, is_on
from stoker.model.source import FrontEnd, ProjectKind, SourceTree
from stoker.outside import files, folders, process
from stoker.outside.deleting import remove_empty, remove_file, remove_whole
from stoker.plan.records import lasting_json
from stoker.plan.subject import Subject
from stoker.source import cmake_api
from stoker.source.ninja import generated_sources, read_edges
from stoker.wheel.package.values import PackageMode, PackageRequest

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
        self._execution = Execution(
            subject=subject,
            plan=plan,
            route=self.route,
            work=work,
            governed=governed,
            isolated=self._isolated,
            epoch=git.time if git else None,
            verbose=request.verbose,
        )
        if not self._calls_ninja:
            self._keep_cpus_apart()

    @property
    def environment(self) -> dict[str, str]:
        """The environment of all stages."""
        return self._execution.environment

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
        self._stages.do(BuildStage.PREPARE, self._prepare, self._prepare_inputs)
        self._execution.forget_objects_of_other_flags()
        if self._calls_ninja:
            self._compile_all()
        if self._job and self._job.shard:
            return ()
        match self.route.last:
            case BuildStage.INSTALL:
                made = self._stages.do(BuildStage.INSTALL, self._install, self._install_inputs)
                if not made:
                    self._say(_NOTHING_INSTALLED.format(folder=self.route.build))
                return made
            case BuildStage.WHEEL:
                return self._wheel_and_after()
            case _:
                self._say(f"nothing was installed; what was built is in {self.route.build}")
                return ()

    def _compile_all(self) -> None:
        self._stages.do(BuildStage.CONFIGURE, self._configure, self._configure_inputs)
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
        if not (self._job and self._job.shard):
            self._ninja(BuildStage.COMPILE, (target,))
            return
        share = self._job.share(edges, target)
        self._say(f"shard {self._job.shard}: compile steps: {len(share)}")
        if share:
            self._ninja(BuildStage.COMPILE, share)
        self._job.ended(len(share))

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

    def _wheel_and_after(self) -> tuple[Path, ...]:
        (wheel,) = self._stages.do(
            BuildStage.WHEEL,
            self._wheel,
            self._wheel_inputs,
            inputs_change=self.route.in_tree,
        )
        if self._request.editable:
            python = self._subject.toolbox.python.executable

            def install(log: StageLog) -> tuple[Path, ...]:
                words = (*pip_in(python), "install", "--no-deps", "--force-reinstall", str(wheel))
                self._execution.must(words, log, what="pip could not install it")
                return ()

            self._stages.do_if(BuildStage.INSTALL, install, reason=lambda: "asked")
            self._say(f"installed in editable mode for {python}")
            return ()
        (portable,) = self._stages.do(
            BuildStage.PACKAGE,
            lambda log: self._package(wheel, log),
            lambda: {
                "wheel": file_digest(wheel),
                "mode": self._request.mode,
                "label": self._label() or "",
                "plan": digest([self._recorded(), self._requirement_of_torch()]),
                "stoker": __version__,
            },
        )
        self._stages.do(
            BuildStage.VERIFY,
            lambda log: check_wheel(portable, log, self._request.mode),
            lambda: {"wheel": file_digest(portable), "stoker": __version__},
        )
        return (handed_over(portable, self._out),)

    def _prepare_inputs(self) -> dict[str, str]:
        return {
            "hindrances": digest([finding.title for finding in self._hindrances()]),
            "requirements": digest([self._requirements(), self._torch_index(), self._isolation]),
            "python": python_digest(self._subject, self.tree, self._isolation),
        }

    def _prepare(self, log: StageLog) -> tuple[Path, ...]:
        if hindering := self._hindrances():
            raise MissingError(hindering[0].title, hints=mending(hindering))
        for command in self._plan.commands:
            if command.stage == "prepare":
                what = f"{shlex.join(command.words)} failed"
                self._execution.must(command.words, log, what=what)
        if not self._isolation or not self._isolated:
            return ()
        folder, execute = self._work.environment, self._execution.executing(log)
        make_environment(
            folder,
            self._subject,
            self.tree,
            self._isolation,
            self._requirements(),
            execute,
            torch_index=self._torch_index(),
        )
        if self._request.torch:
            named_torch.check_toolkit(folder, self._subject.variant)
        return (folder,)

    def _hindrances(self) -> list[Finding]:
        return hindrances(self._subject, self._plan, self.tree, self._isolation)

    def _chosen_isolation(self) -> Isolation | None:
        """Return None if the build has no back end."""
        last = last_stage(self._plan, self.tree, self._request)
        configures = self.tree.front_end is FrontEnd.SCIKIT_BUILD_CORE
        if last is not BuildStage.WHEEL and not (configures and last is BuildStage.COMPILE):
            return None
        return self._request.isolation or fitting_isolation(
            self._subject, self.tree, torch=self._request.torch
        )

    def _requirements(self) -> tuple[str, ...]:
        return build_requirements(self.tree, self._request.torch, self._isolation)

    def _torch_index(self) -> str | None:
        address = self._request.torch_index if self._request.torch else None
        return named_torch.index_for(address, self._subject.variant) if address else None

    def _configure_inputs(self) -> dict[str, str]:
        return {
            "options": self._execution.options_digest(),
            "CMake files": tree_state(
                self.route.tree, names=_CMAKE_FILES, without=self._no_source()
            ),
        }

    def _configure(self, log: StageLog) -> tuple[Path, ...]:
        build = self.route.build
        cache, graph = build / "CMakeCache.txt", build / "build.ninja"
        for setting in self._plan.cmake:
            if setting.origin.kind in _ASKED and is_secret(setting.name):
                self._say(_SECRET_OPTION.format(name=setting.name, cache=cache))
        # CMake would keep what an earlier configuration found or was given.
        if self._work.changed(BuildStage.CONFIGURE, "options", self._execution.options_digest()):
            remove_file(cache)
        asked = [s.name for s in self._plan.cmake if s.origin.kind in _ASKED and is_on(s.value)]
        remove_file(answer_file(build))
        cmake_api.ask_for_targets(build)  # for `stoker graph`
        # With the probe, CMake also reports its final options. A project may use its place itself.
        probe = {}
        if not self._plan.value(_INCLUDED):
            probe = {_INCLUDED: str(probe_files(self._work.path / "probe", asked))}
        if self.route.by_back_end:
            defined = {f"cmake.define.{name}": value for name, value in probe.items()}
            configure_tree(
                self.route.tree,
                self._work.path / "configured",
                python=self._python,
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
        self._check_configured(asked, log)
        return tuple(path for path in (cache, graph) if path.exists())

    def _check_configured(self, asked: Sequence[str], log: StageLog) -> None:
        """Refuse a configuration in which an option is off that was asked for, or one that compiles
        for other GPU targets than the plan, or for none.
        """
        try:
            found = read_answer(answer_file(self.route.build).read_text(errors="replace"))
        except FileNotFoundError:
            log.line("stoker: this CMake cannot report its final options")
        else:
            if off := switched_off(asked, found, log.text(), self.tree):
                raise refusal(off, self._subject)
        if self._plan.targets is None or self._request.accept_targets:
            return
        commands = ninja_commands(self.route.build, self.route.tree, self.environment)
        if commands is None:
            log.line("stoker: ninja does not list its commands, so the governor checks each")
        else:
            check_configured(self._plan.targets, commands, log.text())

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

    def _install_inputs(self) -> dict[str, str]:
        return {
            "products": file_digest(self.route.build / ".ninja_log"),
            "tree": tree_state(self.route.tree, without=self._no_source()),
            "folder": str(self._out),
        }

    def _install(self, log: StageLog) -> tuple[Path, ...]:
        version = f"-{self.tree.version}" if self.tree.version else ""
        target = self._out / folders.slug(f"{self.tree.name}{version}-{self._plan.label}")
        with files.folder_made_whole(target) as aside:
            words = ("cmake", "--install", str(self.route.build), "--prefix", str(aside))
            self._execution.must(words, log, what="installing failed")
            if target.exists():
                remove_whole(target)
        if not any(target.iterdir()):
            remove_empty(target)
            return ()
        return (target,)

    def _wheel_inputs(self) -> dict[str, str]:
        return {
            "tree": tree_state(self.route.tree, without=self._no_source()),
            "products": file_digest(self.route.build / ".ninja_log"),
            "options": digest(
                [self.route.settings, self._execution.options_digest(), self._request.editable]
            ),
            "time": self.environment["SOURCE_DATE_EPOCH"],
            "python": python_digest(self._subject, self.tree, self._isolation),
            "requirements": digest([self._requirements(), self._isolation]),
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
            execute=self._execution.executing(log, own),
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

    def _no_source(self) -> tuple[Path, ...]:
        """Return folders and files in the tree that the build itself makes."""
        made = (self._out, self._work.path, self.route.build)
        return (*made, *installed_files(self.route.build)) if self.route.in_tree else made

    def _recorded(self) -> dict[str, object]:
        source = self._request.source
        built = {
            "mode": self._request.mode,
            "isolation": self._isolation,
            "label": self._request.label,
            "torch": self._request.torch,
            "accept_targets": self._request.accept_targets,
            "stoker": __version__,
            # A folder of this machine means nothing on another.
            "source": "" if Path(source).is_dir() else source,
        }
        return {**lasting_json(self._plan), "build": built}

    def _package(self, wheel: Path, log: StageLog) -> tuple[Path, ...]:
        mode = self._request.mode
        request = PackageRequest(
            mode=PackageMode.PLAIN if mode == AUTO else PackageMode(mode),
            label=self._label(),
            **self._requirement_of_torch(),
        )
        packing = Packing(wheel, self._recorded(), self._work.packed, log)
        made = packing.packed(request)
        return (packing.repaired(made, request, self._say) if mode == AUTO else made,)

    def _label(self) -> str | None:
        return self._plan.label if self._request.label == "auto" else self._request.label

    def _requirement_of_torch(self) -> dict[str, Any]:
        """Return the PyTorch that the back end saw. An extension requires it, because it fits no
        other; any other project only if a library of it is found to need PyTorch.
        """
        if self.tree.kind is ProjectKind.PYTORCH:
            return {}
        if self._isolation is Isolation.FULL:
            version = Isolated.version(self._work.environment, "torch")
        else:
            version = self._subject.toolbox.python.packages.get("torch")
        if version is None:
            return {}
        is_extension = self.tree.kind is ProjectKind.EXTENSION
        requires = (f"torch=={version.partition('+')[0]}",) if is_extension else ()
        return {"torch": version, "requires": requires}
