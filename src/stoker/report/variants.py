"""The words of variants as tables; one variant explained."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from stoker.model.catalogue import Catalogue, Explained


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


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, header_style="dim", overflow="fold")
    return table


def _named(catalogue: Catalogue) -> Table:
    table = _table("Named in stoker.toml", "name", "variant", "", "where")
    for entry in catalogue.named:
        table.add_row(*map(Text, (entry.name, entry.variant, entry.description, entry.where)))
    return table


def _gpus(catalogue: Catalogue) -> Table:
    table = _table("GPU targets", "word", "GPUs", "made by CUDA")
    for entry in catalogue.gpus:
        makers = f"{entry.cuda[0]} to {entry.cuda[-1]}" if entry.cuda else entry.backend.value
        table.add_row(*map(Text, (entry.word, ", ".join(entry.names), makers)))
    return table


def _cpus(catalogue: Catalogue) -> Table:
    table = _table(
        "CPU levels (and microarchitectures such as zen4, neoverse_v2)", "word", "runs on"
    )
    for word, serves in catalogue.cpus.items():
        table.add_row(*map(Text, (word, serves)))
    return table


def _features(catalogue: Catalogue) -> Table:
    table = _table("Features (no in front switches one off: nonccl)", "word", "")
    for word, text in catalogue.features.items():
        table.add_row(*map(Text, (word, text)))
    return table


def _words(title: str, words: tuple[str, ...]) -> Text:
    return Text.assemble((f"{title}: ", "bold"), " ".join(words))


def explained_page(explained: Explained) -> RenderableType:
    parts: list[RenderableType] = [
        Text.assemble((explained.name, "bold"), f"  wheel label +{explained.label}")
    ]
    if explained.gpus:
        table = _table("", "GPUs", "architecture", "runs by")
        for served in explained.gpus:
            table.add_row(*map(Text, (", ".join(served.names) or "-", served.arch, served.by)))
        parts.append(table)
    if explained.cpu_needs:
        parts.append(Text(f"CPU must have: {' '.join(explained.cpu_needs)}"))
    if explained.cpu_dispatch:
        parts.append(Text(f"PyTorch's run-time kernels of that level: {explained.cpu_dispatch}"))
    return Group(*parts)
