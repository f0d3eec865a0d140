"""Checks the libraries of features and BLAS: without them, features switch themselves off. Pure."""

from collections.abc import Iterator

from stoker.knowledge.features import FeatureRow, blas_libraries, features
from stoker.knowledge.libraries import library_table
from stoker.model.finding import Finding, Severity, error, ok, warning
from stoker.model.machine import Library
from stoker.model.setting import is_on
from stoker.model.source import ProjectKind
from stoker.plan.planning import PlannedBuild


def check_switched_off(planned: PlannedBuild) -> Iterator[Finding]:
    """Yield features whose library is missing: the build switches them off silently."""
    for row in features().values():
        if not _would_be_on(planned, row) or _served(planned, row):
            continue
        asked = planned.subject.feature(row.name) is True
        what = row.library or row.python_package or row.name
        severity = Severity.ERROR if asked else Severity.WARNING
        would = "cannot be built" if asked else "would switch itself off"
        fix = planned.install(row.library) if row.library else (f"python3 -m pip install {what}",)
        yield Finding(
            name=f"{row.name}-missing",
            severity=severity,
            title=f"{row.name} {would}: {what} not found",
            evidence=row.help + _found_of(planned.subject.toolbox.library(row.library or "")),
            fix=(*fix, *_elsewhere(row)),
        )


def _would_be_on(planned: PlannedBuild, row: FeatureRow) -> bool:
    if not (row.library or row.python_package):
        return False
    if row.backends and planned.subject.variant.backend not in row.backends:
        return False
    value = planned.plan.value(row.option)
    if value is not None:
        return is_on(value)
    option = planned.subject.tree.option(row.option) if planned.subject.tree else None
    return planned.subject.is_pytorch and option is not None and option.default == "ON"


def _served(planned: PlannedBuild, row: FeatureRow) -> bool:
    if row.python_package:
        return row.python_package in planned.subject.toolbox.python.packages
    library = planned.subject.toolbox.library(row.library or "")
    if library and library.complete:
        return True
    modules = planned.subject.tree.submodules if planned.subject.tree else ()
    return any(module.path == row.submodule and module.present for module in modules)


def _found_of(library: Library | None) -> str:
    if library is None:
        return ""
    half = f"header {library.header}" if library.header else f"library {library.library}"
    return f"; only its {half} was found"


def _elsewhere(row: FeatureRow) -> tuple[str, ...]:
    """Return the variable to set if the library is installed elsewhere."""
    known = next((known for known in library_table().library if known.name == row.library), None)
    variable = known.variables[0] if known and known.variables else "CMAKE_PREFIX_PATH"
    return (f"export {variable}=FOLDER   # if it is installed elsewhere",) if row.library else ()


def check_blas(planned: PlannedBuild) -> Iterator[Finding]:
    if planned.subject.kind is not ProjectKind.PYTORCH:
        return
    value = planned.plan.value("BLAS")
    if value is None and planned.subject.platform.os == "macos":
        return  # Accelerate comes with the system
    rows = [row for row in blas_libraries().values() if row.library]
    if value:
        rows = [row for row in rows if row.value == value]
    toolbox = planned.subject.toolbox
    found = [row for row in rows if (b := toolbox.library(row.library or "")) and b.complete]
    if found:
        yield ok("blas", f"BLAS: {found[0].value}")
    elif rows and planned.subject.variant.blas:
        name = rows[0].library or ""
        yield error("blas-missing", f"{value} not found", fix=planned.install(name))
    elif rows:
        wanted = f"{value} not found: " if value else ""
        yield warning(
            "blas-missing",
            f"{wanted}without a BLAS library matrix products on the CPU are very slow",
            fix=planned.install("openblas"),
        )
