"""How a tree is built: what configures it, what the back end is told, where it ends. Pure."""

from pathlib import Path

from stoker.model.build import BuildRequest, BuildStage
from stoker.model.errors import UsageError
from stoker.model.plan import Plan
from stoker.model.source import FrontEnd, ProjectKind, SourceTree
from stoker.model.value import Value

_BY_BACK_END = (ProjectKind.EXTENSION, ProjectKind.PACKAGE)


class Route(Value, frozen=True, kw_only=True):
    """``build`` is the folder of the build tool; ``configure`` the command, where we give it.

    Without that the back end configures, and also compiles unless it can stop before.
    """

    tree: Path
    build: Path
    configure: tuple[str, ...] = ()
    by_back_end: bool = False  # scikit-build-core configures, and we compile
    in_tree: bool = False  # the front end builds where the source is
    settings: dict[str, str] = {}  # of the back end
    last: BuildStage


def choose_route(
    plan: Plan, tree: SourceTree, request: BuildRequest, *, build: Path, python: str
) -> Route:
    """Return how the tree is built. ``python`` is the interpreter that runs the back end."""
    root = Path(tree.path)
    last = last_stage(plan, tree, request)
    given = dict(plan.backend_settings)
    # CMake can be called before, or instead of, the back end.
    by_cmake = tree.kind not in _BY_BACK_END and (
        tree.kind is ProjectKind.PYTORCH
        or last is not BuildStage.WHEEL
        or tree.front_end is FrontEnd.SCIKIT_BUILD_CORE
    )
    by_setup_py = tree.kind is ProjectKind.PYTORCH and tree.front_end is FrontEnd.SETUPTOOLS
    if by_setup_py and last is not BuildStage.INSTALL and plan.commands[-1].stage == "wheel":
        by_setup = (python, "setup.py", "build", "--cmake-only")
        return Route(tree=root, build=root / "build", configure=by_setup, in_tree=True, last=last)
    if not by_cmake:
        if request.target or request.install_tree:
            flag = "--target" if request.target else "--install-tree"
            raise UsageError(
                f"{flag} is for projects that CMake configures, and {tree.name} is built by "
                f"{tree.front_end}",
                hints=[f"leave out {flag}: a build compiles only what has changed"],
            )
        in_tree = tree.front_end is not FrontEnd.SETUPTOOLS
        return Route(tree=root, build=build, in_tree=in_tree, settings=given, last=BuildStage.WHEEL)
    options = {setting.name: setting.value for setting in plan.cmake}
    # Search paths of the build tree must not tell where it is: their length stays in the library.
    defines = {"CMAKE_BUILD_RPATH_USE_ORIGIN": "ON"} | options
    if tree.front_end is FrontEnd.SCIKIT_BUILD_CORE and last is not BuildStage.INSTALL:
        # It has a default for the type, where CMake has none.
        defines.setdefault("CMAKE_BUILD_TYPE", plan.variant.build_type.value)
        settings = given | _of_scikit_build(defines, build, request)
        return Route(tree=root, build=build, by_back_end=True, settings=settings, last=last)
    configure = (
        *("cmake", "-S", str(root / tree.folder), "-B", str(build), "-G", "Ninja"),
        *(f"-D{name}={value}" for name, value in defines.items()),
    )
    return Route(tree=root, build=build, configure=configure, settings=given, last=last)


def last_stage(plan: Plan, tree: SourceTree, request: BuildRequest) -> BuildStage:
    if request.target:
        return BuildStage.COMPILE
    # A plan without Python bindings calls CMake itself.
    bare = plan.recipe is ProjectKind.PYTORCH and plan.commands[-1].stage != "wheel"
    if request.install_tree or bare or tree.front_end is FrontEnd.CMAKE:
        return BuildStage.COMPILE if request.editable else BuildStage.INSTALL
    return BuildStage.WHEEL


def _of_scikit_build(options: dict[str, str], build: Path, request: BuildRequest) -> dict[str, str]:
    settings = {"build-dir": str(build)}
    for name, value in options.items():
        if name == "CMAKE_BUILD_TYPE":
            settings["cmake.build-type"] = value
        else:
            settings[f"cmake.define.{name}"] = value
    if request.verbose:
        settings |= {"build.verbose": "true", "logging.level": "INFO"}
    return settings
