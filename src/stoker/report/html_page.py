"""A report as one HTML file that opens offline: a template, our own style and scripts, the data.

The data lies in a script element of type JSON; our scripts make text nodes and drawings of it, so
that no name of a step is ever parsed as HTML. A content security policy in the page allows no other
script and no request.
"""

import base64
from collections.abc import Iterable, Sequence
from importlib import resources
from typing import Any

import msgspec
from msgspec.structs import replace

from stoker.govern.client.explanation import cause_text, mode_text, once_text, waits_text
from stoker.model.govern import Basis
from stoker.model.html import allowed, filled_page, json_in_page
from stoker.model.runs import Outcome
from stoker.report.reported import AttemptSpan, Comparison, Report, ReportedRun

_STYLE = "page.css"
_SCRIPTS = ("base.js", "timeline.js", "sections.js")
_MICROSECONDS = 6  # digits: what launchers measure


def report_page(report: Report) -> str:
    scripts = [_asset(name) for name in _SCRIPTS]
    tags = "\n".join(f"<script>{script}</script>" for script in scripts)
    data = msgspec.json.encode(page_data(report)).decode()
    sources = f"script-src {allowed(scripts)}; style-src 'unsafe-inline'; img-src data:"
    return filled_page(
        _asset("page.html"),
        policy=f"default-src 'none'; {sources}",
        style=_asset(_STYLE),
        data=json_in_page(data),
        scripts=tags,
    )


def page_data(report: Report) -> dict[str, Any]:
    """Return what the scripts of the page draw."""
    return {
        "stoker": report.stoker,
        "cost": report.cost,
        "currency": report.currency,
        "shown": _run_data(report.shown),
        "before": _earlier_data(report.before) if report.before else None,
        "comparison": _comparison(report.comparison) if report.comparison else None,
        "what_if": report.what_if,
    }


def _run_data(reported: ReportedRun) -> dict[str, Any]:
    run = msgspec.structs.asdict(reported.run)
    spans = run.pop("spans")
    return {**run, "columns": _columns(spans), "build": reported.build}


def _earlier_data(reported: ReportedRun) -> dict[str, Any]:
    """Return what a comparison shows of the earlier run."""
    spans = reported.run.spans
    columns = {
        "title": [span.step.title for span in spans],
        "cpu_seconds": [span.record.cpu_s for span in spans],
        "peak": [span.record.peak_bytes for span in spans],
    }
    run = _run_data(ReportedRun(run=replace(reported.run, spans=()), build=reported.build))
    return run | {"columns": columns}


def _comparison(found: Comparison) -> dict[str, Any]:
    texts, changes = _Table(), found.changes
    return {
        "causes": found.causes,
        "added": found.added,
        "removed": found.removed,
        "before": [change.before for change in changes],
        "after": [change.after for change in changes],
        "cpu_s": [round(change.cpu_s, _MICROSECONDS) for change in changes],
        "peak": [change.peak for change in changes],
        "why": [texts.place(change.why) for change in changes],
        "texts": texts.values,
    }


class _Table:
    """Values that occur often, each written once."""

    def __init__(self, first: Iterable[object] = ()) -> None:
        self._places: dict[object, int] = {value: place for place, value in enumerate(first)}

    def place(self, value: object) -> int:
        return self._places.setdefault(value, len(self._places))

    @property
    def values(self) -> list[object]:
        return list(self._places)


def _columns(spans: Sequence[AttemptSpan]) -> dict[str, Any]:
    """Return one list for each figure: less than half the size of one object for each step."""
    roles, targets, compilers, flags, archs = (_Table() for _ in range(5))
    bases, outcomes = _Table(Basis), _Table(Outcome)
    known = [span.explanation for span in spans]
    return {
        "title": [span.step.title for span in spans],
        "output": [span.step.output for span in spans],
        "role": [roles.place(span.step.role) for span in spans],
        "target": [targets.place(span.target) for span in spans],
        "compiler": [compilers.place(span.step.compiler) for span in spans],
        "flags": [flags.place(span.step.flags) for span in spans],
        "archs": [archs.place(span.step.archs) for span in spans],
        "lane": [span.lane for span in spans],
        "started": [round(span.started, _MICROSECONDS) for span in spans],
        "seconds": [span.record.wall_s for span in spans],
        "cpu_seconds": [span.record.cpu_s for span in spans],
        "peak": [span.record.peak_bytes for span in spans],
        "byte_seconds": [span.record.byte_seconds for span in spans],
        "profile": [base64.b64encode(bytes(span.record.profile)).decode() for span in spans],
        "outcome": [outcomes.place(span.outcome) for span in spans],
        "status": [span.status for span in spans],
        "asked": [round(each.asked, _MICROSECONDS) if each else None for each in known],
        "waits": [waits_text(each.waits, each.needs_bytes) if each else "" for each in known],
        "pauses": {
            str(n): [
                {"at": pause.at, "seconds": pause.wall_s, "why": cause_text(pause)}
                for pause in each.pauses
            ]
            for n, each in enumerate(known)
            if each and each.pauses
        },
        "killed": {
            str(n): cause_text(each.killed) for n, each in enumerate(known) if each and each.killed
        },
        "once": {
            str(n): once_text(each.once) for n, each in enumerate(known) if each and each.once
        },
        "mode": {
            str(n): mode_text(span.record.mode, each.mode_reason, span.step.threads)
            for n, (span, each) in enumerate(zip(spans, known, strict=True))
            if each and each.mode_reason
        },
        "predicted": [each.needs_bytes if each else None for each in known],
        "basis": [bases.place(each.basis) if each else None for each in known],
        "tables": {
            "role": roles.values,
            "target": targets.values,
            "compiler": compilers.values,
            "flags": flags.values,
            "archs": archs.values,
            "basis": bases.values,
            "outcome": outcomes.values,
        },
    }


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath("assets", name).read_text(encoding="utf-8")
