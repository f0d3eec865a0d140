"""How often first answers on unseen logs were right: the figures in knowledge/confidence.toml.

    python benchmarks/confidence.py [--json FILE]
    python benchmarks/confidence.py --record

The results in benchmarks/results have the answers on logs for which no sign had been written. The
first form counts them by what the answer would say now. Since the table was made of them, it also
counts what each would have said with the record of the sets before its own (``forward``), for
which the causes had not yet been repaired. The second form prints the records for the table.
"""

import argparse
import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

from stoker.knowledge import load
from stoker.knowledge.failures import ConfidenceTable, failures

RESULTS = Path(__file__).with_name("results")
UNSEEN = {  # in order of time: results, and the parts with logs for which no sign had been written
    "diagnose-fresh": ("unseen half",),
    "diagnose-old-releases": ("unseen half",),
    "diagnose-threads": ("tuning half", "unseen half"),  # the first run of both
    "diagnose-threads-2": ("tuning half", "unseen half"),
    "diagnose-threads-3": ("first batch", "second batch"),
    "diagnose-threads-4": ("tuning half", "unseen half"),  # the first run of both
    "diagnose-threads-5": ("first batch",),
    "diagnose-threads-6py": ("first batch", "second batch"),
    "diagnose-threads-6c": ("first batch", "second batch"),
    "diagnose-threads-6": ("third run",),  # all three were graded before anything was tuned
    "diagnose-threads-8": ("first batch",),
    "diagnose-threads-9": ("first run",),
    "diagnose-threads-10": ("first run",),
    "diagnose-threads-11": ("first run",),
    "diagnose-threads-12": ("first run",),
    "diagnose-threads-13": ("first run",),
    "diagnose-threads-14": ("first run",),
    "diagnose-threads-15": ("first run",),
    "diagnose-threads-16": ("first run",),
    "diagnose-threads-17": ("first run",),
    "diagnose-threads-18": ("first run",),
    "diagnose-threads-19": ("first run",),
    "diagnose-threads-20": ("first run",),
    "diagnose-threads-21": ("first run",),
    "diagnose-threads-22": ("first run",),
    "diagnose-threads-23": ("first run",),
    "diagnose-threads-24": ("first run",),
    "diagnose-threads-25": ("first run",),
}
# What answers said by the strength of their sign when a set was run.
FIRST = ((0.0, -0.03), (1.0, 0.97))
SECOND = ((0.5, 0.4), (0.7, 0.6), (0.8, 0.84), (0.9, 0.9), (0.95, 0.95), (1.0, 0.97))
THIRD = (
    (0.5, 0.45), (0.7, 0.68), (0.8, 0.76), (0.85, 0.83), (0.9, 0.87), (0.95, 0.88), (0.97, 0.95),
    (1.0, 0.97),
)  # fmt: skip
# Of the sets from the eighth on: their answers also depended on the record of the sets before it.
FOURTH = (
    (0.5, 0.5), (0.7, 0.56), (0.74, 0.7), (0.76, 0.75), (0.86, 0.77), (0.9, 0.87), (0.95, 0.9),
    (0.97, 0.95), (1.0, 0.97),
)  # fmt: skip
WITH_RECORD = "diagnose-threads-8"  # the first of them
POINTS_THEN = {
    "diagnose-fresh": FIRST,
    "diagnose-old-releases": FIRST,
    "diagnose-threads": FIRST,
    "diagnose-threads-2": SECOND,
    "diagnose-threads-3": SECOND,
}
BANDS = (0.95, 0.9, 0.85, 0.75, 0.6, 0.5, 0.0)  # the least confidence of each


Points = tuple[tuple[float, float], ...]


class Answer(NamedTuple):
    batch: str
    cause: str
    strength: float
    right: bool


def answers() -> Iterator[Answer]:
    weight = load("confidence", ConfidenceTable).weight
    before: list[Answer] = []
    record: dict[str, tuple[int, int]] = {}
    points_then: Points = THIRD
    for batch, parts in UNSEEN.items():
        if batch == WITH_RECORD:
            record, points_then = records(before), FOURTH
        stored = json.loads((RESULTS / f"{batch}.json").read_text())
        for case in (case for part in parts for case in stored[part]["cases"]):
            if said := case.get("confidence"):
                cause = case.get("answer") or case["said"]
                right, named = record.get(cause, (0, 0))
                of_strength = (said * (named + weight) - right) / weight
                strength = strength_of(of_strength, POINTS_THEN.get(batch, points_then))
                end = case.get("end") or case["verdict"]
                before.append(Answer(batch, cause, strength, end == "right"))
    yield from before


def ends() -> Counter[str]:
    found = Counter[str]()
    for batch, parts in UNSEEN.items():
        stored = json.loads((RESULTS / f"{batch}.json").read_text())
        for case in (case for part in parts for case in stored[part]["cases"]):
            found[case.get("end") or case["verdict"]] += 1
    return found


def strength_of(said: float, points: Iterable[tuple[float, float]]) -> float:
    """Return the strength of the sign of an answer that said how sure it was by some points."""
    for (low, least), (high, most) in pairwise(points):
        if said <= most:
            return low + (high - low) * max(said - least, 0) / (most - least)
    return 1.0


def said_by(table: ConfidenceTable, record: dict[str, tuple[int, int]], answer: Answer) -> float:
    points, right_named = table.points, record.get(answer.cause, (0, 0))
    by_strength = points[-1][1]
    for (low, least), (high, most) in pairwise(points):
        if answer.strength <= high:
            by_strength = least + (most - least) * max(answer.strength - low, 0) / (high - low)
            break
    right, named = right_named
    return (right + table.weight * by_strength) / (named + table.weight)


def records(found: Iterable[Answer]) -> dict[str, tuple[int, int]]:
    """Return how often each cause was right, and how often it was named, if more than three times.
    Those that only say what the log says are no answers any more.
    """
    right, named = Counter[str](), Counter[str]()
    for answer in found:
        right[answer.cause] += answer.right
        named[answer.cause] += 1
    return {cause: (right[cause], named[cause]) for cause in sorted(named) if _counts(cause, named)}


def _counts(cause: str, named: Counter[str]) -> bool:
    known = failures().get(cause)
    return named[cause] > 3 and not (known and known.restates)


def forward(table: ConfidenceTable, found: list[Answer]) -> list[tuple[float, bool]]:
    """Return what each answer says with the records of the sets before its own."""
    order, result = list(UNSEEN), list[tuple[float, bool]]()
    for answer in found:
        before = order[: order.index(answer.batch)]
        record = records(one for one in found if one.batch in before)
        result.append((said_by(table, record, answer), answer.right))
    return result


def counted(said: list[tuple[float, bool]]) -> dict[str, Any]:
    bands = defaultdict[float, list[tuple[float, bool]]](list)
    for confidence, right in said:
        bands[next(least for least in BANDS if confidence >= least)].append((confidence, right))
    return {
        "logarithmic loss": round(
            -sum(math.log(one if right else 1 - one) for one, right in said) / len(said), 4
        ),
        "by confidence": [
            {
                "from": least,
                "answers": len(bands[least]),
                "says": round(sum(one for one, _ in bands[least]) / len(bands[least]), 3),
                "right": round(sum(right for _, right in bands[least]) / len(bands[least]), 3),
            }
            for least in BANDS
            if bands[least]
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    found = list(answers())
    if asked.record:
        for cause, (right, named) in records(found).items():
            print(f"{cause} = [{right}, {named}]")
        return
    table = load("confidence", ConfidenceTable)
    now = [(said_by(table, table.record, one), one.right) for one in found]
    result = {
        "logs": ends().total(),
        **ends(),
        "now": counted(now),
        "forward": counted(forward(table, found)),
    }
    print(json.dumps(result, indent=2))
    if asked.json:
        asked.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
