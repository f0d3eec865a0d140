"""The words of variants as tables, one variant explained, and the options of a tree."""

from stoker.model.source import ListedOption, ProjectKind, SourceTree
from stoker.outside.terminal import Group, Indented, Listing, Page, Text
from stoker.plan.words import Explained, KnownWords


def known_words_page(known: KnownWords) -> Page:
    parts: list[Page] = []
    if known.named:
        table = Listing("name", "variant", "where", "", title="Named in stoker.toml")
        for entry in known.named:
            table.add(entry.name, entry.variant, entry.where, entry.description)
        parts += [table, Text()]
    table = Listing("word", "made by CUDA", "GPUs", title="GPU targets")
    for gpu in known.gpus:
        makers = f"{gpu.cuda[0]} to {gpu.cuda[-1]}" if gpu.cuda else gpu.backend.value
        table.add(gpu.word, makers, ", ".join(gpu.names))
    parts += [table, Text()]
    title = "CPU levels (and microarchitectures such as zen4, neoverse_v2)"
    table = Listing("word", "runs on", title=title)
    for word, serves in known.cpus.items():
        table.add(word, serves)
    parts += [table, Text()]
    table = Listing("word", "", title="Features (no in front switches one off: nonccl)")
    for word, text in known.features.items():
        table.add(word, text)
    parts += [table, Text()]
    parts.append(_words("BLAS", known.blas))
    parts.append(_words("Platforms", known.platforms))
    parts.append(_words("Build types", ("debug", "relwithdebinfo", "minsizerel")))
    parts.append(_words("Sanitizers", ("asan", "ubsan", "tsan")))
    parts.append(Text("\nJoin words by dashes: cu130-sm90-avx512, cpu-avx2, cu128-sm80+sm90+ptx."))
    parts.append(Text("`stoker plan --list WORDS` explains one."))
    return Group(*parts)


def _words(title: str, words: tuple[str, ...]) -> Indented:
    return Indented(" ".join(words), len(title) + 2, Text(f"{title}:", style="bold"))


def explained_page(explained: Explained) -> Page:
    parts: list[Page] = [
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


def options_page(tree: SourceTree, listed: tuple[ListedOption, ...]) -> Page:
    lines: list[Page] = []
    for item in listed:
        option = item.option
        head = Text.assemble((option.name, "bold"), f" = {option.default or '(empty)'}")
        head.append(f"  {option.kind}, {option.type}, {option.where}", style="dim")
        lines.append(head)
        if option.help:
            lines.append(Indented(option.help, 4))
        notes = []
        if option.condition:
            notes.append((f"if {option.condition}, else {option.otherwise}", "note"))
        if item.turned_on:
            notes.append((f"the front end turns it on unless it is 0: {item.turned_on}", "note"))
        if option.within:
            notes.append((f"declared where {option.within}", "note"))
        if tree.kind is ProjectKind.PYTORCH and item.variable is None:
            notes.append(("not passed on by the front end: set it with cmake -D", "warning"))
        lines += [Indented(Text(text, style=style), 4) for text, style in notes]
    noun = "option" if len(listed) == 1 else "options"
    lines.append(Text(f"{len(listed)} {noun} of {tree.name} {tree.version or ''}".strip()))
    for note in tree.notes:
        lines.append(Text(f"note: {note}", style="warning"))
    return Group(*lines)
