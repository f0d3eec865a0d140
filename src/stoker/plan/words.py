"""The words of variants, the hardware that a variant runs on, and the options of a tree."""

from pathlib import Path

from stoker.knowledge.cpus import cpu_dispatch, cpu_levels, cpu_needs
from stoker.knowledge.features import blas_libraries, features
from stoker.knowledge.gpus import GpuModel, cuda_releases, gpus, runs_on
from stoker.knowledge.platforms import platforms
from stoker.knowledge.torch_releases import forwarding
from stoker.model.errors import UsageError, nearest
from stoker.model.source import CMakeOption, ListedOption, OptionKind, ProjectKind, SourceTree
from stoker.model.value import Value
from stoker.model.variant import Backend, GpuTarget, Variant
from stoker.plan.grammar import label
from stoker.plan.survey import named_variant
from stoker.settings.toml import find_file, read_file
from stoker.source.tree import read_tree


class GpuEntry(Value, frozen=True, kw_only=True):
    word: str
    backend: Backend
    arch: str
    names: tuple[str, ...]
    cuda: tuple[str, ...]  # CUDA releases that make code for it


class NamedEntry(Value, frozen=True, kw_only=True):
    """A variant that stoker.toml gives a name."""

    name: str
    variant: str
    description: str
    where: str


class KnownWords(Value, frozen=True, kw_only=True):
    gpus: tuple[GpuEntry, ...]
    cpus: dict[str, str]
    blas: tuple[str, ...]
    features: dict[str, str]
    platforms: tuple[str, ...]
    named: tuple[NamedEntry, ...]


class Served(Value, frozen=True, kw_only=True):
    """GPUs that run a variant: by ``cubin``, by ``ptx`` (compiled at load) or ``native``."""

    arch: str
    names: tuple[str, ...]
    by: str


class Explained(Value, frozen=True, kw_only=True):
    name: str
    label: str
    variant: Variant
    gpus: tuple[Served, ...]
    cpu_needs: tuple[str, ...]
    cpu_dispatch: str | None


def options(source: Path, pattern: str) -> tuple[SourceTree, tuple[ListedOption, ...]]:
    """Return the options whose name or help contains the pattern, in the order of the tree, and
    the environment variables that the build reads.
    """
    tree = read_tree(source)
    variable = forwarding().variable if tree.kind is ProjectKind.PYTORCH else lambda _: None
    turned_on = tree.release.turned_on if tree.release else {}
    known = [
        ListedOption(
            option=each, variable=variable(each.name), turned_on=turned_on.get(each.name, "")
        )
        for each in _once_each(tree)
    ]
    for ask in tree.asks:
        if ask.environment:
            file, _, line = ask.where.rpartition(":")
            each = CMakeOption(
                name=ask.name,
                kind=OptionKind.VARIABLE,
                type="STRING",
                default=ask.default or "",
                help="",
                file=file or ask.where,
                line=int(line) if line.isdecimal() else 0,
            )
            known.append(ListedOption(option=each, variable=ask.name))
    wanted = pattern.casefold()
    found = tuple(
        each
        for each in known
        if wanted in each.option.name.casefold() or wanted in each.option.help.casefold()
    )
    if not found and known:
        near = ", ".join(nearest(pattern, {each.option.name for each in known}))
        hint = f"nearest: {near}" if near else "without a pattern, all options are listed"
        raise UsageError(f"no option of {tree.name} contains '{pattern}'", hints=[hint])
    return tree, found


def _once_each(tree: SourceTree) -> list[CMakeOption]:
    """Return the options without declarations for other systems where one for all is declared."""
    plain = {option.name for option in tree.options if option.within is None}
    return [each for each in tree.options if each.within is None or each.name not in plain]


def known_words() -> KnownWords:
    """Return every word of variants, and the named variants of stoker.toml."""
    path = find_file(Path.cwd())
    variants = read_file(path).variants if path else {}
    return KnownWords(
        gpus=tuple(_gpu_entry(row) for row in gpus().values()),
        cpus={level.name: level.serves for level in cpu_levels().values()},
        blas=tuple(blas_libraries()),
        features={row.name: row.help for row in features().values()},
        platforms=tuple(str(platform) for platform in platforms()),
        named=tuple(
            NamedEntry(
                name=key,
                variant=entry.values["variant"].value if "variant" in entry.values else "",
                description=entry.description,
                where=entry.where,
            )
            for key, entry in variants.items()
        ),
    )


def _gpu_entry(row: GpuModel) -> GpuEntry:
    makers = [r.version for r in cuda_releases().values() if row.arch in r.archs]
    return GpuEntry(
        word=GpuTarget(arch=row.arch).word,
        backend=row.backend,
        arch=row.arch,
        names=row.names,
        cuda=tuple(makers) if row.backend is Backend.CUDA else (),
    )


def explain(words: str) -> Explained:
    """Return what a variant means, and the GPUs and CPUs that run its code."""
    variant = named_variant(words)
    served = []
    for row in gpus().values():
        if row.backend is not variant.backend:
            continue
        if row.backend is Backend.CUDA:
            ways = sorted(filter(None, (runs_on(target, row.arch) for target in variant.gpus)))
        else:
            ways = ["native"] if row.arch in [target.arch for target in variant.gpus] else []
        if ways:
            served.append(Served(arch=row.arch, names=row.names, by=ways[0]))
    return Explained(
        name=variant.name,
        label=label(variant),
        variant=variant,
        gpus=tuple(served),
        cpu_needs=tuple(sorted(cpu_needs(variant.cpu))) if variant.cpu else (),
        cpu_dispatch=cpu_dispatch(variant.cpu) if variant.cpu else None,
    )
