"""Judges plans by what the builds of real trees are known to do, with and without asking them.

A plan is

    right       it states the targets that the build compiles for, with the settings that it needs,
                or refuses for the reason that the project has
    incomplete  it states nothing false, but lacks a setting, leaves targets open, or ends at
                something that this machine lacks
    wrong       it states targets, device code or a working build that is not true, or a place that
                reads a setting and does not hold its name

`benchmarks/plans.py --truths FILE` runs it.
"""

import json
import platform
import re
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stoker.ask.asking import ask, asked_remarks, planned
from stoker.ask.values import Asked
from stoker.model.errors import StokerError
from stoker.model.finding import Severity
from stoker.model.plan import Plan
from stoker.model.setting import Setting
from stoker.model.variant import Backend
from stoker.outside.processes import children_cpu_s
from stoker.plan.left_out import named_archs
from stoker.plan.survey import survey
from stoker.settings.declared import CommandLine

PLACE = re.compile(r"(?P<file>[^\s:]+):(?P<line>\d+)")
OPEN = ("gpu-choice-unset", "kernel-choice-unset", "targets-in-the-tree", "setting-overwritten")
WITH_DEVICE_CODE = (Backend.CUDA, Backend.ROCM, Backend.XPU)

Row = dict[str, Any]
DETAILS = ("settings", "reasons", "findings", "notes", "some")  # of a row


def run(trees: Path, truths: Path, result: Path, only: list[str]) -> int:
    """Judge the trees that are there, keep the other rows of the result, and return how many are
    wrong when they were asked. The result is written after each variant.
    """
    table = tomllib.loads(truths.read_text())["tree"]
    stored = json.loads(result.read_text()) if result.is_file() else {"rows": []}
    for tree in table:
        if (only and tree["name"] not in only) or not (trees / tree["name"]).is_dir():
            continue
        for variant in (name for name, truth in tree.items() if isinstance(truth, dict)):
            if variant == "defines":
                continue
            for row in judged(trees, tree, variant):
                print(row["project"], variant, row["way"], row["verdict"], row["why"][:120])
                sys.stdout.flush()
                kept = [old for old in stored["rows"] if identity(old) != identity(row)]
                stored |= {"rows": [*kept, row]}
                stored |= summary(table, stored["rows"])
                result.write_text(as_text(stored))
    asked = [row for row in stored["rows"] if row["way"] == "asked"]
    return sum(row["verdict"] == "wrong" for row in asked)


def as_text(result: Row) -> str:
    """Return a result as JSON with a line for each row. Rows that are right have no details."""
    rows = []
    for row in result["rows"]:
        left_out = DETAILS if row["verdict"] == "right" else ()
        rows.append(json.dumps({name: row[name] for name in row if name not in left_out}))
    others = json.dumps({**result, "rows": []}, indent=1)
    return others.replace('"rows": []', '"rows": [\n  ' + ",\n  ".join(rows) + "\n ]") + "\n"


def identity(row: Row) -> tuple[str, ...]:
    return row["project"], row.get("platform", ""), row["variant"], row["way"]


def summary(table: list[Row], rows: list[Row]) -> Row:
    counts = {
        f"{name}, {way}": dict(
            Counter(r["verdict"] for r in rows if r["way"] == way and r["list"] == name)
        )
        for name in dict.fromkeys(row["list"] for row in rows)
        for way in ("read", "asked")
    }
    chosen = {
        name: [tree["name"] for tree in table if tree.get("list") == name]
        for name in ("second", "third", "fourth", "sixth", "seventh", "eighth")
    }
    return {"chosen before the first run": chosen, "counts": counts}


def judged(trees: Path, tree: Row, variant: str) -> Iterator[Row]:
    root = trees / tree["name"]
    folder = root / tree.get("folder", ".")
    commit = root / ".commit"
    options = {"variant": variant, "source": str(folder)}
    options |= {"platform": tree["platform"]} if "platform" in tree else {}
    said = CommandLine(options=options, defines=tree.get("defines", {}))
    about = {
        "project": tree["name"],
        "commit": commit.read_text().strip()[:12] if commit.is_file() else "",
        "variant": variant,
        "list": tree.get("list", "first"),
        **({"platform": tree["platform"]} if "platform" in tree else {}),
    }
    here = f"linux-{platform.machine()}"
    ways = ("read", "asked") if tree.get("platform", here) == here else ("read",)
    for way in ways:
        truth = tree[variant] | (tree[variant].get("asked", {}) if way == "asked" else {})
        began, cpu = time.monotonic(), children_cpu_s()
        asked: Asked | None = None
        try:
            subject = survey(said)
            if way == "asked":
                result = ask(subject)
                subject, asked = result.subject, result.asked
            plan = planned(subject)
            verdict, why = verdict_of(plan, truth, asked)
            settings = (*plan.environment, *plan.cmake)
            if problems := [text for s in settings for text in unfounded(s, folder)]:
                verdict, why = "wrong", "; ".join(problems)
        except StokerError as error:
            plan, text = None, " ".join((str(error), *error.hints))
            verdict, why = refused(text.replace(str(trees), ""), truth)
        yield about | {
            "way": way,
            "verdict": verdict,
            "why": why.replace(str(trees), "")[:400],
            "wall_s": round(time.monotonic() - began, 1),
            "cpu_s": round(children_cpu_s() - cpu, 1),
            **stated(plan, asked),
        }


def stated(plan: Plan | None, asked: Asked | None) -> Row:
    row: Row = {}
    if plan and plan.targets:
        row["targets"] = [*plan.targets.cubins, *(f"{a}+PTX" for a in plan.targets.ptx)]
        row["some"] = list(plan.targets.accepted)
        row["compiles"] = plan.targets.compiles
        own = (*plan.environment, *plan.cmake)
        row["settings"] = {s.name: s.value for s in own if "/" not in s.value}
        row["reasons"] = [f"{s.name}: {s.why}; {s.reader}" for s in own if "/" not in s.value]
        row["findings"] = [f.title for f in plan.findings if f.severity is not Severity.OK]
    if asked:
        row |= {"asks": asked.asks, "last_ask_s": asked.wall_s, "ended_for": asked.ended_for}
        row |= {"device_compiles": asked.device_compiles, "host_compiles": asked.host_compiles}
    return row


def refused(text: str, truth: Row) -> tuple[str, str]:
    pattern = truth.get("refuses") or truth.get("or_refuses")
    if pattern and re.search(pattern, text):
        return "right", f"refused: {text}"
    if "refuses" in truth:
        return "incomplete", f"refused for another reason: {text}"
    return "wrong", f"refused: {text}"


def verdict_of(plan: Plan, truth: Row, asked: Asked | None) -> tuple[str, str]:
    errors = [f for f in plan.findings if f.severity is Severity.ERROR]
    if asked:
        errors += [f for f in asked_remarks(plan, asked) if f.severity is Severity.ERROR]
    if errors:
        text = " ".join(f"{f.title}: {f.evidence}" for f in errors)
        right, why = refused(text, truth)
        # What this machine lacks is true, but says nothing about the variant.
        return ("incomplete" if right == "wrong" else right), why
    if "refuses" in truth:
        return not_refused(plan, asked, truth)
    if pattern := truth.get("no_remark"):
        told = next((f.title for f in plan.findings if re.search(pattern, f.title)), None)
        if told:
            return "wrong", f"states: {told}"
    targets = plan.targets
    assert targets is not None
    lacking = "" if says(plan, asked, truth) else lacks(plan, truth)
    if truth.get("none"):
        if targets.compiles and states_a_build(plan):
            return "wrong", f"states device code for {', '.join(targets.cubins) or 'no target'}"
        if targets.backend in WITH_DEVICE_CODE and not targets.without_device_code:
            return "incomplete", f"states nothing of device code: {targets.evidence}"
        return ("incomplete", lacking) if lacking else ("right", "")
    if targets.without_device_code:
        return "wrong", "states that no device code is compiled"
    if not targets.cubins and not targets.ptx:
        return "incomplete", f"states no targets: {targets.evidence}"
    if sorted(targets.cubins) not in [sorted(each) for each in truth["cubins"]]:
        return "wrong", f"states {', '.join(targets.cubins)}"
    # What stoker removes from the commands is what the tree names, and the plan says so.
    removed = {arch.removesuffix("+PTX") for arch in named_archs(targets.left_out) if "+" in arch}
    if "ptx" in truth and {*targets.ptx, *removed} != set(truth["ptx"]):
        return "wrong", f"states PTX of {', '.join(targets.ptx) or 'nothing'}"
    single = [truth[name] for name in ("some", "asked_some")[: 1 + bool(asked)] if name in truth]
    if single and sorted(targets.accepted) not in map(sorted, single):
        return "wrong", f"states for single kernels {', '.join(targets.accepted) or 'nothing'}"
    if lacking:
        # The targets are stated, but the settings do not lead to them.
        return ("incomplete" if open_choice(plan) else "wrong"), lacking
    return "right", ""


def not_refused(plan: Plan, asked: Asked | None, truth: Row) -> tuple[str, str]:
    """Judge a plan that should have been refused."""
    told_by = (*plan.findings, *(asked_remarks(plan, asked) if asked else ()))
    warned = [f"{f.title} {f.evidence}" for f in told_by]
    told = next((text for text in warned if re.search(truth["refuses"], text)), None)
    if told or not states_a_build(plan):
        return "incomplete", told or "states no targets, and does not refuse"
    return "wrong", "it should be refused"


def states_a_build(plan: Plan) -> bool:
    """Tell whether a plan states what its build compiles, and not that it is not known."""
    targets = plan.targets
    if targets is None or targets.backend not in WITH_DEVICE_CODE:
        return True
    return bool(targets.cubins or targets.ptx or targets.without_device_code)


def unfounded(setting: Setting, tree: Path) -> Iterator[str]:
    """Yield a problem if the place that is said to read a setting does not hold its name."""
    place = PLACE.fullmatch(setting.reader)
    if place is None:
        return
    path = tree / place["file"]
    lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
    first = int(place["line"]) - 1
    # find_package(CUDAToolkit) reads CUDAToolkit_ROOT.
    name = setting.name.removesuffix("_ROOT")
    # A macro of the tree may compose the name, so that only its last part stands there.
    last = name.rpartition("_")[2]
    # A statement may take several lines; the place is its first.
    if not any(name in line or f"({last} " in line for line in lines[first : first + 12]):
        yield f"{setting.reader} does not hold {setting.name}"


def lacks(plan: Plan, truth: Row) -> str:
    given = {s.name: s.value for s in (*plan.environment, *plan.cmake)} | plan.backend_settings
    needs = truth.get("needs", {}).items()
    missing = [f"{k}={v}" for k, v in needs if given.get(k) != v and not (v == "*" and k in given)]
    return f"lacks {', '.join(missing)}" if missing else ""


def says(plan: Plan, asked: Asked | None, truth: Row) -> bool:
    """Tell whether the plan states itself what a missing setting would change."""
    told = (*plan.findings, *(asked_remarks(plan, asked) if asked else ()))
    return "or_says" in truth and any(
        re.search(truth["or_says"], f"{finding.title} {finding.evidence}") for finding in told
    )


def open_choice(plan: Plan) -> bool:
    """Tell whether the plan itself says that a choice is open."""
    return any(finding.name in OPEN for finding in plan.findings)
