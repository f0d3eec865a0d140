"""The stages of a build in which ninja works: CMake or the back end writes what ninja does, and
ninja generates sources and compiles.
"""

from collections.abc import Sequence
from pathlib import Path

from stoker.builds.backend import BackEnd
from stoker.builds.configured import answer_file, probe_files, read_answer, switched_off
from stoker.builds.context import BuildContext
from stoker.builds.device_compiles import check_configured, ninja_commands
from stoker.builds.hindrances import refusal
from stoker.builds.stages import StageLog
from stoker.model.build import BuildStage
from stoker.model.errors import unknown
from stoker.model.secrets import is_secret
from stoker.model.setting import OriginKind, is_on
from stoker.outside import process
from stoker.outside.deleting import remove_file
from stoker.source import cmake_api
from stoker.source.ninja import generated_sources, read_edges

_ASKED = (OriginKind.FILE, OriginKind.ENVIRONMENT, OriginKind.VARIANT, OriginKind.COMMAND_LINE)
_CMAKE_FILES = ("CMakeLists.txt", ".cmake", ".cmake.in", "setup.py", "pyproject.toml")
_INCLUDED = "CMAKE_PROJECT_INCLUDE"  # a file that CMake reads at the end of a project()
_NO_WORK = "ninja: no work to do."


def configure(context: BuildContext) -> None:
    """Let CMake, or the back end, write what ninja does; refuse what differs from the plan."""
    task, route, execution = context.task, context.route, context.execution
    cache, graph = route.build / "CMakeCache.txt", route.build / "build.ninja"
    requested = [setting for setting in task.plan.cmake if setting.origin.kind in _ASKED]
    switched_on = [setting.name for setting in requested if is_on(setting.value)]
    options = execution.options_digest()

    def inputs() -> dict[str, str]:
        return {"options": options, "CMake files": context.sources(_CMAKE_FILES)}

    def act(log: StageLog) -> tuple[Path, ...]:
        for setting in requested:
            if is_secret(setting.name):
                context.say(
                    f"CMake writes the value of {setting.name} in clear text to {cache}; if the "
                    "project also reads it from the environment, set it there instead"
                )
        # CMake would keep what an earlier configuration found or was given.
        if task.work.changed(BuildStage.CONFIGURE, "options", options):
            remove_file(cache)
        remove_file(answer_file(route.build))
        cmake_api.ask_for_targets(route.build)  # for `stoker graph`
        # CMake also reports its final options, unless the project uses this place itself.
        probe = {}
        if not task.plan.value(_INCLUDED):
            probe = {_INCLUDED: str(probe_files(task.work.path / "probe", switched_on))}
        if route.by_back_end:
            defined = {f"cmake.define.{name}": value for name, value in probe.items()}
            execute = execution.executing(log, {"CMAKE_GENERATOR": "Ninja"})
            BackEnd(route.tree, context.python.executable, execute).configure(
                task.work.path / "configured",
                {**route.settings, **defined},
                editable=task.request.editable,
            )
        else:
            words, extra = route.configure, probe
            if not route.in_tree:
                talk = ("--log-level=VERBOSE",) if task.request.verbose else ()
                words = (*words, *talk, *(f"-D{name}={value}" for name, value in probe.items()))
                extra = {}
            execution.must(words, log, extra=extra, what="CMake does not accept it")
        _check_options(context, switched_on, log)
        _check_targets(context, log)
        return tuple(path for path in (cache, graph) if path.exists())

    context.stages.do(BuildStage.CONFIGURE, act, inputs)


def _check_options(context: BuildContext, switched_on: Sequence[str], log: StageLog) -> None:
    """Refuse a configuration in which an option is off that was asked for."""
    try:
        found = read_answer(answer_file(context.route.build).read_text(errors="replace"))
    except FileNotFoundError:
        log.line("stoker: this CMake cannot report its final options")
        return
    if off := switched_off(switched_on, found, log.text(), context.task.tree):
        raise refusal(off, context.task.subject)


def _check_targets(context: BuildContext, log: StageLog) -> None:
    """Refuse a configuration that compiles for other GPU targets than the plan, or for none."""
    planned = context.task.plan.targets
    if planned is None or context.task.request.accept_targets:
        return
    commands = ninja_commands(context.route.build, context.route.tree, context.environment)
    if commands is None:
        log.line("stoker: ninja does not list its commands, so the governor checks each")
    else:
        check_configured(planned, commands, log.text())


def compile_all(context: BuildContext) -> None:
    """Let ninja generate sources and compile, or only the share of this job."""
    build, job = context.route.build, context.job
    if context.route.by_back_end and not (build / "build.ninja").exists():
        if job:
            job.leave_to_back_end(context.task, context.environment)
        return  # the project chose another build tool, or compiles nothing
    if job:
        job.keep_native_apart(context.task, context.environment)
    target = context.task.request.target or "all"
    edges = read_edges(build)
    targets = {output for edge in edges for output in edge.outputs}
    if target not in targets:
        hint = f"`ninja -C {build} -t targets all` lists them"
        raise unknown("target", target, targets, hint=hint)
    if generated := generated_sources(edges, target):
        _ninja(context, BuildStage.CODEGEN, generated)
    if not (job and job.shard):
        _ninja(context, BuildStage.COMPILE, (target,))
        return
    share = job.share(edges, target)
    context.say(f"shard {job.shard}: compile steps: {len(share)}")
    if share:
        _ninja(context, BuildStage.COMPILE, share)
    job.ended(len(share))


def _ninja(context: BuildContext, stage: BuildStage, targets: Sequence[str]) -> None:
    words = ("ninja", "-C", str(context.route.build))
    talk = ("-v", "-d", "explain", "-d", "stats") if context.task.request.verbose else ()

    def reason() -> str | None:
        asked = process.run([*words, "-n", *targets], timeout=None, env=context.environment)
        return None if _NO_WORK in asked.stdout else "ninja has work to do"

    def act(log: StageLog) -> None:
        context.execution.must((*words, *talk, *targets), log, what="ninja stopped")

    context.stages.do_if(stage, act, reason=reason)
