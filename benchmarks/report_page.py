"""The page of `stoker report` for a large run: its size, and how fast it is drawn and responds.

    python benchmarks/report_page.py [--steps 7000]

The run is generated. The page is opened in headless Chromium: wall time until it is drawn, counted
from when it was opened, and CPU time of the page's thread. Then the wall time of one redraw of the
timeline, one sort and one search, each the median of several. CPU time is included because wall
time is unreliable on a shared machine.
"""

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path

sys.path[0] = str(Path(__file__).parents[1] / "tests")

from browser import Browser, opened_browser  # noqa: E402
from generated_runs import generated_attempts, write_run  # noqa: E402
from stoker.report.html_page import report_page  # noqa: E402
from stoker.report.reporting import make_report  # noqa: E402

ACTIONS = {
    "redraw of the whole timeline": "timeline.draw()",
    "redraw of a tenth of it": "timeline.show(0, timeline.end / 10); timeline.draw()",
    "sort of the table": "document.getElementById('sort-peak').click()",
    "search in the table": (
        "const search = document.getElementById('search'); search.value = 'kernel cuda';"
        "search.dispatchEvent(new Event('input'))"
    ),
}
_REPEATS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=7000)
    steps = parser.parse_args().steps
    with tempfile.TemporaryDirectory() as folder:
        os.environ["STOKER_HOME"] = folder
        write_run(Path(folder), "generated", generated_attempts(steps))
        began = time.process_time()
        text = report_page(make_report(None, what_if=False, say=print))
        show("steps", f"{steps:,}")
        show("CPU time to make the page", f"{time.process_time() - began:.1f} s")
        page = Path(folder, "report.html")
        page.write_text(text)
        show("size", f"{page.stat().st_size / 1e6:.1f} MB")
        with opened_browser() as browser:
            measure(browser, page)


def measure(browser: Browser, page: Path) -> None:
    browser.driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
    wall, cpu = [], []
    for _ in range(_REPEATS):
        browser.open(page)
        wall.append(float(browser.script("return document.documentElement.dataset.rendered")))
        cpu.append(thread_seconds(browser))
    show("opened until drawn", f"{sorted(wall)[_REPEATS // 2]:.0f} ms")
    show("of that CPU time, about", f"{1000 * sorted(cpu)[_REPEATS // 2]:.0f} ms")
    for name, code in ACTIONS.items():
        timed = f"const began = performance.now(); {code}; return performance.now() - began"
        best = sorted(browser.script(timed) for _ in range(_REPEATS))[_REPEATS // 2]
        show(name, f"{best:.0f} ms")


def thread_seconds(browser: Browser) -> float:
    """Return the CPU seconds that tasks of the page's thread took since it was opened."""
    found = browser.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return next(float(each["value"]) for each in found if each["name"] == "TaskDuration")


def show(name: str, value: str) -> None:
    print(f"{name:<32} {value:>12}", flush=True)


if __name__ == "__main__":
    main()
