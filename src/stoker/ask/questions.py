"""Turns a plan into the question that the project's build is asked."""

import os
import tomllib
from collections.abc import Mapping
from importlib.machinery import PathFinder
from pathlib import Path

from stoker.ask.room import BUILD, Limits, Question, prefixes, without_session
from stoker.knowledge.gpus import gpus
from stoker.knowledge.torch_releases import wheel_targets
from stoker.machine.python import Probe, ask_interpreter
from stoker.model.errors import UsageError
from stoker.model.plan import Plan
from stoker.model.source import FrontEnd, SourceTree
from stoker.model.variant import Backend
from stoker.plan.subject import Subject
from stoker.source.package import required_names

_TIMEOUT_S = 20.0
_SETUPTOOLS = ("setuptools.build_meta", "setuptools.build_meta:__legacy__")


def question(subject: Subject, plan: Plan, *, gpu_visible: bool, limits: Limits) -> Question:
    """Return what to run in the room for a plan. With ``gpu_visible`` the GPU of the variant is
    pretended, else a machine without one.
    """
    tree = subject.tree
    if tree is None:
        raise UsageError("there is no source tree to ask", hints=["name it with --source DIR"])
    if not subject.here:
        raise UsageError(
            f"a build for {subject.platform} cannot be asked on {subject.machine.platform}"
        )
    own = {s.name: s.value for s in plan.environment}
    environment = {**without_session(subject.exported), **own}
    probe = Probe(environment=dict(subject.exported), timeout_s=_TIMEOUT_S)
    python = ask_interpreter(subject.toolbox.python.executable, probe)
    programs = [tool.path for tool in subject.toolbox.tools]
    cuda = subject.toolkit
    return Question(
        tree=tree.path,
        python=python.executable,
        words=_words(subject, plan, tree),
        environment=environment,
        pretended=_pretended(subject, visible=gpu_visible),
        lent=_lent(subject, tree),
        shown=(
            python.prefix,
            *prefixes([python.executable, *programs]),
            *(folder for folder in python.search_path if folder),
            *_above(Path(tree.path)),
            *((cuda.home, os.path.realpath(cuda.home)) if cuda else ()),
        ),
        # A build gets CMake and ninja in the same way (builds/execution.py).
        tools={
            name: path for name in ("cmake", "ninja") if (path := subject.program(name)) != name
        },
        limits=limits,
    )


def _above(tree: Path) -> list[str]:
    """Return the root of the git tree that a project is a part of: its files may be included."""
    roots = (folder for folder in tree.parents if (folder / ".git").exists())
    return [str(root) for root in list(roots)[:1] if not (tree / ".git").exists()]


def _lent(subject: Subject, tree: SourceTree) -> dict[str, str]:
    """Return the packages that the tree requires, its Python lacks and stoker's own has: a build in
    an environment of its own installs them, and what they do decides nothing about its compiles.
    """
    found = {}
    for name in sorted(required_names(tree.requirements) - set(subject.toolbox.python.packages)):
        spec = PathFinder.find_spec(name)
        if spec and spec.submodule_search_locations and not name.startswith(("torch", "nvidia")):
            found[name] = str(Path(next(iter(spec.submodule_search_locations))).parent)
    return found


def _words(subject: Subject, plan: Plan, tree: SourceTree) -> tuple[str, ...]:
    if tree.front_end is FrontEnd.CMAKE or not subject.has_front_end:
        ninja = subject.build_tool("ninja")
        generator = "Ninja" if ninja and not ninja.problem else ""
        source = str(Path(tree.path) / tree.folder) if tree.folder else tree.path
        options = (f"-D{s.name}={s.value}" for s in plan.cmake)
        cmake = subject.build_tool("cmake")
        return ("cmake", cmake.path if cmake else "cmake", generator, source, BUILD, *options)
    given = _config_settings(plan)
    backend, paths = _backend(Path(tree.path))
    if backend in _SETUPTOOLS and (Path(tree.path) / "setup.py").is_file():
        words = (value for name, value in given.items() if name == "--build-option")
        return ("setup.py", *words)
    settings = (f"{name}={value}" for name, value in given.items())
    return ("backend", backend, *paths, "--", *settings)


def _config_settings(plan: Plan) -> dict[str, str]:
    """Return the settings that the plan's command gives to the build back end."""
    words = next((c.words for c in plan.commands if c.stage == "wheel"), ())
    given = (word[2:].partition("=") for word in words if word.startswith("-C"))
    return {name: value for name, _, value in given}


def _backend(tree: Path) -> tuple[str, tuple[str, ...]]:
    """Return the build back end of a tree, and folders of the tree that hold it."""
    try:
        text = (tree / "pyproject.toml").read_text(encoding="utf-8")
        table = tomllib.loads(text).get("build-system", {})
    except (OSError, ValueError):
        table = {}
    paths = table.get("backend-path", ())
    return table.get("build-backend", _SETUPTOOLS[1]), tuple(map(str, paths))


def _of_wheel(cuda: str | None) -> list[str]:
    """Return the targets of the official wheels for a CUDA, as torch.cuda.get_arch_list() does."""
    row = wheel_targets().get(f"{cuda or ''}".partition(".")[0])
    return [f"sm_{arch.replace('.', '')}" for arch in row or ()]


def _pretended(subject: Subject, *, visible: bool) -> Mapping[str, object]:
    if subject.variant.backend is not Backend.CUDA:
        return {"visible": False}
    target = subject.gpus[0] if subject.gpus else None
    row = gpus().get(target.plain) if target else None
    return {
        "cuda": subject.cuda_version,
        "archs": _of_wheel(subject.cuda_version),
        "visible": visible and target is not None,
        "capability": target.capability if target else (0, 0),
        "name": f"NVIDIA {row.names[0]}" if row else "NVIDIA GPU",
    }
