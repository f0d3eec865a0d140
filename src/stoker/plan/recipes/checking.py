"""`stoker plan --check-recipe`: what is wrong with a recipe, alone and for one tree."""

from collections.abc import Iterator

from stoker.knowledge.gpus import cuda_archs, gpus
from stoker.knowledge.projects import reader_of
from stoker.model.finding import Finding, error, ok, warning
from stoker.model.recipe import FORMS, PLACEHOLDERS, BackendRecipe, ProjectRecipe
from stoker.model.source import SourceTree
from stoker.model.variant import Backend
from stoker.plan.recipes.project import PLACEHOLDER


def check_recipe(recipe: ProjectRecipe, tree: SourceTree | None = None) -> tuple[Finding, ...]:
    """Return what is wrong with a recipe, and, with a tree, what the tree reads of it."""
    findings = [finding for item in recipe.backends.items() for finding in _backend(recipe, *item)]
    if not recipe.backends:
        findings.append(warning("recipe-empty", f"{recipe.name}: no back end is described"))
    if tree and tree.recipe == recipe.name:
        findings.append(ok("recipe-fits", f"{tree.path} is recognized as {recipe.name}"))
    elif tree:
        other = f"; the recipe {tree.recipe} fits it" if tree.recipe else ""
        findings.append(
            error(
                "recipe-not-recognized",
                f"{tree.path} is not recognized as {recipe.name}",
                evidence=f"its package or project is called {tree.name}{other}",
            )
        )
    if tree:
        findings += _read(recipe, tree)
    return tuple(findings) or (ok("recipe", f"{recipe.name}: nothing is wrong"),)


def _backend(recipe: ProjectRecipe, backend: Backend, known: BackendRecipe) -> Iterator[Finding]:
    where = f"{recipe.name}, {backend}"
    tables = (known.environment, known.cmake, known.backend_settings)
    for name, text in (item for table in tables for item in table.items()):
        for placeholder in PLACEHOLDER.findall(text):
            if placeholder not in PLACEHOLDERS:
                yield error("recipe-placeholder", f"{where}: {name} has an unknown {placeholder}")
    named = {*known.archs, *known.serves, *known.serves.values()}
    named |= {arch.removesuffix("+PTX") for row in known.fixed for arch in row.archs}
    named |= {arch.removesuffix("+PTX") for arch in known.accepts}
    of_backend = {row.arch for row in gpus().values() if row.backend is backend}
    for arch in sorted(named - ({*cuda_archs()} if backend is Backend.CUDA else of_backend)):
        yield warning("recipe-target", f"{where}: {arch} is no target that stoker knows")
    chooses = known.chooses_targets or not known.compiles
    if backend in (Backend.CUDA, Backend.ROCM) and not chooses:
        yield warning(
            "recipe-no-targets",
            f"{where}: no value holds the targets, so only torch's or CMake's own list sets them",
            fix=(f"one of {', '.join(FORMS)}, or fixed = [...], or compiles = false",),
        )


def _read(recipe: ProjectRecipe, tree: SourceTree) -> Iterator[Finding]:
    """Yield for every variable of the recipe where the tree reads it."""
    variables: dict[tuple[str, bool], None] = {}
    for known in recipe.backends.values():
        variables |= dict.fromkeys((name, True) for name in known.environment)
        variables |= dict.fromkeys((name, False) for name in known.cmake)
        variables |= dict.fromkeys((switch.name, not switch.cmake) for switch in known.switches)
    for name, from_environment in variables:
        ask = tree.ask(name, environment=from_environment)
        reader = ask.where if ask else reader_of(name, tree.readers, environment=from_environment)
        if reader:
            yield ok("variable-read", name, reader)
        elif name in recipe.reads:
            yield ok("variable-read", name, "the recipe says so")
        else:
            yield warning(
                "variable-unread",
                f"nothing in {tree.name} is known to read {name}",
                fix=(f'reads = ["{name}"]   # if it is read in a way that cannot be seen',),
            )
