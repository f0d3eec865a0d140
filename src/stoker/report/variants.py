"""The words of variants as tables; one variant explained."""

from rich.console import Group, RenderableType
from rich.text import Text

from stoker.model.catalogue import Catalogue, Explained
from stoker.outside.terminal import Indented, Listing


def catalogue_page(catalogue: Catalogue) -> RenderableType:
    parts: list[RenderableType] = []
    if catalogue.named:
        parts += [_named(catalogue), Text()]
    parts += [_gpus(catalogue), Text(), _cpus(catalogue), Text(), _features(catalogue), Text()]
    parts.append(_words("BLAS", catalogue.blas))
    parts.append(_words("Platforms", catalogue.platforms))
    parts.append(_words("Build types", ("debug", "relwithdebinfo", "minsizerel")))
    parts.append(_words("Sanitizers", ("asan", "ubsan", "tsan")))
    parts.append(Text("\nJoin words by dashes: cu130-sm90-avx512, cpu-avx2, cu128-sm80+sm90+ptx."))
    parts.append(Text("`stoker variants WORDS` explains one."))
    return Group(*parts)


def _named(catalogue: Catalogue) -> Listing:
    table = Listing("name", "variant", "where", "", title="Named in stoker.toml")
    for entry in catalogue.named:
        table.add(entry.name, entry.variant, entry.where, entry.description)
    return table


def _gpus(catalogue: Catalogue) -> Listing:
    table = Listing("word", "made by CUDA", "GPUs", title="GPU targets")
    for entry in catalogue.gpus:
        makers = f"{entry.cuda[0]} to {entry.cuda[-1]}" if entry.cuda else entry.backend.value
        table.add(entry.word, makers, ", ".join(entry.names))
    return table


def _cpus(catalogue: Catalogue) -> Listing:
    title = "CPU levels (and microarchitectures such as zen4, neoverse_v2)"
    table = Listing("word", "runs on", title=title)
    for word, serves in catalogue.cpus.items():
        table.add(word, serves)
    return table


def _features(catalogue: Catalogue) -> Listing:
    table = Listing("word", "", title="Features (no in front switches one off: nonccl)")
    for word, text in catalogue.features.items():
        table.add(word, text)
    return table


def _words(title: str, words: tuple[str, ...]) -> Indented:
    return Indented(" ".join(words), len(title) + 2, Text(f"{title}:", style="bold"))


def explained_page(explained: Explained) -> RenderableType:
    parts: list[RenderableType] = [
        Text.assemble((explained.name, "bold"), f"  wheel label +{explained.label}")
    ]
    if explained.gpus:
        table = Listing("architecture", "runs by", "GPUs")
        for served in explained.gpus:
            table.add(served.arch, served.by, ", ".join(served.names) or "-")
        parts.append(table)
    if explained.cpu_needs:
        parts.append(Text(f"CPU must have: {' '.join(explained.cpu_needs)}"))
    if explained.cpu_dispatch:
        parts.append(Text(f"PyTorch's run-time kernels of that level: {explained.cpu_dispatch}"))
    return Group(*parts)
