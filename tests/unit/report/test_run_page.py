"""The page of a run: its data is that of the history, and no name of a step becomes markup."""

import base64
import hashlib
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from generated_runs import generated_attempts, write_run
from stoker.govern.history.store import History
from stoker.model.govern import Role, Step, StepRecord
from stoker.model.runs import Attempt, Outcome
from stoker.model.visible import visible
from stoker.report.html_page import report_page
from stoker.report.reporting import make_report

HOSTILE = (
    "</script><script>document.title = 'taken'</script>",
    "<!-- <script>",
    "<img src=x onerror=\"document.title='taken'\">",
    "\"quoted\" 'twice' \\ back",
    "two\nlines\tand\u2028more",
    "Prüfung/日本語/файл.cpp",
    "{{data}} ]]> &lt; &amp;",
)


class _Scripts(HTMLParser):
    """Collects the content of script elements, as a browser delimits it."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts: list[tuple[dict[str, str | None], str]] = []
        self._inside = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._inside = tag == "script"
        if self._inside:
            self.scripts.append((dict(attrs), ""))

    def handle_data(self, data: str) -> None:
        if self._inside:
            attributes, text = self.scripts[-1]
            self.scripts[-1] = attributes, text + data

    def handle_endtag(self, tag: str) -> None:
        self._inside = self._inside and tag != "script"


def scripts_of(page: str) -> list[tuple[dict[str, str | None], str]]:
    parser = _Scripts()
    parser.feed(page)
    return parser.scripts


def data_of(page: str) -> Any:
    return next(json.loads(text) for attributes, text in scripts_of(page) if "id" in attributes)


def page_of(run: int, **options: Any) -> str:
    return report_page(make_report(str(run), what_if=False, say=lambda _: None, **options))


def hostile_attempts() -> list[Attempt]:
    return [
        Attempt(
            record=StepRecord(
                step=Step(
                    key=str(n),
                    role=Role.CXX,
                    source=name,
                    output=name,
                    flags=(name,),
                    compiler=name,
                ),
                wall_s=2.0,
                cpu_s=2.0,
                peak_bytes=10**8,
                byte_seconds=1.5e8,
            ),
            started=float(n),
            outcome=Outcome.DONE,
        )
        for n, name in enumerate(HOSTILE)
    ]


def test_figures_of_the_page_are_those_of_the_history(stoker_home: Path) -> None:
    run = write_run(stoker_home, "one", generated_attempts(60))
    data = data_of(page_of(run))["shown"]
    with History() as history:
        attempts = history.attempts(run)
        (row,) = history.runs()
    assert row.summary
    columns = data["columns"]
    assert columns["seconds"] == [attempt.record.wall_s for attempt in attempts]
    assert columns["cpu_seconds"] == [attempt.record.cpu_s for attempt in attempts]
    assert columns["peak"] == [attempt.record.peak_bytes for attempt in attempts]
    assert columns["byte_seconds"] == [attempt.record.byte_seconds for attempt in attempts]
    assert columns["started"] == pytest.approx([attempt.started for attempt in attempts], abs=1e-6)
    assert columns["title"] == [attempt.record.step.source for attempt in attempts]
    profiles = [tuple(base64.b64decode(text)) for text in columns["profile"]]
    assert profiles == [attempt.record.profile for attempt in attempts]
    outcomes = [columns["tables"]["outcome"][place] for place in columns["outcome"]]
    assert outcomes == [attempt.outcome for attempt in attempts]
    flags = [columns["tables"]["flags"][place] for place in columns["flags"]]
    assert flags == [list(attempt.record.step.flags) for attempt in attempts]
    summary = row.summary
    assert (data["wall_s"], data["cpu_s"]) == (summary.wall_s, summary.cpu_s)
    assert (data["peak"], data["limit"]) == (summary.peak_bytes, summary.limit_bytes)
    assert (data["steps"], data["lost"]) == (summary.steps, summary.retries)
    assert sum(total["steps"] for total in data["targets"]) == summary.steps


def test_waits_kills_and_predictions_are_those_of_the_history(stoker_home: Path) -> None:
    attempts = generated_attempts(150)
    columns = data_of(page_of(write_run(stoker_home, "one", attempts)))["shown"]["columns"]
    known = [attempt.explanation for attempt in attempts if attempt.explanation]
    assert columns["asked"] == pytest.approx([each.asked for each in known], abs=1e-6)
    assert columns["predicted"] == [each.needs_bytes for each in known]
    assert any(w.startswith("10 s: 6 s for a free CPU, 4 s for memory") for w in columns["waits"])
    killed = [n for n, a in enumerate(attempts) if a.outcome is Outcome.PREEMPTED]
    assert list(columns["killed"]) == [str(n) for n in killed]
    paused = [n for n, each in enumerate(known) if each.pauses]
    assert list(columns["pauses"]) == [str(n) for n in paused]
    assert all(pauses[0]["seconds"] == 0.5 for pauses in columns["pauses"].values())
    assert all("would have passed the limit" in text for text in columns["killed"].values())
    once = [str(n) for n, each in enumerate(known) if each.once]
    assert list(columns["once"]) == once != []
    assert all(
        text.endswith("repeated: it reads a pipe or a device") for text in columns["once"].values()
    )


def test_names_survive_and_stay_text(stoker_home: Path) -> None:
    page = page_of(write_run(stoker_home, "hostile", hostile_attempts()))
    assert data_of(page)["shown"]["columns"]["title"] == list(map(visible, HOSTILE))
    kinds = [attributes.get("type") for attributes, _ in scripts_of(page)]
    assert kinds == ["application/json", None, None, None]
    assert "\u2028" not in page


def test_only_our_scripts_may_run_and_nothing_is_fetched(stoker_home: Path) -> None:
    page = page_of(write_run(stoker_home, "one", generated_attempts(5)))
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    assert policy[1].startswith("default-src 'none'; script-src 'sha256-")
    for attributes, text in scripts_of(page):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert ("id" in attributes) != (f"'sha256-{digest}'" in policy[1])
    assert "src=" not in page.partition("<script id=")[0]


def test_a_run_that_was_killed_has_a_page(stoker_home: Path) -> None:
    run = write_run(stoker_home, "killed", generated_attempts(20), complete=False)
    data = data_of(page_of(run))["shown"]
    assert not data["complete"]
    assert data["limit"] is None
    assert data["steps"] == 20


def test_a_comparison_names_what_changed(stoker_home: Path) -> None:
    before = write_run(stoker_home, "one", generated_attempts(30))
    after = write_run(stoker_home, "two", generated_attempts(32, slower=1.5))
    found = data_of(page_of(after, against=str(before)))["comparison"]
    assert len(found["after"]) == 30
    assert len(found["added"]) == 2
    assert found["removed"] == []
    assert all(seconds > 0 for seconds in found["cpu_s"])
