"""How often first answers on unseen logs were right: the record in knowledge/confidence.toml.

    python benchmarks/confidence.py             what the answers say now, and how many are right
    python benchmarks/confidence.py --record    the record of each cause, for the table

results/diagnose-unseen.json has the answers on logs for which no sign had been written.
"""

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from stoker.knowledge.failures import stated

STORED = Path(__file__).with_name("results") / "diagnose-unseen.json"
BANDS = (0.95, 0.9, 0.85, 0.75, 0.6, 0.0)  # the least confidence of each
LEAST_NAMED = 4  # answers of a cause before its record counts


class Answer(NamedTuple):
    log: str
    end: str
    cause: str
    strength: float


def answers() -> Iterator[Answer]:
    for rows in json.loads(STORED.read_text())["sets"].values():
        yield from (Answer(*row) for row in rows if len(row) == len(Answer._fields))


def record() -> Iterator[str]:
    """Yield how often each cause was right and how often it was named, as lines of the table."""
    named = Counter(answer.cause for answer in answers())
    right = Counter(answer.cause for answer in answers() if answer.end == "right")
    for cause, times in sorted(named.items()):
        if times >= LEAST_NAMED:
            yield f"{cause} = [{right[cause]}, {times}]"


def bands() -> Iterator[str]:
    """Yield for each band of confidence what its answers say and how many are right."""
    found = defaultdict[float, list[tuple[float, bool]]](list)
    for answer in answers():
        said = stated(answer.cause, answer.strength)
        found[next(least for least in BANDS if said >= least)].append((said, answer.end == "right"))
    for least in BANDS:
        if said := found[least]:
            says = sum(one for one, _ in said) / len(said)
            share = sum(right for _, right in said) / len(said)
            yield f"from {least:.2f}: {len(said)} answers say {says:.3f}, right are {share:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--record", action="store_true")
    print(*(record() if parser.parse_args().record else bands()), sep="\n")


if __name__ == "__main__":
    main()
