"""The stages of a build, in order. Each says what it depends on, and what it does."""

import shlex
from pathlib import Path
from typing import Any

from stoker import __version__
from stoker.builds.backend import BackEnd, clear_copies, setuptools_settings
from stoker.builds.by_ninja import compile_all, configure
from stoker.builds.context import BuildContext
from stoker.builds.device_compiles import compiled_below, configured_without
from stoker.builds.digests import digest, file_digest
from stoker.builds.finishing import AUTO, PortableWheels, check_wheel, handed_over
from stoker.builds.hindrances import hindrances, mending
from stoker.builds.in_memory import drop_memory_tree
from stoker.builds.stages import StageLog
from stoker.machine.installers import pip_in
from stoker.model.build import BuildStage, Isolation
from stoker.model.errors import MissingError
from stoker.model.source import FrontEnd, ProjectKind
from stoker.outside import files, folders
from stoker.outside.deleting import remove_empty, remove_whole
from stoker.plan.records import lasting_json
from stoker.wheel.package.request import PackageMode, PackageRequest


def start_over(build: Path) -> None:
    """Remove the folder of the build tool, if CMake has configured it, and its copy in memory."""
    drop_memory_tree(build)
    if (build / "CMakeCache.txt").exists():
        remove_whole(build)


def run_stages(context: BuildContext) -> tuple[Path, ...]:
    """Carry out all stages whose inputs have changed; return what was made, which appears in the
    output folder whole or not at all.

    It raises StageError if a stage fails and Terminated if a signal ends the build; the next build
    then resumes at that stage.
    """
    task, route = context.task, context.route
    context.execution.link_tools()
    _prepare(context)
    context.execution.forget_objects_of_other_flags()
    if context.calls_ninja:
        configure(context)
        compile_all(context)
    if context.job and context.job.shard:
        return ()
    if route.last is BuildStage.INSTALL:
        return _install(context)
    if route.last is not BuildStage.WHEEL:
        context.say(f"nothing was installed; what was built is in {route.build}")
        return ()
    wheel = _wheel(context)
    if task.request.editable:
        _install_editable(context, wheel)
        return ()
    portable = _package(context, wheel)
    context.stages.do(
        BuildStage.VERIFY,
        lambda log: check_wheel(portable, log, task.request.mode),
        lambda: {"wheel": file_digest(portable), "stoker": __version__},
    )
    return (handed_over(portable, context.out),)


def _prepare(context: BuildContext) -> None:
    """Refuse a build that cannot succeed, and make the environment of the back end."""
    task, python = context.task, context.python

    def inputs() -> dict[str, str]:
        requirements = [python.requirements(), python.torch_index(), python.isolation]
        return {
            "hindrances": digest([one.title for one in hindrances(task, python.isolation)]),
            "requirements": digest(requirements),
            "python": python.digest(),
        }

    def act(log: StageLog) -> tuple[Path, ...]:
        if found := hindrances(task, python.isolation):
            raise MissingError(found[0].title, hints=mending(found))
        for command in task.plan.commands:
            if command.stage == "prepare":
                what = f"{shlex.join(command.words)} failed"
                context.execution.must(command.words, log, what=what)
        if not python.isolated:
            return ()
        python.make(context.execution.executing(log))
        return (python.folder,)

    context.stages.do(BuildStage.PREPARE, act, inputs)


def _install(context: BuildContext) -> tuple[Path, ...]:
    """Let CMake install into a folder of this version and variant."""
    tree, build = context.task.tree, context.route.build
    version = f"-{tree.version}" if tree.version else ""
    target = context.out / folders.slug(f"{tree.name}{version}-{context.task.plan.label}")

    def inputs() -> dict[str, str]:
        return {
            "products": file_digest(build / ".ninja_log"),
            "tree": context.sources(),
            "folder": str(context.out),
        }

    def act(log: StageLog) -> tuple[Path, ...]:
        with files.folder_made_whole(target) as aside:
            words = ("cmake", "--install", str(build), "--prefix", str(aside))
            context.execution.must(words, log, what="installing failed")
            if target.exists():
                remove_whole(target)
        if any(target.iterdir()):
            return (target,)
        remove_empty(target)
        return ()

    made = context.stages.do(BuildStage.INSTALL, act, inputs)
    if not made:
        why = "nothing was installed, because the project has no install rules"
        context.say(f"{why}; what was built is in {build}")
    return made


def _wheel(context: BuildContext) -> Path:
    """Let the back end make its wheel."""
    task, route, python = context.task, context.route, context.python

    def inputs() -> dict[str, str]:
        options = context.execution.options_digest()
        return {
            "tree": context.sources(),
            "products": file_digest(route.build / ".ninja_log"),
            "options": digest([route.settings, options, task.request.editable]),
            "time": context.environment["SOURCE_DATE_EPOCH"],
            "python": python.digest(),
            "requirements": digest([python.requirements(), python.isolation]),
        }

    def act(log: StageLog) -> tuple[Path, ...]:
        own = {}
        if task.tree.front_end is FrontEnd.SETUPTOOLS:
            clear_copies(route.build)
            uses_installed = python.isolation is Isolation.NONE
            own = setuptools_settings(
                task.work.path,
                None if route.in_tree else route.build,
                task.subject.toolbox.python if uses_installed else None,
            )
        back_end = BackEnd(route.tree, python.executable, context.execution.executing(log, own))
        made = back_end.make_wheel(task.work.wheel, route.settings, editable=task.request.editable)
        _check_compiled(context, log)
        return (made,)

    (wheel,) = context.stages.do(BuildStage.WHEEL, act, inputs, inputs_change=route.in_tree)
    return wheel


def _check_compiled(context: BuildContext, log: StageLog) -> None:
    """Refuse a wheel whose back end compiled no device code although the plan wants some."""
    planned, governed, route = context.task.plan.targets, context.governed, context.route
    if planned is None or not planned.compiles or context.task.request.accept_targets:
        return
    if context.calls_ninja or governed.kernels or governed.cache_hits:
        return
    if not compiled_below(route.build, route.tree, context.environment):
        raise configured_without(planned, log.text(), "no command of its build")


def _install_editable(context: BuildContext, wheel: Path) -> None:
    python = context.task.subject.toolbox.python.executable
    words = (*pip_in(python), "install", "--no-deps", "--force-reinstall", str(wheel))
    context.stages.do_if(
        BuildStage.INSTALL,
        lambda log: context.execution.must(words, log, what="pip could not install it"),
        reason=lambda: "asked",
    )
    context.say(f"installed in editable mode for {python}")


def _package(context: BuildContext, wheel: Path) -> Path:
    """Make the wheel portable, and put the plan into it."""
    plan, request = context.task.plan, context.task.request
    mode, label = request.mode, plan.label if request.label == "auto" else request.label
    built = {
        "mode": mode,
        "isolation": context.python.isolation,
        "label": request.label,
        "torch": request.torch,
        "accept_targets": request.accept_targets,
        "stoker": __version__,
        # A folder of this machine means nothing on another.
        "source": "" if Path(request.source).is_dir() else request.source,
    }
    recorded = {**lasting_json(plan), "build": built}
    torch = _requirement_of_torch(context)

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
        wanted = PackageRequest(mode=plain, label=label, **torch)
        wheels = PortableWheels(wheel, recorded, context.task.work.packed, log)
        made = wheels.packed(wanted)
        return (wheels.repaired(made, wanted, context.say) if mode == AUTO else made,)

    (portable,) = context.stages.do(BuildStage.PACKAGE, act, inputs)
    return portable


def _requirement_of_torch(context: BuildContext) -> dict[str, Any]:
    """Return the PyTorch that the back end saw. An extension requires it, because it fits no
    other; any other project only if a library of it is found to need PyTorch.
    """
    kind, version = context.task.tree.kind, context.python.torch_version()
    if kind is ProjectKind.PYTORCH or version is None:
        return {}
    is_extension = kind is ProjectKind.EXTENSION
    return {
        "torch": version,
        "requires": (f"torch=={version.partition('+')[0]}",) if is_extension else (),
    }
