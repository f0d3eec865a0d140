"""Renders a plan as a page, a shell script or a .env file, and the findings of doctor."""

import re
import shlex
from collections import Counter
from collections.abc import Callable

from stoker.model.caching import Chain
from stoker.model.finding import Finding, Severity
from stoker.model.plan import Estimate, Plan, Quantity, Resources
from stoker.model.setting import Setting
from stoker.model.value import counted, duration, size
from stoker.model.variant import Backend, PlannedTargets
from stoker.outside.terminal import Group, Indented, Listing, Page, Text, finding_lines, whole
from stoker.plan.left_out import named_archs
from stoker.plan.records import Difference


def shell_lines(plan: Plan) -> str:
    """Return a script for any POSIX shell: it sets the environment, and builds if told to."""
    exports = [f"export {s.name}={shlex.quote(s.value)}" for s in plan.environment]
    enter = [f"cd {shlex.quote(plan.source.path)}"] if plan.source else []
    build = [*enter, *(shlex.join(command.words) for command in plan.commands)]
    more = named_archs(plan.targets.left_out) if plan.targets else ()
    lines = [
        f"# stoker plan {plan.name}",
        "#   . FILE          sets the environment",
        "#   sh FILE build   also builds" + ("" if plan.source else ", in the source tree"),
        *([f"# Without stoker, the build also compiles for {', '.join(more)}."] if more else []),
        *exports,
        'if [ "${1-}" = build ]; then',
        *(f"  {line}" for line in ["set -e", *build]),
        "fi",
    ]
    return "\n".join(lines) + "\n"


def dotenv_lines(plan: Plan) -> str:
    """Return a .env file. It has double quotes, because its readers do not know single quotes."""
    values = ((s.name, re.sub(r'([\\"$`])', r"\\\1", s.value)) for s in plan.environment)
    return "".join(f'{name}="{value}"\n' for name, value in values)


def plan_page(plan: Plan, chain: Chain | None = None) -> Page:
    source, machine = plan.source, plan.machine
    what = f"{source.name} {source.version or ''}".strip() if source else "PyTorch (no tree given)"
    front_end = f" by {source.front_end}" if source else ""
    head = Text(f"{plan.name}", style="bold")
    head.append(f"  {what}{front_end} for {plan.platform}\n", style="not bold")
    head.append(
        f"{_where(machine)}: {machine.cpus} CPUs, {size(machine.memory_bytes)} of memory, "
        f"limited by {machine.memory_limit}\n",
        style="not bold dim",
    )
    parts: list[Page] = [head, _settings("Environment", plan.environment)]
    forwarded = {setting.name for setting in plan.environment}
    only_cmake = tuple(s for s in plan.cmake if s.name not in forwarded)
    if only_cmake:
        parts.append(_settings("CMake", only_cmake))
    if plan.cmake and len(only_cmake) < len(plan.cmake):
        names = ", ".join(s.name for s in plan.cmake if s.name in forwarded)
        parts.append(Indented(Text(f"passed on to CMake: {names}", style="dim"), 2))
    if plan.targets and plan.targets.backend is not Backend.CPU:
        parts += [Text(), _compiled_targets(plan.targets)]
    parts += [Text(), Text("Commands", style="bold")]
    parts += [whole(f"  {shlex.join(command.words)}") for command in plan.commands]
    if chain and chain.parts:
        # What starts each compiler, and what links; the plan itself does not contain it.
        listing = Listing("", "", "", title="Compiling and linking", indent=2)
        for part in chain.parts:
            listing.add(part.role, part.what, Text(part.why, style="dim"))
        for setting in chain.settings:
            listing.add(setting.name, setting.value, Text(setting.why, style="dim"))
        parts += [Text(), listing]
    parts += [Text(), _estimated(plan.estimate)]
    worth_saying = tuple(f for f in plan.findings if f.severity is not Severity.OK)
    if worth_saying:
        parts += [Text(), findings_page(worth_saying)]
    return Group(*parts)


def _where(machine: Resources) -> str:
    given = " and ".join(machine.given)
    return f"a machine as given by {given}" if given else "this machine"


def _settings(title: str, settings: tuple[Setting, ...]) -> Listing:
    listing = Listing("", "", "", title=title, indent=2)
    for setting in settings:
        why = f": {setting.why}" if setting.why else ""
        reader = f"; read by {setting.reader}" if setting.reader else ""
        note = Text(f"{setting.origin}{why}{reader}", style="dim")
        listing.add(setting.name, setting.value, note)
    return listing


def _compiled_targets(targets: PlannedTargets) -> Listing:
    """List what the build compiles for: this is checked while it runs."""
    listing = Listing("", "", "", title="Targets", indent=2)
    known = str(targets.evidence) if targets.evidence else ""
    if targets.without_device_code:
        listing.add("none", "", Text(f"this build compiles no device code; {known}", style="dim"))
        return listing
    by = Text("named by the tree itself; " * targets.fixed + known, style="dim")
    if targets.language:
        language, _, place = targets.language.partition(": ")
        listing.add(language, ", ".join(targets.cubins), Text(f"{place}; {known}", style="dim"))
        return listing
    listing.add("machine code", ", ".join(targets.cubins) or "not known", by)
    if targets.ptx:
        listing.add("PTX", ", ".join(targets.ptx))
    if targets.accepted:
        listing.add("single kernels", ", ".join(targets.accepted), Text("besides", style="dim"))
    if targets.left_out:
        why = "named by the tree itself, and removed from commands of nvcc; --keep-targets: not"
        listing.add("left out", ", ".join(named_archs(targets.left_out)), Text(why, style="dim"))
    return listing


def _estimated(estimate: Estimate) -> Listing:
    listing = Listing("", "", "", title="Estimate", indent=2)
    rows = (
        ("time", estimate.wall_s, duration),
        ("largest step", estimate.largest_step_bytes, size),
        ("disk", estimate.disk_bytes, size),
        ("wheel", estimate.wheel_bytes, size),
    )
    if all(quantity.amount is None for _, quantity, _ in rows):
        listing.add("unknown", "", Text(estimate.wall_s.basis, style="dim"))
        return listing
    said = ""
    for name, quantity, words in rows:
        # The basis of one amount is often a part of that of another, and several lines long.
        repeated = quantity.amount is not None and quantity.basis in said
        basis = "on the same basis" if repeated else quantity.basis
        listing.add(name, amount(quantity, words), Text(basis, style="dim"))
        said += quantity.basis
    return listing


def amount(quantity: Quantity, words: Callable[[float], str]) -> str:
    """Return a quantity in words, such as ``3 min to 5 min``."""
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
    head = Text(f"{plan.name} for {plan.platform}\n", style="bold")
    return Group(head, findings_page(findings), Text(), Text(verdict(findings), style="bold"))


def findings_page(findings: tuple[Finding, ...]) -> Page:
    return Group(*(line for finding in findings for line in finding_lines(finding)))


def verdict(findings: tuple[Finding, ...]) -> str:
    counts = Counter(finding.severity for finding in findings)
    words = [
        counted(counts[severity], severity.value)
        for severity in (Severity.ERROR, Severity.WARNING)
        if counts[severity]
    ]
    can = "cannot" if counts[Severity.ERROR] else "can"
    return f"This plan {can} run{': ' if words else ''}{', '.join(words)}."
