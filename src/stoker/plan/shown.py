"""How plans, variants and options are shown."""

import shlex
from collections.abc import Callable

from stoker.model.caching import Chain
from stoker.model.finding import Finding, Severity
from stoker.model.plan import Backend, Plan, PlannedTargets, Quantity, Setting
from stoker.model.source import ListedOption, ProjectKind, SourceTree
from stoker.model.value import duration, size
from stoker.outside.terminal import Group, Indented, Listing, Page, Text, finding_lines, whole
from stoker.plan.records import Difference
from stoker.plan.survey import Explained, KnownWords

# -- plan ------------------------------------------------------------------------------------------
# Renders a plan as a page, a shell script or a .env file, and the findings of doctor.


def shell_lines(plan: Plan) -> str:
    """Return a script for any POSIX shell: it sets the environment, and builds if told to."""
    exports = [f"export {s.name}={shlex.quote(s.value)}" for s in plan.environment]
    enter = [f"cd {shlex.quote(plan.source.path)}"] if plan.source else []
    build = [*enter, *(shlex.join(command.words) for command in plan.commands)]
    lines = [
        f"# stoker plan {plan.name}",
        "#   . FILE          sets the environment",
        "#   sh FILE build   also builds" + ("" if plan.source else ", in the source tree"),
        *exports,
        'if [ "${1-}" = build ]; then',
        *(f"  {line}" for line in ["set -e", *build]),
        "fi",
    ]
    return "\n".join(lines) + "\n"


def dotenv_lines(plan: Plan) -> str:
    """Return a .env file. It has double quotes, because its readers do not know single quotes."""
    return "".join(f'{s.name}="{_escaped(s.value)}"\n' for s in plan.environment)


def _escaped(value: str) -> str:
    for special in ("\\", '"', "$", "`"):
        value = value.replace(special, f"\\{special}")
    return value


def plan_page(plan: Plan, chain: Chain | None = None) -> Page:
    parts: list[Page] = [_head(plan)]
    parts.append(_settings("Environment", plan.environment))
    forwarded = {setting.name for setting in plan.environment}
    only_cmake = tuple(s for s in plan.cmake if s.name not in forwarded)
    if only_cmake:
        parts.append(_settings("CMake", only_cmake))
    if plan.cmake and len(only_cmake) < len(plan.cmake):
        names = ", ".join(s.name for s in plan.cmake if s.name in forwarded)
        parts.append(Indented(Text(f"passed on to CMake: {names}", style="dim"), 2))
    if plan.targets and plan.targets.backend is not Backend.CPU:
        parts += [Text(), _targets(plan.targets)]
    parts += [Text(), Text("Commands", style="bold")]
    parts += [whole(f"  {shlex.join(command.words)}") for command in plan.commands]
    if chain and chain.parts:
        parts += [Text(), _chain(chain)]
    parts += [Text(), _estimate(plan)]
    worth_saying = [f for f in plan.findings if f.severity is not Severity.OK]
    if worth_saying:
        parts.append(Text())
        parts += [line for finding in worth_saying for line in finding_lines(finding)]
    return Group(*parts)


def _head(plan: Plan) -> Text:
    source = plan.source
    what = f"{source.name} {source.version or ''}".strip() if source else "PyTorch (no tree given)"
    front_end = f" by {source.front_end}" if source else ""
    head = Text(f"{plan.name}", style="bold")
    head.append(f"  {what}{front_end} for {plan.platform}\n", style="not bold")
    machine = plan.machine
    head.append(
        f"this machine: {machine.cpus} CPUs, {size(machine.memory_bytes)} of memory, "
        f"limited by {machine.memory_limit}\n",
        style="not bold dim",
    )
    return head


def _settings(title: str, settings: tuple[Setting, ...]) -> Listing:
    listing = Listing("", "", "", title=title, indent=2)
    for setting in settings:
        why = f": {setting.why}" if setting.why else ""
        reader = f"; read by {setting.reader}" if setting.reader else ""
        note = Text(f"{setting.origin}{why}{reader}", style="dim")
        listing.add(setting.name, setting.value, note)
    return listing


def _targets(targets: PlannedTargets) -> Listing:
    """List what the build compiles for: this is checked while it runs."""
    listing = Listing("", "", "", title="Targets", indent=2)
    if not targets.compiles:
        listing.add("none", "", Text("this build compiles no device code", style="dim"))
        return listing
    by = Text("named by the tree itself" if targets.fixed else "", style="dim")
    listing.add("machine code", ", ".join(targets.cubins) or "not chosen", by)
    if targets.ptx:
        listing.add("PTX", ", ".join(targets.ptx))
    if targets.accepted:
        listing.add("single kernels", ", ".join(targets.accepted), Text("besides", style="dim"))
    return listing


def _chain(chain: Chain) -> Listing:
    """List what starts each compiler, and what links; the plan itself does not contain it."""
    listing = Listing("", "", "", title="Compiling and linking", indent=2)
    for part in chain.parts:
        listing.add(part.role, part.what, Text(part.why, style="dim"))
    for setting in chain.settings:
        listing.add(setting.name, setting.value, Text(setting.why, style="dim"))
    return listing


def _estimate(plan: Plan) -> Listing:
    listing = Listing("", "", "", title="Estimate", indent=2)
    estimate = plan.estimate
    rows = (
        ("time", estimate.wall_s, duration),
        ("largest step", estimate.largest_step_bytes, size),
        ("disk", estimate.disk_bytes, size),
        ("wheel", estimate.wheel_bytes, size),
    )
    if all(quantity.amount is None for _, quantity, _ in rows):
        listing.add("unknown", "", Text(estimate.wall_s.basis, style="dim"))
        return listing
    for name, quantity, words in rows:
        listing.add(name, _amount(quantity, words), Text(quantity.basis, style="dim"))
    return listing


def _amount(quantity: Quantity, words: Callable[[float], str]) -> str:
    if quantity.amount is None:
        return "unknown"
    least = words(quantity.amount)
    if quantity.at_least:
        return f"at least {least}"
    most = words(quantity.most) if quantity.most else least
    return f"about {least}" if most == least else f"{least} to {most}"


def differences_page(differences: tuple[Difference, ...], before: str, after: str) -> Page:
    if not differences:
        return Text("no difference")
    table = Listing("", "", before, after)
    said = set()
    for item in differences:
        change = item.name, item.before, item.after
        if change in said:
            continue  # an option and its environment variable change together
        said.add(change)
        sign = "+" if item.before is None else "-" if item.after is None else "~"
        table.add(sign, item.name, item.before or "", item.after or "")
    return table


def doctor_page(plan: Plan, findings: tuple[Finding, ...]) -> Page:
    lines: list[Page] = [Text(f"{plan.name} for {plan.platform}\n", style="bold")]
    lines += [line for finding in findings for line in finding_lines(finding)]
    return Group(*lines, Text(), Text(verdict(findings), style="bold"))


def findings_page(findings: tuple[Finding, ...]) -> Page:
    return Group(*(line for finding in findings for line in finding_lines(finding)))


def verdict(findings: tuple[Finding, ...]) -> str:
    errors = sum(finding.severity is Severity.ERROR for finding in findings)
    warnings = sum(finding.severity is Severity.WARNING for finding in findings)
    words = [_count(errors, "error"), _count(warnings, "warning")]
    rest = ", ".join(word for word in words if word)
    if errors:
        return f"This plan cannot run: {rest}."
    return f"This plan can run{': ' + rest if rest else ''}."


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' if number > 1 else ''}" if number else ""


# -- variants --------------------------------------------------------------------------------------
# The words of variants as tables; one variant explained.


def known_words_page(known: KnownWords) -> Page:
    parts: list[Page] = []
    if known.named:
        parts += [_named(known), Text()]
    parts += [_gpus(known), Text(), _cpus(known), Text(), _features(known), Text()]
    parts.append(_words("BLAS", known.blas))
    parts.append(_words("Platforms", known.platforms))
    parts.append(_words("Build types", ("debug", "relwithdebinfo", "minsizerel")))
    parts.append(_words("Sanitizers", ("asan", "ubsan", "tsan")))
    parts.append(Text("\nJoin words by dashes: cu130-sm90-avx512, cpu-avx2, cu128-sm80+sm90+ptx."))
    parts.append(Text("`stoker plan --list WORDS` explains one."))
    return Group(*parts)


def _named(known: KnownWords) -> Listing:
    table = Listing("name", "variant", "where", "", title="Named in stoker.toml")
    for entry in known.named:
        table.add(entry.name, entry.variant, entry.where, entry.description)
    return table


def _gpus(known: KnownWords) -> Listing:
    table = Listing("word", "made by CUDA", "GPUs", title="GPU targets")
    for entry in known.gpus:
        makers = f"{entry.cuda[0]} to {entry.cuda[-1]}" if entry.cuda else entry.backend.value
        table.add(entry.word, makers, ", ".join(entry.names))
    return table


def _cpus(known: KnownWords) -> Listing:
    title = "CPU levels (and microarchitectures such as zen4, neoverse_v2)"
    table = Listing("word", "runs on", title=title)
    for word, serves in known.cpus.items():
        table.add(word, serves)
    return table


def _features(known: KnownWords) -> Listing:
    table = Listing("word", "", title="Features (no in front switches one off: nonccl)")
    for word, text in known.features.items():
        table.add(word, text)
    return table


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


# -- options ---------------------------------------------------------------------------------------
# Renders the options of a tree: default, condition, help, and where each is declared.


def options_page(tree: SourceTree, listed: tuple[ListedOption, ...]) -> Page:
    lines: list[Page] = []
    for item in listed:
        lines += _lines(item, pytorch=tree.kind is ProjectKind.PYTORCH)
    noun = "option" if len(listed) == 1 else "options"
    lines.append(Text(f"{len(listed)} {noun} of {tree.name} {tree.version or ''}".strip()))
    for note in tree.notes:
        lines.append(Text(f"note: {note}", style="warning"))
    return Group(*lines)


def _lines(item: ListedOption, *, pytorch: bool) -> list[Page]:
    option = item.option
    head = Text.assemble((option.name, "bold"), f" = {option.default or '(empty)'}")
    head.append(f"  {option.kind}, {option.type}, {option.file}:{option.line}", style="dim")
    lines: list[Page] = [head]
    if option.help:
        lines.append(Indented(option.help, 4))
    if option.condition:
        lines.append(_note(f"if {option.condition}, else {option.otherwise}", "note"))
    if option.within:
        lines.append(_note(f"declared where {option.within}", "note"))
    if pytorch and item.variable is None:
        lines.append(_note("not passed on by the front end: set it with cmake -D", "warning"))
    return lines


def _note(text: str, style: str) -> Indented:
    return Indented(Text(text, style=style), 4)
