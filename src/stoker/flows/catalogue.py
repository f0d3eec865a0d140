"""Lists the options of a tree and the words of variants."""

from pathlib import Path

from stoker.flows.planning import named_variant
from stoker.knowledge.hardware import (
    Gpu,
    cpu_dispatch,
    cpu_levels,
    cpu_needs,
    cuda_releases,
    gpus,
    platforms,
    runs_on,
)
from stoker.knowledge.projects import blas_libraries, features, forwarding
from stoker.model.catalogue import Catalogue, Explained, GpuEntry, NamedEntry, Served
from stoker.model.errors import UsageError, nearest
from stoker.model.plan import Backend, Variant
from stoker.model.source import CMakeOption, ListedOption, ProjectKind, SourceTree
from stoker.plan.grammar import label, name, parse
from stoker.settings.toml import SettingsFile, find_file, read_file
from stoker.source.tree import read_tree


def options(source: Path, pattern: str) -> tuple[SourceTree, tuple[ListedOption, ...]]:
    """Return the options whose name or help contains the pattern, in the order of the tree."""
    tree = read_tree(source)
    wanted = pattern.casefold()
    found = tuple(
        _listed(tree, option)
        for option in tree.options
        if wanted in option.name.casefold() or wanted in option.help.casefold()
    )
    if not found and tree.options:
        near = ", ".join(nearest(pattern, {option.name for option in tree.options}))
        hint = f"nearest: {near}" if near else "without a pattern, all options are listed"
        raise UsageError(f"no option of {tree.name} contains '{pattern}'", hints=[hint])
    return tree, found


def _listed(tree: SourceTree, option: CMakeOption) -> ListedOption:
    pytorch = tree.kind is ProjectKind.PYTORCH
    return ListedOption(
        option=option, variable=forwarding().variable(option.name) if pytorch else None
    )


def catalogue() -> Catalogue:
    """Return every word of variants, and the named variants of stoker.toml."""
    path = find_file(Path.cwd())
    return Catalogue(
        gpus=tuple(_gpu_entry(row) for row in gpus().values()),
        cpus={level.name: level.serves for level in cpu_levels().values()},
        blas=tuple(blas_libraries()),
        features={row.name: row.help for row in features().values()},
        platforms=tuple(str(platform) for platform in platforms()),
        named=_named(read_file(path)) if path else (),
    )


def _gpu_entry(row: Gpu) -> GpuEntry:
    word = name(Variant(backend=row.backend, gpus=parse(_word(row)).gpus)).partition("-")[2]
    makers = [r.version for r in cuda_releases().values() if row.arch in r.archs]
    return GpuEntry(
        word=word,
        backend=row.backend,
        arch=row.arch,
        names=row.names,
        cuda=tuple(makers) if row.backend is Backend.CUDA else (),
    )


def _word(row: Gpu) -> str:
    return "sm" + row.arch.replace(".", "") if row.backend is Backend.CUDA else row.arch


def _named(file: SettingsFile) -> tuple[NamedEntry, ...]:
    return tuple(
        NamedEntry(
            name=key,
            variant=entry.values["variant"].value if "variant" in entry.values else "",
            description=entry.description,
            where=entry.where,
        )
        for key, entry in file.variants.items()
    )


def explain(words: str) -> Explained:
    """Return what a variant means, and the GPUs and CPUs that run its code."""
    variant = named_variant(words)
    return Explained(
        name=name(variant),
        label=label(variant),
        variant=variant,
        gpus=_served_gpus(variant),
        cpu_needs=tuple(sorted(cpu_needs(variant.cpu))) if variant.cpu else (),
        cpu_dispatch=cpu_dispatch(variant.cpu) if variant.cpu else None,
    )


def _served_gpus(variant: Variant) -> tuple[Served, ...]:
    served = []
    for row in gpus().values():
        if row.backend is not variant.backend:
            continue
        if row.backend is not Backend.CUDA:
            ways = ["native"] if row.arch in [target.arch for target in variant.gpus] else []
        else:
            ways = sorted(filter(None, (runs_on(target, row.arch) for target in variant.gpus)))
        if ways:
            served.append(Served(arch=row.arch, names=row.names, by=ways[0]))
    return tuple(served)
