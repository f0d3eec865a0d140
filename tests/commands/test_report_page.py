"""The page of `stoker report` in a real browser: it draws, zooms, sorts, searches and compares,
without a request or a message on the console.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from selenium.webdriver.common.keys import Keys

from browser import Browser
from conftest import Stoker
from generated_runs import generated_attempts, write_run
from stoker.govern.history.store import History
from stoker.model.build import BuildStage, StageEnd, StageResult
from stoker.model.govern import Role, Step, StepRecord
from stoker.model.runs import Attempt, Outcome, Run
from stoker.model.setting import Origin, OriginKind, Setting, SettingPlace
from stoker.model.visible import visible
from stoker.report.analysis import RecordedRun, analyse
from stoker.report.dependencies import Dependencies
from stoker.report.html_page import report_page
from stoker.report.reported import BuildFacts, LibrarySize, Output, Report, ReportedRun

HOSTILE = "</script><img src=x onerror='document.title=1'><b id=injected>\n\"ä 日本\u2028"

Opened = Callable[..., Browser]


@pytest.fixture
def opened(browser: Browser, stoker: Stoker, tmp_path: Path) -> Opened:
    """Write the page of a run and open it; the console must stay empty."""

    def open_page(run: int, *options: str) -> Browser:
        page = tmp_path / "report.html"
        done = stoker("report", str(run), "--no-what-if", "-o", str(page), *options)
        assert done.returncode == 0, done.stderr
        browser.open(page)
        assert browser.requests() == [page.as_uri()]
        assert browser.console() == []
        return browser

    return open_page


def shown(browser: Browser) -> tuple[float, float]:
    """Return the part of the time axis that the timeline shows."""
    browser.settle()
    canvas = browser.find("#timeline")
    return float(canvas.get_attribute("data-from") or -1), float(
        canvas.get_attribute("data-to") or -1
    )


def first_name(browser: Browser) -> str | None:
    """Return the step in the first row of the table."""
    return browser.find("#rows tr:first-child td.name").get_attribute("textContent")


def test_the_timeline_zooms(opened: Opened, stoker_home: Path) -> None:
    page = opened(write_run(stoker_home, "one", generated_attempts(300)))
    start, end = shown(page)
    assert start == 0
    page.script("document.getElementById('zoom-in').click()")
    assert shown(page) == pytest.approx((end / 4, end * 3 / 4), abs=0.01)
    page.script("document.getElementById('zoom-all').click()")
    assert shown(page) == (start, end)
    canvas = page.find("#timeline")
    page.script("document.getElementById('timeline').scrollIntoView()")
    page.point(canvas, 400, 150).click_and_hold().move_by_offset(200, 0).release().perform()
    first, last = shown(page)
    assert 0 < first < last < end
    assert (last - first) / end == pytest.approx(200 / (canvas.size["width"] - 74), rel=0.05)
    canvas.send_keys("0")
    assert shown(page) == (start, end)
    canvas.send_keys("+")
    canvas.send_keys(Keys.ARROW_RIGHT)
    assert shown(page)[0] > end / 4
    assert page.console() == []


def test_steps_are_named_under_the_pointer_and_with_keys(opened: Opened, stoker_home: Path) -> None:
    attempts = generated_attempts(60)
    page = opened(write_run(stoker_home, "one", attempts))
    names = {attempt.record.step.source for attempt in attempts}
    canvas = page.find("#timeline")
    page.script("document.getElementById('timeline').scrollIntoView()")
    page.point(canvas, 500, 40).perform()
    page.settle()
    assert page.find("#tip b").text in names
    assert page.find("#tip").is_displayed()
    canvas.send_keys(Keys.ARROW_DOWN)
    page.settle()
    assert page.find("#detail h3").text == attempts[0].record.step.source
    assert attempts[0].record.step.source in (page.find("#live").get_attribute("textContent") or "")
    canvas.send_keys(Keys.ESCAPE)
    page.settle()
    assert page.texts("#detail h3") == []


def test_the_table_sorts_and_searches(opened: Opened, stoker_home: Path) -> None:
    attempts = generated_attempts(120)
    run = write_run(stoker_home, "one", attempts)
    page = opened(run)
    with History() as history:
        records = [attempt.record for attempt in history.attempts(run)]
    longest = sorted(records, key=lambda record: -record.wall_s)
    assert first_name(page) == longest[0].step.source
    page.script("document.getElementById('sort-peak').click()")
    hungriest = max(records, key=lambda record: record.peak_bytes)
    assert first_name(page) == hungriest.step.source
    page.script("document.getElementById('sort-peak').click()")
    assert first_name(page) == min(records, key=lambda record: record.peak_bytes).step.source
    assert page.find("th[aria-sort]").get_attribute("aria-sort") == "ascending"
    page.find("#search").send_keys("torch_cuda kernel.cu")
    page.settle()
    expected = sum(record.step.role is Role.CUDA for record in records)
    assert page.find("#shown").text.endswith(f"of {expected} attempts")
    page.find("#search").send_keys(" nothing")
    page.settle()
    assert page.find("#shown").text == "no step matches"


def test_two_runs_are_compared(opened: Opened, stoker_home: Path) -> None:
    before = write_run(stoker_home, "one", generated_attempts(40))
    after = write_run(stoker_home, "two", generated_attempts(43, slower=1.4))
    page = opened(after, "--against", str(before))
    # Those that take the longest possible time do so in both runs.
    assert int(page.find("#show-slower").text.removeprefix("slower (").rstrip(")")) > 35
    assert page.find("#show-added").text == "only in this run (3)"
    page.script("document.getElementById('show-added').click()")
    page.settle()
    names = page.texts("#changes tbody td.name .file")
    assert sorted(name[-14:] for name in names) == [
        "on40Kernel.cpp",
        "on41Kernel.cpp",
        "on42Kernel.cpp",
    ]


def test_names_are_shown_as_they_are(opened: Opened, stoker_home: Path) -> None:
    step = Step(key="1", role=Role.CXX, source=HOSTILE, output=HOSTILE, flags=(HOSTILE,))
    record = StepRecord(step=step, wall_s=3.0, cpu_s=3.0, peak_bytes=10**8)
    attempt = Attempt(record=record, started=0.0, outcome=Outcome.FAILED, status=1)
    page = opened(write_run(stoker_home, "hostile", [attempt]))
    page.find("#timeline").send_keys(Keys.ARROW_DOWN)
    page.settle()
    assert page.find("#rows td.name").get_attribute("textContent") == visible(HOSTILE)
    assert page.find("#detail h3").get_attribute("textContent") == visible(HOSTILE)
    assert page.texts("#injected, #page img") == []
    assert page.script("return document.title") != "1"
    assert page.console() == []


def test_waits_pauses_and_kills_have_reasons(opened: Opened, stoker_home: Path) -> None:
    page = opened(write_run(stoker_home, "one", generated_attempts(150)))
    page.script("[...document.querySelectorAll('#events button')].at(-1).click()")
    page.settle()
    rows = page.texts("#events tbody tr")
    for what, why in [
        ("killed", "memory in use would have passed the limit"),
        ("paused", "memory in use would have passed the limit"),
        ("waited", "for a free CPU"),
    ]:
        matching = [row for row in rows if f" {what} " in row.replace("\n", " ")]
        assert matching, what
        assert all(why in row for row in matching)


def test_stages_settings_and_sizes_of_a_build(browser: Browser, tmp_path: Path) -> None:
    run = Run(id=1, started=0.0, ended=9.0, command="stoker build x", directory="/", summary=None)
    build = BuildFacts(
        title="mill 1.0",
        variant="cu130-sm90",
        stages=(
            StageResult(
                stage=BuildStage.COMPILE, end=StageEnd.FAILED, wall_s=70, log="", why="ninja"
            ),
        ),
        settings=(
            Setting(
                place=SettingPlace.CMAKE,
                name="USE_MPI",
                value="0",
                origin=Origin(kind=OriginKind.FILE, where="stoker.toml:3"),
            ),
        ),
        outputs=(
            Output(
                path="/dist/mill.whl",
                bytes=3 << 20,
                libraries=(
                    LibrarySize(path="mill.so", bytes=2 << 20, device_code={"sm_90": 1 << 20}),
                ),
            ),
        ),
    )
    analysis = analyse(run, (), RecordedRun(), Dependencies({}))
    report = Report(stoker="1", shown=ReportedRun(run=analysis, build=build))
    (tmp_path / "report.html").write_text(report_page(report))
    browser.open(tmp_path / "report.html")
    text = browser.find("#build").get_attribute("textContent") or ""
    for part in ("compilefailed70 s", "mill.whl, 3.0 MiB", "mill.so2.0 MiB1.0 MiBsm_90 1.0 MiB"):
        assert part in text
    assert "USE_MPI0file stoker.toml:3" in text
    assert browser.find("h1").text == "mill 1.0"
    assert browser.console() == []


def test_light_and_dark(opened: Opened, stoker_home: Path) -> None:
    page = opened(write_run(stoker_home, "one", generated_attempts(10)))
    colour = "return getComputedStyle(document.body).backgroundColor"
    before = page.script(colour)
    page.script("document.getElementById('theme').click()")
    assert page.script(colour) != before
    assert page.console() == []


def test_an_imported_run_shows_no_times_of_steps(opened: Opened, stoker_home: Path) -> None:
    imported = [replace(attempt, started=0.0) for attempt in generated_attempts(30)]
    page = opened(write_run(stoker_home, "imported", imported, complete=False))
    assert page.find(".pill").text.startswith("imported")
    assert page.texts("#timeline, #time, #path, #events, #sort-started") == []
    page.script("document.querySelector('#rows tr').click()")
    page.settle()
    assert page.find("#steps #detail h3").text == first_name(page)
    assert page.console() == []


@pytest.mark.parametrize("width", [360, 390, 1300])
def test_nothing_is_wider_than_the_window(opened: Opened, stoker_home: Path, width: int) -> None:
    before = write_run(stoker_home, "one", generated_attempts(20))
    page = opened(write_run(stoker_home, "two", generated_attempts(20)), "--against", str(before))
    page.screen(width, 900, mobile=width < 600)
    page.find("#timeline").send_keys(Keys.ARROW_DOWN)
    page.settle()
    assert page.script("return document.documentElement.scrollWidth") == width


def test_a_run_that_was_killed_has_a_page(opened: Opened, stoker_home: Path) -> None:
    page = opened(write_run(stoker_home, "killed", generated_attempts(30), complete=False))
    assert page.find(".pill").text.startswith("not finished")
    # Without a summary the peak is that of a step, and the sum of all is larger.
    assert page.script(
        "return timeline.memoryTopValue() > timeline.mostMemory && timeline.mostMemory > RUN.peak"
    )
