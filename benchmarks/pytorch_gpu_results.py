"""Count what benchmarks/pytorch_gpu.sh left in its folder RESULT, and print it as JSON.

    python benchmarks/pytorch_gpu_results.py RESULT

A test that failed beside others ran again, and that outcome counts; `first` has the counts before.
"""

import json
import re
import statistics
import sys
from collections import Counter
from pathlib import Path

BUILDS = ("ours", "official")
OUTCOME = "PASSED|FAILED|SKIPPED|ERROR|XFAIL|XPASS"
LINES = re.compile(
    rf"^\[gw\d+\] \[ *\d+%\] (?P<worker>{OUTCOME}) (?P<name>\S+)"
    rf"|^(?P<alone>\S+::\S+) (?P<one>{OUTCOME})\b"
)


def outcomes(log: Path) -> dict[str, str]:
    """Return the outcome of each test that a log of `pytest -v` names."""
    found = (LINES.match(line) for line in log.read_text(errors="replace").splitlines())
    return {
        match["name"] or match["alone"]: match["worker"] or match["one"] for match in found if match
    }


def counts(outcome: dict[str, str]) -> dict[str, int]:
    return dict(sorted(Counter(outcome.values()).items()))


def failed(outcome: str) -> bool:
    return outcome in {"FAILED", "ERROR"}


def of_file(result: Path, file: str) -> dict[str, object]:
    """Return the outcomes of a file of tests for both builds, and where they differ."""
    first = {build: outcomes(result / f"{file}-{build}.txt") for build in BUILDS}
    last = {build: dict(first[build]) for build in BUILDS}
    for build in BUILDS:
        for log in (result / f"{file}-{build}-again").glob("*.txt"):
            last[build] |= outcomes(log)
    ours, official = (last[build] for build in BUILDS)
    both = sorted(ours.keys() & official.keys())
    return {
        "first": {build: counts(first[build]) for build in BUILDS},
        **{build: counts(last[build]) for build in BUILDS},
        "run_by_both": len(both),
        "same_outcome": sum(ours[name] == official[name] for name in both),
        "failed_only_ours": [
            name for name in both if failed(ours[name]) and not failed(official[name])
        ],
        "failed_only_official": [
            name for name in both if failed(official[name]) and not failed(ours[name])
        ],
        "failed_in_both": [name for name in both if failed(ours[name]) and failed(official[name])],
    }


def of_operators(result: Path) -> dict[str, object]:
    ours, official = (
        json.loads((result / f"operators-{build}.json").read_text()) for build in BUILDS
    )
    both = sorted(ours["operators"].keys() & official["operators"].keys())
    different = [name for name in both if ours["operators"][name] != official["operators"][name]]
    return {"compared": len(both), "different": different, "loss": [ours["loss"], official["loss"]]}


def of_speed(result: Path) -> dict[str, list[float]]:
    """Return for each kernel the median times in ms, their ratio, and the spread."""
    rounds = {
        build: [
            json.loads(line) for line in (result / f"speed-{build}.jsonl").read_text().splitlines()
        ]
        for build in BUILDS
    }
    rows = {}
    for kernel in rounds["ours"][0]:
        ours, official = ([one[kernel] for one in rounds[build]] for build in BUILDS)
        if all(isinstance(value, float) for value in ours + official):
            medians = statistics.median(ours), statistics.median(official)
            spread = max(max(ours) / min(ours), max(official) / min(official))
            rows[kernel] = [
                round(value, 4) for value in (*medians, medians[0] / medians[1], spread)
            ]
    return rows


def main() -> None:
    result = Path(sys.argv[1])
    files = sorted({path.name.removesuffix("-ours.txt") for path in result.glob("test_*-ours.txt")})
    tests = {file: of_file(result, file) for file in files}
    counted = ("run_by_both", "same_outcome")
    found = {
        "operators": of_operators(result),
        "tests": tests,
        "all_tests": {what: sum(int(str(one[what])) for one in tests.values()) for what in counted},
        "speed_columns": ["ours, ms", "official, ms", "ratio", "largest/smallest of a build"],
        "speed": of_speed(result),
    }
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
